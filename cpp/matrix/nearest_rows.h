// Nearest rows of a sparse matrix by inner product, exactly, through an inverted index.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

// An inverted index: for each column the samples with a value in it. Samples ascend within a column.
struct PostingsView {
    std::int64_t n_samples = 0;
    std::int64_t n_columns = 0;
    const std::int64_t* indptr = nullptr;   // (n_columns + 1)
    const std::int32_t* samples = nullptr;  // below n_samples
    const float* values = nullptr;
};

// The k samples (rows, k) with the largest inner product above 0 with each query, best first and equal ones by id,
// padded with -1 and -inf. Products are summed in the order of the columns. Queries have n_columns columns.
template <class Index>
void nearest_rows(const PostingsView& postings, const CsrView<Index>& queries, std::int64_t k, int threads,
                  std::int32_t* ids, float* products);

// Inner products (n, k) of each query with k rows of a matrix of its own, ids (n, k); -inf where the id is -1.
template <class Index>
void selected_products(const CsrView<Index>& queries, const CsrView<Index>& rows, const std::int32_t* ids,
                       std::int64_t k, int threads, float* products);

}  // namespace ramify
