#include "linear/boosted.h"

#include <algorithm>
#include <vector>

#include "core/isa.h"
#include "core/kernels.h"
#include "core/parallel.h"

namespace ramify {

void score_boosted(const BoostedView& trees, const float* X, std::int64_t n, std::int64_t n_features, int threads,
                   float* scores) {
    constexpr std::int64_t groups_at_once = 16;
    const std::int64_t n_groups = (n + boosted_lanes - 1) / boosted_lanes;
    parallel_for((n_groups + groups_at_once - 1) / groups_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> columns(static_cast<std::size_t>(n_features * boosted_lanes), 0.0f);
        float sums[boosted_lanes];
        for (std::int64_t g = block * groups_at_once; g < std::min(n_groups, (block + 1) * groups_at_once); ++g) {
            const std::int64_t first = g * boosted_lanes, size = std::min(boosted_lanes, n - first);
            for (std::int64_t j = 0; j < size; ++j)
                for (std::int64_t f = 0; f < n_features; ++f)
                    columns[static_cast<std::size_t>(f * boosted_lanes + j)] = X[(first + j) * n_features + f];
            hot().boosted_sums(trees, columns.data(), sums);
            std::copy_n(sums, size, scores + first);
        }
    });
}

}  // namespace ramify
