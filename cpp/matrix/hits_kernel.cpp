// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "matrix/hits_kernel.h"

#include <string.h>

namespace ramify::RAMIFY_VARIANT {

namespace {

// Few true labels against many predicted ones: each true label is compared with every prediction, which vectorizes.
void mark(const std::int32_t* ids, std::int64_t k, const std::int32_t* truth, std::int64_t n_truth, std::uint8_t* hit) {
    memset(hit, 0, static_cast<unsigned long>(k));
    for (std::int64_t t = 0; t < n_truth; ++t) {
        const std::int32_t label = truth[t];
        for (std::int64_t j = 0; j < k; ++j) hit[j] = static_cast<std::uint8_t>(hit[j] | (ids[j] == label));
    }
}

}  // namespace

extern const MarkHits mark_hits;
const MarkHits mark_hits = mark;

}  // namespace ramify::RAMIFY_VARIANT
