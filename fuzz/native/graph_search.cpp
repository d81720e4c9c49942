// Search in label graphs with weights of any value: rankings that do not depend on the other rows, and shortlists.
#include "neural/graph_search.h"

#include "input.h"
#include "neural/explore.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_clusters = input.between(1, 9), dim = input.between(1, 20), rows = input.between(1, 10);
    const std::int64_t n_labels = input.take<std::uint8_t>() % 8 == 0 ? 3000 : input.between(1, 60);
    auto indptr = input.pointers<std::int64_t>(n_clusters, 40);
    const auto targets = input.columns(indptr, n_labels);
    const std::vector<std::int32_t> labels(targets.begin(), targets.end());
    std::vector<float> edges = input.numbers(static_cast<std::int64_t>(labels.size()));
    for (float& score : edges) score = std::min(score, 0.0f);  // LabelGraph refuses others
    const auto cluster_weights = input.numbers(n_clusters * dim), cluster_bias = input.numbers(n_clusters);
    auto label_weights = input.numbers(std::min<std::int64_t>(n_labels, 60) * dim);
    label_weights.resize(static_cast<std::size_t>(n_labels * dim), 0.25f);
    auto label_bias = input.numbers(std::min<std::int64_t>(n_labels, 60));
    label_bias.resize(static_cast<std::size_t>(n_labels), -0.5f);
    const auto embeddings = input.numbers(rows * dim);
    const GraphView graph{n_clusters, n_labels, indptr.data(), labels.data(), edges.data()};
    const GraphSearch model{
        graph,          cluster_weights.data(), cluster_bias.data(), label_weights.data(), label_bias.data(),
        input.number(), input.between(1, 12),   input.between(1, 80)};
    const std::int64_t k = input.between(1, 30);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k)), one_id(static_cast<std::size_t>(k));
    std::vector<float> scores(ids.size()), one_score(one_id.size());
    search_graph(model, embeddings.data(), rows, dim, k, 1, ids.data(), scores.data());
    require_ranking(ids.data(), scores.data(), rows, k, n_labels);
    for (std::int64_t row = 0; row < rows; ++row) {
        search_graph(model, embeddings.data() + row * dim, 1, dim, k, 1, one_id.data(), one_score.data());
        for (std::int64_t j = 0; j < k; ++j)
            require(one_id[static_cast<std::size_t>(j)] == ids[static_cast<std::size_t>(row * k + j)] &&
                    same(one_score[static_cast<std::size_t>(j)], scores[static_cast<std::size_t>(row * k + j)]));
    }

    // Shortlists of a training, with true labels of the rows.
    const auto clusters = input.numbers(rows * n_clusters), order = input.numbers(rows * n_clusters);
    auto truth_indptr = input.pointers<std::int64_t>(rows, 5);
    const auto true_columns = input.columns(truth_indptr, n_labels);
    const std::vector<std::int32_t> true_labels(true_columns.begin(), true_columns.end());
    std::vector<std::int32_t> true_clusters(true_labels.size());
    for (auto& cluster : true_clusters) cluster = static_cast<std::int32_t>(input.between(-1, n_clusters - 1));
    const std::int64_t width = input.between(1, 40);
    std::vector<std::int32_t> found(static_cast<std::size_t>(rows * width)), last_edges(found.size()),
        truth_edges(true_labels.size());
    std::vector<float> path_scores(found.size()), truth_scores(true_labels.size());
    std::vector<std::uint8_t> is_true(found.size());
    const Shortlists out{width,          found.data(),        path_scores.data(), last_edges.data(),
                         is_true.data(), truth_scores.data(), truth_edges.data()};
    explore(graph, {clusters.data(), order.data(), rows}, input.between(1, 12),
            {truth_indptr.data(), true_labels.data(), true_clusters.data()}, out, 1);
    for (std::size_t i = 0; i < found.size(); ++i) {
        require(found[i] >= -1 && found[i] < n_labels);
        const std::int32_t edge = last_edges[i];
        require(found[i] < 0 ? edge == -1 : labels[static_cast<std::size_t>(edge)] == found[i]);
    }
    return 0;
}
