// Loops of a transformer's layers: dense products, softmax, layer norms. Compiled for several instruction sets (isa.h); here
// multiplications and additions are fused where the processor can, so that sets differ in the last bits.
#pragma once

#include <cstdint>

namespace ramify {

// What becomes of a product with its offset.
enum class Finish { set, add, gelu };

// c (rows, n_out) = a (rows, n_in) · W + offset, where W (n_in, n_out) is packed: panels of `panel_width` columns, each row by
// row, zeros behind the last column. A row of c does not depend on the rows beside it, to the last bit.
struct Product {
    const float* a = nullptr;
    std::int64_t a_stride = 0, rows = 0;
    const float* packed = nullptr;
    std::int64_t n_in = 0, n_out = 0;
    const float* offset = nullptr;  // (n_out), or none
    float* c = nullptr;
    std::int64_t c_stride = 0;
    Finish finish = Finish::set;
};

struct LayerKernels {
    std::int64_t panel_width;  // a multiple of 8

    void (*multiply)(const Product& product);

    // Each row (n of `stride`) as shares that add up to 1, and zeros behind; stride is a multiple of panel_width.
    void (*softmax)(float* rows, std::int64_t n_rows, std::int64_t n, std::int64_t stride);

    // Each row (width) with mean 0 and variance 1, then times gain plus offset.
    void (*layer_norm)(float* rows, std::int64_t n_rows, std::int64_t width, const float* gain, const float* offset, float epsilon);
};

inline std::int64_t packed_size(std::int64_t n_in, std::int64_t n_out, std::int64_t panel_width) {
    return (n_out + panel_width - 1) / panel_width * panel_width * n_in;
}

}  // namespace ramify
