// Prediction of ELIAS: from embeddings through clusters and label graph to the best labels.
#pragma once

#include <cstdint>

#include "neural/label_graph.h"

namespace ramify {

struct GraphSearch {
    GraphView graph;
    const float* cluster_weights = nullptr;  // (n_clusters, dim)
    const float* cluster_bias = nullptr;
    const float* label_weights = nullptr;  // (n_labels, dim)
    const float* label_bias = nullptr;
    float log_alpha = 0.0f;  // log p_c = min(0, log α + log softmax(logits)_c)
    std::int64_t beam_size = 20, shortlist_size = 2000;
};

// The k best labels of each embedding (rows, dim) with their log scores  log σ(v_l) + s_l,  v the logits of the label
// classifiers and s the path scores of the label graph; padded with -1 and -inf.
void search_graph(const GraphSearch& model, const float* embeddings, std::int64_t rows, std::int64_t dim,
                  std::int64_t k, int threads, std::int32_t* ids, float* scores);

}  // namespace ramify
