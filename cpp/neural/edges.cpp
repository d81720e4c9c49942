#include "neural/edges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"

namespace ramify {

namespace {

void score_cluster(const EdgeTable& edges, std::int64_t first, std::int64_t end, float log_beta) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t e = first; e < end; ++e) largest = std::max(largest, edges.logits[e]);
    double total = 0;
    for (std::int64_t e = first; e < end; ++e) total += std::exp(static_cast<double>(edges.logits[e] - largest));
    const auto shift = static_cast<float>(largest + std::log(total) - log_beta);
    for (std::int64_t e = first; e < end; ++e) {
        edges.raw[e] = edges.logits[e] - shift;
        edges.scores[e] = std::min(0.0f, edges.raw[e]);
    }
}

}  // namespace

void score_edges(const EdgeTable& edges, std::int64_t n_clusters, float log_beta, int threads) {
    parallel_for(n_clusters, threads,
                 [&](std::int64_t c, int) { score_cluster(edges, edges.indptr[c], edges.indptr[c + 1], log_beta); });
}

void adam_edges(const EdgeTable& edges, const double* gradients, const EdgeState& state, const std::int32_t* clusters,
                std::int64_t n, float log_beta, const AdamOptions& options, int threads) {
    constexpr std::int64_t clusters_at_once = 8;
    const AdamStep step(options);
    const auto adam = hot().adam;
    parallel_for((n + clusters_at_once - 1) / clusters_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> d_logits;
        for (std::int64_t i = block * clusters_at_once; i < std::min(n, (block + 1) * clusters_at_once); ++i) {
            const std::int64_t first = edges.indptr[clusters[i]], end = edges.indptr[clusters[i] + 1];
            const auto d_raw = [&](std::int64_t e) { return edges.raw[e] <= 0 ? gradients[e] : 0.0; };
            double sum = 0;
            bool any = false;
            for (std::int64_t e = first; e < end; ++e) {
                sum += d_raw(e);
                any |= d_raw(e) != 0;
            }
            if (!any) continue;
            d_logits.clear();
            for (std::int64_t e = first; e < end; ++e) {
                const double softmax = std::exp(static_cast<double>(edges.raw[e]) - log_beta);
                d_logits.push_back(static_cast<float>(d_raw(e) - softmax * sum));
            }
            adam(step, d_logits.data(), end - first, false, edges.logits + first, state.first + first,
                 state.second + first);
            score_cluster(edges, first, end, log_beta);
        }
    });
}

}  // namespace ramify
