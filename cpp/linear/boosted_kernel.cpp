// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/boosted_kernel.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

void sum_leaves(const BoostedView& trees, const float* columns, std::int64_t stride, float* sums) {
    for (std::int64_t j = 0; j < boosted_lanes; ++j) sums[j] = 0;
    for (std::int64_t tree = 0; tree < trees.n_trees; ++tree) {
        std::uint32_t reachable[boosted_lanes];
        for (std::int64_t j = 0; j < boosted_lanes; ++j) reachable[j] = ~std::uint32_t{0};
        for (std::int64_t s = trees.indptr[tree]; s < trees.indptr[tree + 1]; ++s) {
            const float* const column = columns + trees.features[s] * stride;
            const float threshold = trees.thresholds[s];
            const std::uint32_t mask = trees.masks[s];
            for (std::int64_t j = 0; j < boosted_lanes; ++j)
                reachable[j] &= column[j] > threshold ? mask : ~std::uint32_t{0};
        }
        const float* const leaves = trees.leaves + tree * boosted_leaves;
        for (std::int64_t j = 0; j < boosted_lanes; ++j) sums[j] += leaves[__builtin_ctz(reachable[j] | 1u << 31)];
    }
}

}  // namespace

extern const BoostedSums boosted_sums;
const BoostedSums boosted_sums = sum_leaves;

}  // namespace ramify::RAMIFY_VARIANT
