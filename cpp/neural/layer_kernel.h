// Kernels of a transformer layer: dense products, softmax, layer norm. Compiled for several instruction sets
// (core/isa.h) with fused multiply-adds where the processor has them, so that instruction sets differ in the last bits.
#pragma once

#include <cstdint>

namespace ramify {

// What happens to a · W + bias: it replaces c, is added to c, or goes through GELU.
enum class Output { set, add, gelu };

// c (rows, n_out) = a (rows, n_in) · W + bias, where W (n_in, n_out) is packed: panels of `panel_width` columns, each
// row by row, padded with zeros. A row of c does not depend on the rows beside it, to the last bit.
struct Product {
    const float* a = nullptr;
    std::int64_t a_stride = 0, rows = 0;
    const float* packed = nullptr;
    std::int64_t n_in = 0, n_out = 0;
    const float* bias = nullptr;  // (n_out), or none
    float* c = nullptr;
    std::int64_t c_stride = 0;
    Output output = Output::set;
};

struct LayerKernels {
    std::int64_t panel_width;  // a multiple of 8

    void (*multiply)(const Product& product);

    // Softmax over the first n entries of each row (stride), zeros behind; stride is a multiple of panel_width.
    void (*softmax)(float* rows, std::int64_t n_rows, std::int64_t n, std::int64_t stride);

    // Normalizes each row (dim) to mean 0 and variance 1, then multiplies by gain and adds bias.
    void (*layer_norm)(float* rows, std::int64_t n_rows, std::int64_t dim, const float* gain, const float* bias,
                       float epsilon);
};

inline std::int64_t packed_size(std::int64_t n_in, std::int64_t n_out, std::int64_t panel_width) {
    return (n_out + panel_width - 1) / panel_width * panel_width * n_in;
}

}  // namespace ramify
