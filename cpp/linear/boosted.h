// Scores of rows by boosted trees.
#pragma once

#include <cstdint>

#include "linear/boosted_kernel.h"

namespace ramify {

// scores[i]: the sum of the leaves that row i reaches, one for each tree; feature f of row i is columns[f * n + i].
void score_boosted(const BoostedView& trees, const float* columns, std::int64_t n, std::int64_t n_features, int threads,
                   float* scores);

}  // namespace ramify
