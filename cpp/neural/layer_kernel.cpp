// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "neural/layer_kernel.h"

#include <string.h>

#include "core/vector_exp.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#else
constexpr int lanes = 8;
#endif
using Floats = float __attribute__((vector_size(lanes * 4)));
using Ints = std::int32_t __attribute__((vector_size(lanes * 4)));

constexpr int panel = 2 * lanes;
constexpr int tile_rows = 6;  // two registers a row and those of the operands: all registers are in use
constexpr std::int64_t block_rows = 96, block_depth = 384;  // of `a`, which stay in cache for all panels

inline Floats all(float x) { return x - Floats{}; }  // x - 0 is x for every x; x + 0 is not
inline Floats load(const float* p) {
    Floats x;
    memcpy(&x, p, sizeof x);
    return x;
}
inline void store(float* p, Floats x) { memcpy(p, &x, sizeof x); }
inline Floats choose(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }

inline float sum(Floats x) {
    float parts[lanes];
    store(parts, x);
    for (int width = lanes / 2; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) parts[j] += parts[j + width];
    return parts[0];
}

// e^x for x <= 88, to about the last bit; x below -87 counts as -87.
inline Floats exponential(Floats x) {
    x = choose(x < all(-87.0f), all(-87.0f), x);
    const Floats shift = all(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer
    const Floats n = (x * 1.44269504f + shift) - shift;
    return exp_by_parts(x, __builtin_convertvector(n, Ints), n, [](Floats r) {
        Floats p = all(1.9875691500e-4f);
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        return p * (r * r) + r + 1.0f;
    });
}

// GELU x Φ(x), with Φ by Abramowitz and Stegun 7.1.26 to 1e-7, from its small tail, so that nothing cancels.
inline Floats gelu(Floats x) {
    const Floats z = choose(x < all(0), -x, x) * 0.70710678f;
    const Floats t = 1.0f / (z * 0.3275911f + 1.0f);
    Floats p = all(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats tail = p * t * exponential(-z * z) * 0.5f;
    return x * choose(x < all(0), tail, 1.0f - tail);
}

// One tile of the result: `Rows` rows of a panel, summed over [first, end) of n_in.
template <int Rows>
void tile(const Product& product, std::int64_t first_row, std::int64_t first_column, std::int64_t first,
          std::int64_t end) {
    const float* a = product.a + first_row * product.a_stride;
    const float* w = product.packed + first_column * product.n_in + first * panel;
    const std::int64_t stride = product.a_stride;
    const bool adds = first > 0 || product.output == Output::add, last = end == product.n_in;
    Floats left[Rows], right[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) left[i] = right[i] = Floats{};
    for (std::int64_t k = first; k < end; ++k, w += panel) {
        const Floats w0 = load(w), w1 = load(w + lanes);
        __builtin_prefetch(w + 16 * panel);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) {
            const Floats x = all(a[i * stride + k]);
            left[i] += x * w0;
            right[i] += x * w1;
        }
    }
    const std::int64_t columns = product.n_out - first_column < panel ? product.n_out - first_column : panel;
    const auto bytes = static_cast<unsigned long>(columns) * sizeof(float);
    float bias[panel] = {}, edge[panel] = {};
    if (product.bias != nullptr && last) memcpy(bias, product.bias + first_column, bytes);
    const Floats bias0 = load(bias), bias1 = load(bias + lanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
        float* c = product.c + (first_row + i) * product.c_stride + first_column;
        float* out = c;
        if (columns < panel) {  // do not read or write behind the last column
            memcpy(edge, c, bytes);
            out = edge;
        }
        Floats x = left[i] + bias0, y = right[i] + bias1;
        if (adds) {
            x += load(out);
            y += load(out + lanes);
        }
        if (last && product.output == Output::gelu) {
            x = gelu(x);
            y = gelu(y);
        }
        store(out, x);
        store(out + lanes, y);
        if (columns < panel) memcpy(c, edge, bytes);
    }
}

void multiply(const Product& product) {
    for (std::int64_t block = 0; block < product.rows; block += block_rows) {
        const std::int64_t end_row = product.rows - block < block_rows ? product.rows : block + block_rows;
        for (std::int64_t first = 0; first < product.n_in; first += block_depth) {
            const std::int64_t end = product.n_in - first < block_depth ? product.n_in : first + block_depth;
            for (std::int64_t column = 0; column < product.n_out; column += panel) {
                std::int64_t row = block;
                for (; row + tile_rows <= end_row; row += tile_rows) tile<tile_rows>(product, row, column, first, end);
                for (; row + 2 <= end_row; row += 2) tile<2>(product, row, column, first, end);
                if (row < end_row) tile<1>(product, row, column, first, end);
            }
        }
    }
}

void softmax(float* rows, std::int64_t n_rows, std::int64_t n, std::int64_t stride) {
    for (std::int64_t i = 0; i < n_rows; ++i) {
        float* row = rows + i * stride;
        for (std::int64_t j = n; j < stride; ++j) row[j] = -1e30f;
        Floats best = load(row);
        for (std::int64_t j = lanes; j < stride; j += lanes) {
            const Floats x = load(row + j);
            best = choose(x > best, x, best);
        }
        float parts[lanes], largest = best[0];
        store(parts, best);
        for (float part : parts) largest = part > largest ? part : largest;
        Floats total{};
        for (std::int64_t j = 0; j < stride; j += lanes) {
            const Floats x = exponential(load(row + j) - largest);
            total += x;
            store(row + j, x);
        }
        const Floats scale = all(1.0f / sum(total));
        for (std::int64_t j = 0; j < stride; j += lanes) store(row + j, load(row + j) * scale);
    }
}

void layer_norm(float* rows, std::int64_t n_rows, std::int64_t dim, const float* gain, const float* bias,
                float epsilon) {
    const std::int64_t whole = dim / lanes * lanes;
    for (std::int64_t i = 0; i < n_rows; ++i) {
        float* row = rows + i * dim;
        Floats sums{}, squares{};
        for (std::int64_t j = 0; j < whole; j += lanes) sums += load(row + j);
        float total = sum(sums);
        for (std::int64_t j = whole; j < dim; ++j) total += row[j];
        const float mean = total / static_cast<float>(dim);
        for (std::int64_t j = 0; j < whole; j += lanes) {
            const Floats x = load(row + j) - mean;
            squares += x * x;
        }
        float spread = sum(squares);
        for (std::int64_t j = whole; j < dim; ++j) spread += (row[j] - mean) * (row[j] - mean);
        const float scale = 1.0f / __builtin_sqrtf(spread / static_cast<float>(dim) + epsilon);
        for (std::int64_t j = 0; j < whole; j += lanes)
            store(row + j, (load(row + j) - mean) * scale * load(gain + j) + load(bias + j));
        for (std::int64_t j = whole; j < dim; ++j) row[j] = (row[j] - mean) * scale * gain[j] + bias[j];
    }
}

}  // namespace

extern const LayerKernels layer_kernels;
const LayerKernels layer_kernels{panel, multiply, softmax, layer_norm};

}  // namespace ramify::RAMIFY_VARIANT
