// Scalar quantization: vectors as int8 codes, each with a scale of its own.
#pragma once

#include <cstdint>

namespace ramify {

// Bytes of the code of a vector: dim, rounded up for the kernels.
inline std::int64_t code_size(std::int64_t dim) { return (dim + 31) / 32 * 32; }

// vector ≈ scale · code
struct Codes {
    const std::int8_t* codes = nullptr;  // (n, code_size(dim)) from -127 to 127, padded with zeros
    const float* scales = nullptr;       // (n)
};

// Writes the code of one vector (dim) and returns its scale, max |x| / 127.
float quantize_one(const float* vector, std::int64_t dim, std::int8_t* code);

// Codes and scales of vectors (n, dim).
void quantize(const float* vectors, std::int64_t n, std::int64_t dim, std::int8_t* codes, float* scales, int threads);

}  // namespace ramify
