#include "ann/quantize.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "matrix/dense.h"

namespace ramify {

float quantize_one(const float* vector, std::int64_t dim, std::int8_t* code) {
    const float largest = max_magnitude(vector, dim);
    const float scale = largest / 127;
    std::fill(code, code + code_size(dim), std::int8_t{0});
    // A scale that underflows to 0 leaves the code at 0.
    for (std::int64_t j = 0; scale > 0 && j < dim; ++j)
        code[j] = static_cast<std::int8_t>(std::lrint(vector[j] / largest * 127));
    return scale;
}

void quantize(const float* vectors, std::int64_t n, std::int64_t dim, std::int8_t* codes, float* scales, int threads) {
    constexpr std::int64_t vectors_at_once = 256;
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i)
            scales[i] = quantize_one(vectors + i * dim, dim, codes + i * code_size(dim));
    });
}

}  // namespace ramify
