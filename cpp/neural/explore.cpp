#include "neural/explore.h"

#include <limits>

#include "core/parallel.h"
#include "neural/explorer.h"

namespace ramify {

void explore(const GraphView& graph, const ClusterScores& clusters, std::int64_t beam_size, const TrueLabels& truth,
             const Shortlists& out, int threads) {
    constexpr std::int64_t rows_at_once = 8;
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    parallel_for((clusters.rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const ExplorerPool::Lease lease(explorers);
        Explorer& e = *lease;
        for (std::int64_t row = block * rows_at_once; row < std::min(clusters.rows, (block + 1) * rows_at_once);
             ++row) {
            const std::int64_t first_true = truth.indptr != nullptr ? truth.indptr[row] : 0;
            const std::int64_t end_true = truth.indptr != nullptr ? truth.indptr[row + 1] : 0;
            e.beam.clear();
            for (std::int64_t i = first_true; i < end_true; ++i)
                if (truth.clusters[i] >= 0) e.beam.push_back(truth.clusters[i]);
            e.choose_clusters(clusters.order + row * graph.n_clusters, graph.n_clusters, beam_size);
            e.walk(graph, clusters.scores + row * graph.n_clusters);
            for (std::int64_t i = first_true; i < end_true; ++i) {
                const std::int32_t label = truth.labels[i];
                const bool found = e.is_reached(label);
                out.truth_scores[i] = found ? e.score(label) : minus_infinity;
                out.truth_edges[i] = found ? e.edge(label) : -1;
            }
            e.keep_best(out.width);
            const auto n = static_cast<std::int64_t>(e.reached.size());
            for (std::int64_t i = 0; i < out.width; ++i) {
                const std::int64_t at = row * out.width + i;
                const std::int32_t label = i < n ? e.reached[static_cast<std::size_t>(i)] : -1;
                out.labels[at] = label;
                out.scores[at] = i < n ? e.score(label) : minus_infinity;
                out.edges[at] = i < n ? e.edge(label) : -1;
            }
            if (out.targets == nullptr) continue;
            std::uint8_t* targets = out.targets + row * out.width;
            std::fill(targets, targets + out.width, std::uint8_t{0});
            for (std::int64_t i = first_true; i < end_true; ++i) {
                const auto at = std::lower_bound(e.reached.begin(), e.reached.end(), truth.labels[i]);
                if (at != e.reached.end() && *at == truth.labels[i]) targets[at - e.reached.begin()] = 1;
            }
        }
    });
}

void scatter_path_gradients(const std::int32_t* edges, const float* gradients, std::int64_t rows, std::int64_t width,
                            const std::int32_t* edge_cluster, std::int64_t n_clusters, float* d_clusters,
                            double* d_edges) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
            if (edges[i] < 0 || gradients[i] == 0.0f) continue;
            d_clusters[row * n_clusters + edge_cluster[edges[i]]] += gradients[i];
            d_edges[edges[i]] += gradients[i];
        }
}

}  // namespace ramify
