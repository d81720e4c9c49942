// Products with a sparse matrix on the left. Each row of the result is made by one thread, in the order of the left row's
// entries: the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

// a (m × p) times b (p × q), both sparse; the rows of the result are sorted, and of length 1 if asked. Sums that come
// out as nought stay entries.
template <class Index>
CsrRows spmm(const CsrView<Index>& a, const CsrView<Index>& b, bool unit_rows, int threads);

// a (m × p) times a dense b (p, q) into out (m, q).
template <class Index>
void spmm_dense(const CsrView<Index>& a, const float* b, std::int64_t q, int threads, float* out);

}  // namespace ramify
