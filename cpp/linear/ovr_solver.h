// One-vs-rest linear classifiers, cluster by cluster.
//
// The labels of a cluster share their rows: each cluster gets a compact copy of its rows with its features renumbered,
// so that the weights of 16 labels at a time live in cache; ovr_kernel.h solves them in lockstep.
#pragma once

#include <cstdint>
#include <functional>

#include "core/csr.h"
#include "linear/ovr_kernel.h"

namespace ramify {

template <class Index>
struct OvrProblem {
    CsrView<Index> sparse;            // (n × d); d may be 0
    const float* dense = nullptr;     // (n, n_dense)
    std::int64_t n_dense = 0;
    CsrView<std::int64_t> positives;  // (L × n) points of each label; data: their relevance, or null
    const float* positive_costs = nullptr;   // (L) C of each label's positives
    CsrView<std::int64_t> negatives;  // (clusters × n) points that give a cluster its negatives; indptr null: all points
    const std::int64_t* clusters = nullptr;  // (clusters + 1) labels of cluster c: [clusters[c], clusters[c + 1])
    std::int64_t n_clusters = 0;
    CsrView<std::int64_t> start;      // (L × (d + n_dense + 1)) weights to start from; indptr null: none
};

// Weights (L × (d + n_dense + 1)), the bias in the last column. max_weights > 0 keeps only that many of the largest of a
// label, the bias apart. progress(labels done) is called on the calling thread now and then.
template <class Index>
CsrRows fit_ovr(const OvrProblem<Index>& problem, const SolverOptions& options, std::int64_t max_weights, int threads,
                const std::function<void(std::int64_t)>& progress, SolverCounts& counts);

}  // namespace ramify
