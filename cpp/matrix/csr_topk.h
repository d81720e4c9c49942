// The best entries of each row of a sparse matrix.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

// The k largest entries of each row: ids (rows, k), padded with -1, and scores (rows, k), padded with -inf.
template <class Index>
void csr_topk(const CsrView<Index>& matrix, std::int64_t k, int threads, std::int32_t* ids, float* scores);

// The n entries of each row with the largest magnitude, equal ones by column; columns stay ascending.
template <class Index>
CsrRows largest_entries(const CsrView<Index>& matrix, std::int64_t n, int threads);

}  // namespace ramify
