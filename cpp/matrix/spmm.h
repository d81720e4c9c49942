// Products with a sparse matrix on the left. Each row of the result is computed by one thread, in the order of the
// entries of the left row: the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

// a (m × p) · b (p × q), both sparse; the rows of the result are sorted, and of unit norm if asked. Sums that cancel to
// 0 stay stored entries.
template <class Index>
CsrRows spmm(const CsrView<Index>& a, const CsrView<Index>& b, bool unit_rows, int threads);

// out (m, q) = a (m × p) · b (p, q), b dense.
template <class Index>
void spmm_dense(const CsrView<Index>& a, const float* b, std::int64_t q, int threads, float* out);

}  // namespace ramify
