// Clustering of sparse vectors: balanced halves, again and again, or k-means proper. The same result for any number of
// threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/csr.h"

namespace ramify {

struct KmeansOptions {
    bool spherical = true;   // centres of length 1; else means
    int max_iterations = 20;
    double tolerance = 0.0;  // stop when no more than this share of the members moves
    std::uint64_t seed = 0;
};

// Splits n rows into 2^depth parts whose sizes differ by at most 1, by 2-means that always cut in the middle. Returns the
// rows in the order of the parts; part borders follow from halving (n / 2 on the left, rounded down).
template <class Index>
std::vector<std::int32_t> balanced_halves(const CsrView<Index>& rows, int depth, const KmeansOptions& options, int threads);

// Cluster (0 to n_clusters - 1) of each row. Balanced: no cluster gets more than ceil(rows / n_clusters). A row of zeros
// goes where the fewest are. Clusters may stay empty.
template <class Index>
std::vector<std::int32_t> kmeans(const CsrView<Index>& rows, std::int64_t n_clusters, bool balanced,
                                 const KmeansOptions& options, int threads);

}  // namespace ramify
