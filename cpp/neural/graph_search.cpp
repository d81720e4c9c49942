#include "neural/graph_search.h"

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "core/vector_ops.h"
#include "neural/explorer.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 8;
constexpr std::int64_t labels_ahead = 3;  // whose weights are prefetched

}  // namespace

void search_graph(const GraphSearch& model, const float* embeddings, std::int64_t rows, std::int64_t dim,
                  std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    const auto dot = hot().dot;
    const GraphView& graph = model.graph;
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const ExplorerPool::Lease lease(explorers);
        Explorer& e = *lease;
        std::vector<float> clusters(static_cast<std::size_t>(graph.n_clusters)), logits(clusters.size());
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            const float* embedding = embeddings + row * dim;
            float largest = -std::numeric_limits<float>::infinity();
            dots(
                embedding, dim, graph.n_clusters, [&](std::int64_t c) { return model.cluster_weights + c * dim; },
                logits.data());
            for (std::size_t c = 0; c < logits.size(); ++c) {
                logits[c] += model.cluster_bias[c];
                largest = std::max(largest, logits[c]);
            }
            double sum = 0;
            for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
            const auto normalizer = static_cast<float>(largest + std::log(sum) - model.log_alpha);
            for (std::size_t c = 0; c < logits.size(); ++c) clusters[c] = std::min(0.0f, logits[c] - normalizer);
            e.beam.clear();
            e.choose_clusters(logits.data(), graph.n_clusters, model.beam_size);
            e.walk(graph, clusters.data());
            e.bin_best(model.shortlist_size);
            e.best.start(k);
            // log σ(v) <= 0, so a label never scores above its path. Best paths first: once a bin cannot reach the k
            // best any more, neither can the bins behind it.
            std::int64_t i = 0;
            for (int bin = 0; bin < LogScoreBins::n_bins && !(LogScoreBins::highest(bin) < e.best.cutoff()); ++bin)
                for (; i < e.bins.end(bin); ++i) {
                    // The table is large and read at random.
                    if (i + labels_ahead < e.bins.size())
                        prefetch_row(model.label_weights + e.bins[i + labels_ahead].id * dim, dim);
                    const auto [path, label] = e.bins[i];
                    const float v = dot(model.label_weights + label * dim, embedding, dim) + model.label_bias[label];
                    const float bound = std::min(v, 0.0f) + path;
                    if (!(bound < e.best.cutoff())) e.best.add({bound - std::log1p(std::exp(-std::abs(v))), label});
                }
            const std::vector<Scored>& found = e.best.finish();
            write_row(found.data(), static_cast<std::int64_t>(found.size()), k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
