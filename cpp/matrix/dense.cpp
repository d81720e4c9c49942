#include "matrix/dense.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/vector_ops.h"

namespace ramify {

void dense_products(const float* table, std::int64_t rows, const float* vectors, std::int64_t n, std::int64_t dim,
                    float* out, int threads) {
    constexpr std::int64_t vectors_at_once = 8;
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i)
            dots(vectors + i * dim, dim, rows, [&](std::int64_t row) { return table + row * dim; }, out + i * rows);
    });
}

void unit_rows(const float* vectors, std::int64_t n, std::int64_t dim, float* out, int threads) {
    constexpr std::int64_t vectors_at_once = 256;
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i) {
            const float* vector = vectors + i * dim;
            float* unit = out + i * dim;
            const float largest = max_magnitude(vector, dim), scale = largest > 0 ? largest : 1.0f;
            for (std::int64_t j = 0; j < dim; ++j)
                unit[j] = vector[j] / scale;  // squares of small numbers would underflow
            const float norm = std::sqrt(hot().dot(unit, unit, dim)), divisor = norm > 0 ? norm : 1.0f;
            for (std::int64_t j = 0; j < dim; ++j) unit[j] /= divisor;
        }
    });
}

}  // namespace ramify
