// The table of kernels that are compiled for several instruction sets; see isa.h.
#pragma once

#include "ann/code_kernel.h"
#include "core/vector_kernel.h"
#include "linear/beam_kernel.h"
#include "linear/boosted_kernel.h"
#include "linear/candidate_kernel.h"
#include "linear/ovr_kernel.h"
#include "matrix/hits_kernel.h"
#include "neural/adam_kernel.h"
#include "neural/layer_kernel.h"
#include "text/scan_kernel.h"

namespace ramify {

struct HotKernels {
    ScanText scan_text;
    MarkHits mark_hits;
    AddScaled add_scaled;
    AddScaled4 add_scaled_4;
    AdamUpdate adam;
    Dot dot;
    Dot4 dot_4;
    DotCodes dot_codes;
    SolveLabels solve_labels;
    CollectHits collect_hits;
    AddHits add_hits;
    ScoreChunk score_chunk;
    HingeScores hinge_scores;
    FindOver find_over;
    ScoreFeatures score_features;
    LayerKernels layers;
    BoostedSums boosted_sums;
};

}  // namespace ramify
