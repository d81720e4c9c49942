// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/boosted_kernel.h"

#include "core/lanes.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

constexpr int n_vectors = boosted_lanes / 8;

void sum_leaves(const BoostedView& trees, const float* columns, std::int64_t stride, float* sums) {
    for (std::int64_t j = 0; j < boosted_lanes; ++j) sums[j] = 0;
    for (std::int64_t tree = 0; tree < trees.n_trees; ++tree) {
        I8 reachable[n_vectors];  // in registers: every loop over it is unrolled
        for (I8& lanes : reachable) lanes = ~I8{};
        for (std::int64_t s = trees.indptr[tree]; s < trees.indptr[tree + 1]; ++s) {
            const float* const column = columns + trees.features[s] * stride;
            const F8 threshold = all8(trees.thresholds[s]);
            const I8 mask = I8{} + static_cast<std::int32_t>(trees.masks[s]);
            for (int v = 0; v < n_vectors; ++v) reachable[v] &= mask | ~(load8(column + 8 * v) > threshold);
        }
        std::uint32_t bits[boosted_lanes];
        memcpy(bits, reachable, sizeof bits);
        const float* const leaves = trees.leaves + tree * boosted_leaves;
        for (std::int64_t j = 0; j < boosted_lanes; ++j) sums[j] += leaves[__builtin_ctz(bits[j] | 1u << 31)];
    }
}

}  // namespace

extern const BoostedSums boosted_sums;
const BoostedSums boosted_sums = sum_leaves;

}  // namespace ramify::RAMIFY_VARIANT
