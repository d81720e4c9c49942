// Compiled once for each instruction set (CMakeLists.txt), each time into another namespace. Nothing here may use a
// function that other files could share (no standard containers): the linker would keep a single copy of it, perhaps
// the one for a machine that this is not.
#include "core/hot_kernels.h"
#include "core/lanes.h"

#include <string.h>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ramify::RAMIFY_VARIANT {

SolverCounts solve_labels(const SolverRows&, const SolverLabels&, const SolverOptions&, const SolverScratch&,
                          const WeightSink&);  // ovr_kernel.cpp
bool score_pieces(const PackedView&, const ActivePieces&, const std::int32_t*, const float*, std::int64_t, Hit*,
                  float*);  // beam_kernel.cpp
bool score_visits(const PieceRows&, const QueryFeatures&, const Visit*, std::int64_t, const VisitScratch&);  // beam_kernel.cpp
extern const LayerKernels layer_kernels;  // layer_kernel.cpp

namespace {

// One bit a byte for 64 bytes, which are lowered on the way.
struct Masks {
    std::uint64_t word, wide;
};

#if defined(__AVX2__)
struct Bytes {
    using Register = __m256i;
    static constexpr int width = 32;
    static Register load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Register*>(p)); }
    static void store(std::uint8_t* p, Register x) { _mm256_storeu_si256(reinterpret_cast<Register*>(p), x); }
    static Register all(char c) { return _mm256_set1_epi8(c); }
    static Register over(Register a, Register b) { return _mm256_cmpgt_epi8(a, b); }
    static Register same(Register a, Register b) { return _mm256_cmpeq_epi8(a, b); }
    static Register both(Register a, Register b) { return _mm256_and_si256(a, b); }
    static Register either(Register a, Register b) { return _mm256_or_si256(a, b); }
    static std::uint64_t bits(Register x) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(x)); }
};
#elif defined(__SSE2__)
struct Bytes {
    using Register = __m128i;
    static constexpr int width = 16;
    static Register load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const Register*>(p)); }
    static void store(std::uint8_t* p, Register x) { _mm_storeu_si128(reinterpret_cast<Register*>(p), x); }
    static Register all(char c) { return _mm_set1_epi8(c); }
    static Register over(Register a, Register b) { return _mm_cmpgt_epi8(a, b); }
    static Register same(Register a, Register b) { return _mm_cmpeq_epi8(a, b); }
    static Register both(Register a, Register b) { return _mm_and_si128(a, b); }
    static Register either(Register a, Register b) { return _mm_or_si128(a, b); }
    static std::uint64_t bits(Register x) { return static_cast<std::uint32_t>(_mm_movemask_epi8(x)); }
};
#endif

#if defined(__AVX2__) || defined(__SSE2__)
// Bytes compare as signed numbers: those over 127 are never between two characters.
inline Bytes::Register between(Bytes::Register x, char low, char high) {
    return Bytes::both(Bytes::over(x, Bytes::all(static_cast<char>(low - 1))), Bytes::over(Bytes::all(static_cast<char>(high + 1)), x));
}

inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    Masks masks{0, 0};
    for (int i = 0; i < 64; i += Bytes::width) {
        const Bytes::Register x = Bytes::load(in + i);
        const Bytes::Register folded = Bytes::either(x, Bytes::both(between(x, 'A', 'Z'), Bytes::all(0x20)));
        const Bytes::Register letter_or_digit = Bytes::either(between(folded, 'a', 'z'), between(x, '0', '9'));
        Bytes::store(out + i, lowercase ? folded : x);
        masks.word |= Bytes::bits(Bytes::either(letter_or_digit, Bytes::same(x, Bytes::all('_')))) << i;
        masks.wide |= Bytes::bits(x) << i;
    }
    return masks;
}
#else
inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    Masks all{0, 0};
    for (int i = 0; i < 64; ++i) {
        const std::uint8_t c = in[i];
        const bool upper = c >= 'A' && c <= 'Z';
        const std::uint8_t folded = static_cast<std::uint8_t>(c | (upper ? 0x20 : 0));
        const bool word = (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '_';
        out[i] = lowercase ? folded : c;
        all.word |= static_cast<std::uint64_t>(word) << i;
        all.wide |= static_cast<std::uint64_t>(c >> 7) << i;
    }
    return all;
}
#endif

// Up to 64 code points as bytes, 0x80 for whatever is not ASCII, zeros behind the last one.
template <class Unit>
inline void narrow_64(const Unit* in, std::int64_t n, std::uint8_t* out) {
    if (n < 64) memset(out, 0, 64);
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] < 0x80 ? in[i] : 0x80);
}

void scan_text(const void* text, std::int64_t n, int width, bool lowercase, std::uint8_t* lowered,
               std::uint64_t* word, std::uint64_t* wide) {
    std::uint8_t block[64];
    for (std::int64_t start = 0; start <= n; start += 64) {
        const std::int64_t count = n - start < 64 ? n - start : 64;
        const std::uint8_t* bytes = block;
        if (width == 1) {
            const std::uint8_t* in = static_cast<const std::uint8_t*>(text) + start;
            if (count == 64) {
                bytes = in;
            } else {
                memset(block, 0, 64);
                if (count > 0) memcpy(block, in, static_cast<unsigned long>(count));
            }
        } else if (width == 2) {
            narrow_64(static_cast<const std::uint16_t*>(text) + start, count, block);
        } else {
            narrow_64(static_cast<const std::uint32_t*>(text) + start, count, block);
        }
        const Masks m = scan_64(bytes, lowercase, lowered + start);
        word[start / 64] = m.word;
        wide[start / 64] = m.wide;
    }
}

// Few true labels against many predicted ones: each truth is compared with every prediction, which vectorises.
void mark_hits(const std::int32_t* ids, std::int64_t k, const std::int32_t* truth, std::int64_t n_truth,
               std::uint8_t* hit) {
    memset(hit, 0, static_cast<unsigned long>(k));
    for (std::int64_t t = 0; t < n_truth; ++t) {
        const std::int32_t label = truth[t];
        for (std::int64_t j = 0; j < k; ++j) hit[j] = static_cast<std::uint8_t>(hit[j] | (ids[j] == label));
    }
}

void add_scaled(float scale, const float* __restrict values, std::int64_t n, float* __restrict sums) {
    for (std::int64_t i = 0; i < n; ++i) sums[i] += scale * values[i];
}

void add_scaled_4(const float* scales, const float* const* values, std::int64_t n, float* __restrict sums) {
    const float *a = values[0], *b = values[1], *c = values[2], *d = values[3];
    const float sa = scales[0], sb = scales[1], sc = scales[2], sd = scales[3];
    for (std::int64_t i = 0; i < n; ++i) sums[i] = (((sums[i] + sa * a[i]) + sb * b[i]) + sc * c[i]) + sd * d[i];
}

void adam(const AdamStep& step, const float* __restrict gradients, std::int64_t n, bool decays, float* __restrict values,
          float* __restrict first, float* __restrict second) {
    const float keep1 = step.beta1, new1 = 1.0f - step.beta1, keep2 = step.beta2, new2 = 1.0f - step.beta2;
    const float decay = decays ? step.decay : 0.0f, rate = step.rate, epsilon = step.epsilon;
    const float scale1 = step.first_scale, scale2 = step.second_scale;
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradients[i], m = keep1 * first[i] + new1 * g, v = keep2 * second[i] + new2 * g * g;
        const float value = values[i] - decay * values[i];
        first[i] = m;
        second[i] = v;
        values[i] = value - rate * (m * scale1) / (__builtin_sqrtf(v * scale2) + epsilon);
    }
}

// Sixteen partial sums of products added up in a fixed order: the same bits with every instruction set, and whether one
// product is computed or several side by side.
inline float sum_of(F8 low, F8 high) {
    using F4 = float __attribute__((vector_size(16)));
    const F8 eight = low + high;
    F4 halves[2];
    memcpy(halves, &eight, sizeof eight);
    const F4 four = halves[0] + halves[1];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Products of eight numbers, those before `first` left out.
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
    if (i < n) {  // the last sixteen, some of which were counted
        const std::int64_t at = n - 16, counted = i - at;
        const F8 a_low = load8(a + at), a_high = load8(a + at + 8);
        for (int k = 0; k < count; ++k) {
            low[k] += last_products(a_low, load8(b[k] + at), counted);
            high[k] += last_products(a_high, load8(b[k] + at + 8), counted - 8);
        }
    }
    for (int k = 0; k < count; ++k) products[k] = sum_of(low[k], high[k]);
}

float dot(const float* a, const float* b, std::int64_t n) {
    float product;
    dots_of<1>(a, &b, n, &product);
    return product;
}

void dot_4(const float* a, const float* const* b, std::int64_t n, float* products) { dots_of<4>(a, b, n, products); }

#if defined(__AVX2__)
// Bytes multiply only where one of them has no sign: |a| · (b with the sign of a). Two products of at most 127² fit 16 bits.
// Where no a has a sign, as behind a relu, b needs no other.
template <bool has_signs>
inline __m256i add_products(__m256i sums, __m256i size, __m256i a, const std::int8_t* b) {
    __m256i other = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    if (has_signs) other = _mm256_sign_epi8(other, a);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(size, other), _mm256_set1_epi16(1)));
}

template <bool has_signs>
void dot_codes_of(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t width, std::int32_t* products) {
    for (std::int64_t i = 0; i < n; i += 4) {
        // The last ones are compared again where there are not four: reading on would leave the codes.
        const std::int8_t* at[4];
        for (int k = 0; k < 4; ++k) at[k] = codes + (i + k < n ? i + k : n - 1) * width;
        __m256i sums[4] = {};
        for (std::int64_t j = 0; j < width; j += 32) {
            const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(code + j)), size = _mm256_abs_epi8(a);
            for (int k = 0; k < 4; ++k) sums[k] = add_products<has_signs>(sums[k], size, a, at[k] + j);
        }
        const __m256i quarters = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
        std::int32_t four[4];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four), _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1)));
        for (int k = 0; k < 4 && i + k < n; ++k) products[i + k] = four[k];
    }
}

void dot_codes(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t width, std::int32_t* products) {
    int signs = 0;
    for (std::int64_t j = 0; j < width; ++j) signs |= code[j] < 0;
    (signs ? dot_codes_of<true> : dot_codes_of<false>)(code, codes, n, width, products);
}
#else
void dot_codes(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t width, std::int32_t* products) {
    for (std::int64_t i = 0; i < n; ++i) {
        std::int32_t sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += code[j] * codes[i * width + j];
        products[i] = sum;
    }
}
#endif

}  // namespace

const HotKernels& kernels() {
    static const HotKernels table{scan_text, mark_hits,    add_scaled,   add_scaled_4, adam,         dot,
                                  dot_4,     dot_codes,    solve_labels, score_pieces, score_visits, layer_kernels};
    return table;
}

}  // namespace ramify::RAMIFY_VARIANT
