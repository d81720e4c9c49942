// The edge weights of the label graph while they are trained.
//
// The edges of a cluster compete: with logits z,  raw_e = log β + log softmax(z)_e  and  score_e = min(raw_e, 0),  so
// that β edges of a cluster can have full weight.
#pragma once

#include <cstdint>

#include "neural/adam_kernel.h"

namespace ramify {

struct EdgeTable {
    const std::int64_t* indptr = nullptr;  // (n_clusters + 1)
    float* logits = nullptr;               // (edges), as all below
    float* raw = nullptr;
    float* scores = nullptr;
};

// Optimizer state of the logits.
struct EdgeState {
    float* first = nullptr;
    float* second = nullptr;
};

// Computes raw and scores from the logits, for all clusters.
void score_edges(const EdgeTable& edges, std::int64_t n_clusters, float log_beta, int threads);

// One step of Adam for the edges of n clusters from the gradients g of their scores, and the scores after it. Backward
// pass: with ĝ_e = g_e where raw_e <= 0, else 0,  d_z_e = ĝ_e - softmax(z)_e Σ ĝ.  Clusters without a gradient stay as
// they are.
void adam_edges(const EdgeTable& edges, const double* gradients, const EdgeState& state, const std::int32_t* clusters,
                std::int64_t n, float log_beta, const AdamOptions& options, int threads);

}  // namespace ramify
