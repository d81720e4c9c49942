// Shortlists of labels by the label graph, and the backward pass of their path scores.
#pragma once

#include <cstdint>

#include "neural/label_graph.h"

namespace ramify {

// Scores of the clusters for each row.
struct ClusterScores {
    const float* scores = nullptr;  // (rows, n_clusters) log p_c, at most 0
    const float* order = nullptr;   // (rows, n_clusters) what the beam is chosen by
    std::int64_t rows = 0;
};

// True labels of the rows in training, or null.
struct TrueLabels {
    const std::int64_t* indptr = nullptr;  // (rows + 1)
    const std::int32_t* labels = nullptr;
    const std::int32_t* clusters = nullptr;  // a cluster that is explored for each label, besides the beam; -1: none
};

struct Shortlists {
    std::int64_t width = 0;
    std::int32_t* labels = nullptr;       // (rows, width) ascending, padded with -1
    float* scores = nullptr;              // (rows, width) score of the best path, padded with -inf
    std::int32_t* edges = nullptr;        // (rows, width) last edge of that path, padded with -1
    std::uint8_t* targets = nullptr;      // (rows, width) 1: a true label; null without true labels
    float* truth_scores = nullptr;        // (true labels) score of the best path, -inf: not reached
    std::int32_t* truth_edges = nullptr;  // (true labels) its last edge, or -1
};

// The best labels of each row below the best `beam_size` clusters. Of equal paths the lower cluster wins, of equal
// labels the lower id.
void explore(const GraphView& graph, const ClusterScores& clusters, std::int64_t beam_size, const TrueLabels& truth,
             const Shortlists& out, int threads);

// Backward pass of s_l = log p_c + log a_cl along the best path (c, l): the gradient of a label (rows, width) is added
// to its cluster in d_clusters (rows, n_clusters) and to its edge in d_edges (edges). edge_cluster: (edges). Runs on
// one thread, in order.
void scatter_path_gradients(const std::int32_t* edges, const float* gradients, std::int64_t rows, std::int64_t width,
                            const std::int32_t* edge_cluster, std::int64_t n_clusters, float* d_clusters,
                            double* d_edges);

}  // namespace ramify
