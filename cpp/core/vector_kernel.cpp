// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "core/vector_kernel.h"

#include <string.h>

#include "core/lanes.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

void add_one(float scale, const float* __restrict values, std::int64_t n, float* __restrict sums) {
    for (std::int64_t i = 0; i < n; ++i) sums[i] += scale * values[i];
}

void add_four(const float* scales, const float* const* values, std::int64_t n, float* __restrict sums) {
    const float *a = values[0], *b = values[1], *c = values[2], *d = values[3];
    const float sa = scales[0], sb = scales[1], sc = scales[2], sd = scales[3];
    for (std::int64_t i = 0; i < n; ++i) sums[i] = (((sums[i] + sa * a[i]) + sb * b[i]) + sc * c[i]) + sd * d[i];
}

// Adds sixteen partial sums in a fixed order: the same bits with every instruction set, and whether one product is
// computed or several side by side.
inline float sum_of(F8 low, F8 high) {
    using F4 = float __attribute__((vector_size(16)));
    const F8 eight = low + high;
    F4 halves[2];
    memcpy(halves, &eight, sizeof eight);
    const F4 four = halves[0] + halves[1];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Products of eight pairs, those before `first` masked out.
inline F8 last_products(F8 a, F8 b, std::int64_t first) {
    static constexpr std::int32_t taken[16] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
    const std::int64_t at = first < 0 ? 8 : first > 8 ? 0 : 8 - first;
    I8 mask, bits;
    memcpy(&mask, taken + at, sizeof mask);
    const F8 products = a * b;
    memcpy(&bits, &products, sizeof bits);
    bits &= mask;
    F8 left;
    memcpy(&left, &bits, sizeof left);
    return left;
}

template <int count>
inline void dots_of(const float* a, const float* const* b, std::int64_t n, float* products) {
    if (n < 16) {
        for (int k = 0; k < count; ++k) {
            products[k] = 0;
            for (std::int64_t i = 0; i < n; ++i) products[k] += a[i] * b[k][i];
        }
        return;
    }
    F8 low[count] = {}, high[count] = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const F8 a_low = load8(a + i), a_high = load8(a + i + 8);
        for (int k = 0; k < count; ++k) {
            low[k] += a_low * load8(b[k] + i);
            high[k] += a_high * load8(b[k] + i + 8);
        }
    }
    if (i < n) {  // the last sixteen, some of which are counted already
        const std::int64_t at = n - 16, counted = i - at;
        const F8 a_low = load8(a + at), a_high = load8(a + at + 8);
        for (int k = 0; k < count; ++k) {
            low[k] += last_products(a_low, load8(b[k] + at), counted);
            high[k] += last_products(a_high, load8(b[k] + at + 8), counted - 8);
        }
    }
    for (int k = 0; k < count; ++k) products[k] = sum_of(low[k], high[k]);
}

float dot_one(const float* a, const float* b, std::int64_t n) {
    float product;
    dots_of<1>(a, &b, n, &product);
    return product;
}

void dot_four(const float* a, const float* const* b, std::int64_t n, float* products) { dots_of<4>(a, b, n, products); }

}  // namespace

extern const AddScaled add_scaled;
const AddScaled add_scaled = add_one;
extern const AddScaled4 add_scaled_4;
const AddScaled4 add_scaled_4 = add_four;
extern const Dot dot;
const Dot dot = dot_one;
extern const Dot4 dot_4;
const Dot4 dot_4 = dot_four;

}  // namespace ramify::RAMIFY_VARIANT
