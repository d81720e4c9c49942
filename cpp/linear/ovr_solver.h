// One-vs-rest linear classifiers, cluster by cluster.
//
// The labels of a cluster share their training rows: each cluster gets a compact copy of its rows with its features
// renumbered, so that the weights of 16 labels fit the cache; ovr_kernel.h solves them in lockstep.
#pragma once

#include <cstdint>
#include <functional>

#include "core/csr.h"
#include "linear/ovr_kernel.h"

namespace ramify {

// Where a problem lies in a larger one, of which it has whole clusters and all of their rows, in order. Its labels get
// the weights that they get in the larger one.
struct OvrCut {
    std::int64_t first_label = 0;           // label 0 of the problem in the larger one
    std::int64_t n_labels = 0, n_rows = 0;  // of the larger one
    bool is_wide = false;                   // whether the larger one has 64-bit indices
    std::int64_t begin = 0, end = 0;        // labels of the problem to train, from the first of a job on
};

template <class Index>
struct OvrProblem {
    CsrView<Index> sparse;         // (n × d); d may be 0
    const float* dense = nullptr;  // (n, n_dense)
    std::int64_t n_dense = 0;
    CsrView<std::int64_t> positives;         // (L × n) rows of each label; data: their relevance, or null
    const float* positive_costs = nullptr;   // (L) C of each label's positives
    CsrView<std::int64_t> negatives;         // (clusters × n) negatives of each cluster; indptr null: all rows
    const std::int64_t* clusters = nullptr;  // (clusters + 1) labels of cluster c: [clusters[c], clusters[c + 1])
    std::int64_t n_clusters = 0;
    std::int64_t part = 0, n_parts = 1;  // which part of the labels to train; the rows of all others are empty
    const OvrCut* cut = nullptr;         // null: the problem is whole
};

// Labels of a job: a cluster is divided into jobs, from its first label on. They do not depend on the number of
// threads.
std::int64_t ovr_job_size(std::int64_t n_labels);

// Weights (L × (d + n_dense + 1)), the bias in the last column. progress(labels done) is called on the calling thread
// after each of its jobs.
template <class Index>
CsrRows fit_ovr(const OvrProblem<Index>& problem, const SolverOptions& options, int threads,
                const std::function<void(std::int64_t)>& progress);

}  // namespace ramify
