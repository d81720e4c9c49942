// One variant's table of kernels. Compiled once for each instruction set, as are the kernels themselves
// (CMakeLists.txt).
//
// Rules for all kernel files: everything lives in the namespace of the variant or has internal linkage, and nothing may
// use a function that other files could share (no standard containers). The linker would keep a single copy of such a
// function, perhaps one for an instruction set that this machine does not have.
#include "core/kernels.h"

namespace ramify::RAMIFY_VARIANT {

extern const ScanText scan_text;
extern const MarkHits mark_hits;
extern const AddScaled add_scaled;
extern const AddScaled4 add_scaled_4;
extern const AdamUpdate adam;
extern const Dot dot;
extern const Dot4 dot_4;
extern const DotCodes dot_codes;
extern const SolveLabels solve_labels;
extern const CollectHits collect_hits;
extern const AddHits add_hits;
extern const ScoreChunk score_chunk;
extern const HingeScores hinge_scores;
extern const FindOver find_over;
extern const ScoreFeatures score_features;
extern const LayerKernels layer_kernels;
extern const BoostedSums boosted_sums;

const HotKernels& kernels() {
    static const HotKernels table{scan_text,    mark_hits, add_scaled,     add_scaled_4,  adam,        dot,
                                  dot_4,        dot_codes, solve_labels,   collect_hits,  add_hits,    score_chunk,
                                  hinge_scores, find_over, score_features, layer_kernels, boosted_sums};
    return table;
}

}  // namespace ramify::RAMIFY_VARIANT
