// Balanced hierarchical 2-means (Prabhu et al. 2018, Parabel). The same result for any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/members.h"

namespace ramify {

// Splits n rows into 2^depth parts whose sizes differ by at most 1, by 2-means with clusters of equal size. Returns the
// rows in the order of the parts; a part of n rows is split into n / 2 (rounded down) and the rest.
template <class Index>
std::vector<std::int32_t> balanced_2means(const CsrView<Index>& rows, int depth, const KMeansOptions& options,
                                          int threads);

}  // namespace ramify
