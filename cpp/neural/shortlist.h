// A weighted graph from clusters to labels, and the search in it.
//
// A label's score is its best path: the cluster's log score plus the edge's log score. Clusters are given as log scores
// for each row; the best few of them are explored, in training also those that the row's own labels are strongest in.
#pragma once

#include <cstdint>

#include "neural/adam.h"
#include "core/csr.h"

namespace ramify {

struct GraphView {
    std::int64_t n_clusters = 0, n_labels = 0;
    const std::int64_t* begin = nullptr;  // (n_clusters + 1) edges of each cluster
    const std::int32_t* labels = nullptr; // (edges) where an edge leads, ascending within a cluster
    const float* scores = nullptr;        // (edges) log scores, at most 0
};

struct Shortlists {
    std::int64_t width = 0;
    std::int32_t* labels = nullptr;      // (rows, width) ascending; -1 behind the last
    float* scores = nullptr;             // (rows, width) log score of the best path; -inf behind the last
    std::int32_t* edges = nullptr;       // (rows, width) last edge of that path; -1 behind the last
    std::uint8_t* targets = nullptr;     // (rows, width) 1: the row has the label; may be null
    float* truth_scores = nullptr;       // (truth entries) best path to each label that a row has, -inf: not reached
    std::int32_t* truth_edges = nullptr; // (truth entries) its edge, or -1
};

// clusters: (rows, n_clusters) log scores, at most 0; order: (rows, n_clusters) what the best `beam` are chosen by. truth:
// labels of each row, and parents the cluster of each of them that is explored besides; both may be null. Equal paths are
// decided by the lower cluster, equal labels by the lower number.
void explore(const GraphView& graph, const float* clusters, const float* order, std::int64_t rows, std::int64_t beam,
             const std::int64_t* truth_begin, const std::int32_t* truth, const std::int32_t* parents, const Shortlists& out,
             int threads);

// Cluster of each edge's best path gets the gradient of its label: by_cluster (rows, n_clusters) += and by_edge (edges) +=.
// edge_cluster: (edges). Runs on one thread, in order.
void spread_gradients(const std::int32_t* edges, const float* gradients, std::int64_t rows, std::int64_t width,
                      const std::int32_t* edge_cluster, std::int64_t n_clusters, float* by_cluster, double* by_edge);

// Edges while they are trained. A cluster's edges compete: raw = log β + log softmax of the logits, scores = min(raw, 0).
struct EdgeTable {
    const std::int64_t* begin = nullptr;  // (n_clusters + 1)
    const double* gradients = nullptr;    // (edges) of the scores
    float* logits = nullptr;              // (edges), as all that follow
    float* raw = nullptr;
    float* scores = nullptr;
    float* first = nullptr;               // moments of Adam
    float* second = nullptr;
};

// raw and scores from the logits, for all clusters.
void score_edges(const EdgeTable& edges, std::int64_t n_clusters, float log_beta, int threads);

// One step of Adam for the edges of the given clusters, and their scores after it. Clusters without a gradient rest.
void step_edges(const EdgeTable& edges, const std::int32_t* clusters, std::int64_t n, float log_beta, const AdamOptions& options, int threads);

// Classification loss of p = σ(logit) · e^score against the targets, summed, with its gradients; slots without a label
// (labels -1) cost nothing. Computed in log space.
double path_loss(const std::int32_t* labels, const float* scores, const float* logits, const std::uint8_t* targets, std::int64_t rows,
                 std::int64_t width, float weight, float* d_scores, float* d_logits, int threads);

// A trained model, ready to answer.
struct GraphSearch {
    GraphView graph;
    const float* cluster_weights = nullptr;  // (n_clusters, d)
    const float* cluster_offsets = nullptr;
    const float* label_weights = nullptr;    // (n_labels, d)
    const float* label_offsets = nullptr;
    float log_alpha = 0.0f;                  // clusters score min(0, log alpha + log softmax)
    std::int64_t beam = 20, width = 2000;
};

// The best k labels of each vector (rows, d) with their log scores; -1 and -inf where fewer are reached.
void search_graph(const GraphSearch& model, const float* vectors, std::int64_t rows, std::int64_t d, std::int64_t k, int threads,
                  std::int32_t* ids, float* scores);

}  // namespace ramify
