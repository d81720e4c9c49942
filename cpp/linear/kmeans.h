// k-means of sparse rows (Lloyd's algorithm), spherical or not, balanced or not. The same result for any number of
// threads.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/members.h"

namespace ramify {

// Cluster (0 to n_clusters - 1) of each row. Balanced: no cluster gets more than ceil(rows / n_clusters) rows. A row of
// zeros goes to the smallest cluster. Clusters may stay empty.
template <class Index>
std::vector<std::int32_t> kmeans(const CsrView<Index>& rows, std::int64_t n_clusters, bool balanced,
                                 const KMeansOptions& options, int threads);

}  // namespace ramify
