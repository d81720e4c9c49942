#include "linear/kmeans.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/random.h"

namespace ramify {

template <class Index>
std::vector<std::int32_t> kmeans(const CsrView<Index>& rows, std::int64_t n_clusters, bool balanced,
                                 const KMeansOptions& options, int threads) {
    const std::int64_t n = rows.rows;
    Members members;
    {
        std::vector<std::int32_t> all(static_cast<std::size_t>(n));
        std::iota(all.begin(), all.end(), 0);
        members.gather(rows, all.data(), n);
    }
    const auto d = static_cast<std::size_t>(members.n_features);
    const auto k = static_cast<std::size_t>(n_clusters), width = (k + 7) / 8 * 8;
    auto is_zero = [&](std::int64_t m) {
        return members.indptr[static_cast<std::size_t>(m)] == members.indptr[static_cast<std::size_t>(m) + 1];
    };

    // Centroids as [feature][cluster]: one loop over a row gives its similarity to all of them.
    std::vector<float> centroids(d * width), bias(width);
    std::vector<std::int32_t> cluster(static_cast<std::size_t>(n), -1);
    Random random(options.seed);
    {
        std::vector<std::int32_t> seeds(static_cast<std::size_t>(n));
        std::iota(seeds.begin(), seeds.end(), 0);
        for (std::size_t c = 0; c < k; ++c) {
            const auto j = c + static_cast<std::size_t>(random.below(n - static_cast<std::int64_t>(c)));
            std::swap(seeds[c], seeds[j]);
            for (std::int64_t i = members.indptr[static_cast<std::size_t>(seeds[c])];
                 i < members.indptr[static_cast<std::size_t>(seeds[c]) + 1]; ++i)
                centroids[static_cast<std::size_t>(members.indices[static_cast<std::size_t>(i)]) * width + c] =
                    members.values[static_cast<std::size_t>(i)];
        }
    }
    auto similarities = [&](std::int64_t m, float* out) {
        std::copy(bias.begin(), bias.end(), out);
        for (std::int64_t i = members.indptr[static_cast<std::size_t>(m)];
             i < members.indptr[static_cast<std::size_t>(m) + 1]; ++i)
            hot().add_scaled(
                members.values[static_cast<std::size_t>(i)],
                centroids.data() + static_cast<std::size_t>(members.indices[static_cast<std::size_t>(i)]) * width,
                static_cast<std::int64_t>(width), out);
    };
    auto best_of = [&](const float* similarity, const std::vector<std::int64_t>* room) {
        std::int32_t best = -1;
        for (std::size_t c = 0; c < k; ++c)
            if ((room == nullptr || (*room)[c] > 0) &&
                (best < 0 || similarity[c] > similarity[static_cast<std::size_t>(best)]))
                best = static_cast<std::int32_t>(c);
        return best;
    };
    const std::int64_t capacity = (n + n_clusters - 1) / n_clusters;
    constexpr std::int64_t block_size = 256;
    const std::int64_t n_blocks = (n + block_size - 1) / block_size;
    std::vector<float> margin(static_cast<std::size_t>(n));
    std::vector<std::int32_t> next(static_cast<std::size_t>(n));

    // Sums of the members of each cluster; an empty cluster keeps its centroid. Feature by feature rather than cluster
    // by cluster: the matrix of centroids is far larger than the caches.
    std::vector<std::int64_t> n_members(k);
    std::vector<double> squares(width);
    auto update_centroids = [&] {
        std::fill(n_members.begin(), n_members.end(), 0);
        for (const std::int32_t c : cluster) ++n_members[static_cast<std::size_t>(c)];
        std::vector<float> keep(width, 1.0f), scale(width, 1.0f);
        for (std::size_t c = 0; c < k; ++c) keep[c] = n_members[c] > 0 ? 0.0f : 1.0f;
        for (std::size_t f = 0; f < d; ++f)
            for (std::size_t c = 0; c < width; ++c) centroids[f * width + c] *= keep[c];
        for (std::size_t m = 0; m < cluster.size(); ++m)
            for (auto i = static_cast<std::size_t>(members.indptr[m]);
                 i < static_cast<std::size_t>(members.indptr[m + 1]); ++i)
                centroids[static_cast<std::size_t>(members.indices[i]) * width +
                          static_cast<std::size_t>(cluster[m])] += members.values[i];
        std::fill(squares.begin(), squares.end(), 0.0);
        for (std::size_t f = 0; f < d; ++f)
            for (std::size_t c = 0; c < width; ++c) {
                const double x = centroids[f * width + c];
                squares[c] += x * x;
            }
        for (std::size_t c = 0; c < k; ++c) {
            if (n_members[c] == 0) continue;
            const double by = options.spherical ? (squares[c] > 0 ? 1.0 / std::sqrt(squares[c]) : 0.0)
                                                : 1.0 / static_cast<double>(n_members[c]);
            scale[c] = static_cast<float>(by);
            // The nearest mean has the largest x·c - |c|²/2.
            bias[c] = options.spherical ? 0.0f : static_cast<float>(-squares[c] * by * by / 2);
        }
        for (std::size_t f = 0; f < d; ++f)
            for (std::size_t c = 0; c < width; ++c) centroids[f * width + c] *= scale[c];
    };

    for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
        parallel_for(n_blocks, threads, [&](std::int64_t block, int) {
            std::vector<float> similarity(width);
            for (std::int64_t m = block * block_size; m < std::min(n, (block + 1) * block_size); ++m) {
                similarities(m, similarity.data());
                const std::int32_t best = best_of(similarity.data(), nullptr);
                next[static_cast<std::size_t>(m)] = best;
                if (!balanced) continue;
                float second = -INFINITY;
                for (std::size_t c = 0; c < k; ++c)
                    if (static_cast<std::int32_t>(c) != best) second = std::max(second, similarity[c]);
                margin[static_cast<std::size_t>(m)] =
                    k > 1 ? similarity[static_cast<std::size_t>(best)] - second : 0.0f;
            }
        });
        std::vector<std::int64_t> room(k, balanced ? capacity : n);
        std::vector<std::int32_t> order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        if (balanced) {  // rows that lose most in another cluster choose first
            std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
                return margin[static_cast<std::size_t>(a)] > margin[static_cast<std::size_t>(b)];
            });
            std::vector<float> similarity(width);
            for (const std::int32_t m : order) {
                if (is_zero(m)) continue;
                auto& choice = next[static_cast<std::size_t>(m)];
                if (room[static_cast<std::size_t>(choice)] == 0) {
                    similarities(m, similarity.data());
                    choice = best_of(similarity.data(), &room);
                }
                --room[static_cast<std::size_t>(choice)];
            }
        } else {
            for (const std::int32_t m : order)
                if (!is_zero(m)) --room[static_cast<std::size_t>(next[static_cast<std::size_t>(m)])];
        }
        for (const std::int32_t m : order) {
            if (!is_zero(m)) continue;
            const auto emptiest = static_cast<std::size_t>(std::max_element(room.begin(), room.end()) - room.begin());
            next[static_cast<std::size_t>(m)] = static_cast<std::int32_t>(emptiest);
            --room[emptiest];
        }
        std::int64_t moved = 0;
        for (std::size_t m = 0; m < cluster.size(); ++m) moved += next[m] != cluster[m];
        cluster = next;
        if (static_cast<double>(moved) <= options.tolerance * static_cast<double>(n)) break;

        update_centroids();
    }
    return cluster;
}

template std::vector<std::int32_t> kmeans(const CsrView<std::int32_t>&, std::int64_t, bool, const KMeansOptions&, int);
template std::vector<std::int32_t> kmeans(const CsrView<std::int64_t>&, std::int64_t, bool, const KMeansOptions&, int);

}  // namespace ramify
