// The label graph of ELIAS (Gupta et al. 2022): weighted edges from clusters to labels.
//
// The score of label l on sample x is its best path,  s_l = max_c (log p_c(x) + log a_cl),  over the clusters c in the
// beam.
#pragma once

#include <cstdint>

namespace ramify {

struct GraphView {
    std::int64_t n_clusters = 0, n_labels = 0;
    const std::int64_t* indptr = nullptr;  // (n_clusters + 1) edges of each cluster
    const std::int32_t* labels = nullptr;  // (edges) target of each edge, ascending within a cluster
    const float* scores = nullptr;         // (edges) log weights log a_cl, at most 0
};

}  // namespace ramify
