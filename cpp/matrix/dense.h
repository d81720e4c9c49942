// Dense rows: products of every row of one matrix with every row of another, and scaling to unit norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ramify {

// out (n, rows) = vectors (n, dim) · tableᵀ, table (rows, dim). The products of a vector do not depend on the other
// vectors.
void dense_products(const float* table, std::int64_t rows, const float* vectors, std::int64_t n, std::int64_t dim,
                    float* out, int threads);

// out (n, dim): the rows scaled to unit Euclidean norm; a row of zeros stays as it is.
void unit_rows(const float* vectors, std::int64_t n, std::int64_t dim, float* out, int threads);

inline float max_magnitude(const float* vector, std::int64_t dim) {
    float largest = 0;
    for (std::int64_t j = 0; j < dim; ++j) largest = std::max(largest, std::abs(vector[j]));
    return largest;
}

}  // namespace ramify
