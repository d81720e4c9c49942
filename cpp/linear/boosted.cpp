#include "linear/boosted.h"

#include <algorithm>
#include <vector>

#include "core/isa.h"
#include "core/kernels.h"
#include "core/parallel.h"

namespace ramify {

void score_boosted(const BoostedView& trees, const float* columns, std::int64_t n, std::int64_t n_features, int threads,
                   float* scores) {
    constexpr std::int64_t groups_at_once = 16;
    const std::int64_t n_groups = (n + boosted_lanes - 1) / boosted_lanes;
    parallel_for((n_groups + groups_at_once - 1) / groups_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t g = block * groups_at_once; g < std::min(n_groups, (block + 1) * groups_at_once); ++g) {
            const std::int64_t first = g * boosted_lanes, size = std::min(boosted_lanes, n - first);
            if (size == boosted_lanes) {
                hot().boosted_sums(trees, columns + first, n, scores + first);
                continue;
            }
            std::vector<float> last(static_cast<std::size_t>(n_features * boosted_lanes), 0.0f);
            for (std::int64_t f = 0; f < n_features; ++f)
                std::copy_n(columns + f * n + first, size, last.data() + f * boosted_lanes);
            float sums[boosted_lanes];
            hot().boosted_sums(trees, last.data(), boosted_lanes, sums);
            std::copy_n(sums, size, scores + first);
        }
    });
}

}  // namespace ramify
