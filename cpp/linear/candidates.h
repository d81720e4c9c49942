// Linear classifiers over sparse and dense features, evaluated on candidate lists.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

struct LinearClassifiers {
    const std::int64_t* indptr = nullptr;  // (rows + 1) sparse weights of each
    const std::int32_t* features = nullptr;
    const float* weights = nullptr;
    const float* dense = nullptr;  // (rows, n_dense)
    std::int64_t n_dense = 0;
    const float* bias = nullptr;  // (rows)
};

// out (n, width) = margin of classifier candidates[i, j] on query i; 0 where the candidate is -1.
template <class Index>
void score_candidates(const LinearClassifiers& classifiers, const CsrView<Index>& queries, const float* dense,
                      const std::int32_t* candidates, std::int64_t width, float* out, int threads);

}  // namespace ramify
