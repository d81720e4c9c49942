// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "ann/code_kernel.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ramify::RAMIFY_VARIANT {

namespace {

#if defined(__AVX2__)
// maddubs multiplies unsigned by signed bytes, so a · b is computed as |a| · (sign(a) b). Two products of at most 127²
// fit 16 bits. If no entry of a is negative, as behind a relu, the sign step is skipped.
template <bool has_signs>
inline __m256i add_products(__m256i sums, __m256i size, __m256i a, const std::int8_t* b) {
    __m256i other = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    if (has_signs) other = _mm256_sign_epi8(other, a);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(size, other), _mm256_set1_epi16(1)));
}

template <bool has_signs>
void dots_of(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t n_bytes,
             std::int32_t* products) {
    for (std::int64_t i = 0; i < n; i += 4) {
        // A last group of fewer than four repeats the last row, since reading on would leave the array.
        const std::int8_t* at[4];
        for (int k = 0; k < 4; ++k) at[k] = codes + (i + k < n ? i + k : n - 1) * n_bytes;
        __m256i sums[4] = {};
        for (std::int64_t j = 0; j < n_bytes; j += 32) {
            const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(code + j)), size = _mm256_abs_epi8(a);
            for (int k = 0; k < 4; ++k) sums[k] = add_products<has_signs>(sums[k], size, a, at[k] + j);
        }
        const __m256i quarters =
            _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
        std::int32_t four[4];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four),
                         _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1)));
        for (int k = 0; k < 4 && i + k < n; ++k) products[i + k] = four[k];
    }
}

void dots(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t n_bytes,
          std::int32_t* products) {
    int signs = 0;
    for (std::int64_t j = 0; j < n_bytes; ++j) signs |= code[j] < 0;
    (signs ? dots_of<true> : dots_of<false>)(code, codes, n, n_bytes, products);
}
#else
void dots(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t n_bytes,
          std::int32_t* products) {
    for (std::int64_t i = 0; i < n; ++i) {
        std::int32_t sum = 0;
        for (std::int64_t j = 0; j < n_bytes; ++j) sum += code[j] * codes[i * n_bytes + j];
        products[i] = sum;
    }
}
#endif

}  // namespace

extern const DotCodes dot_codes;
const DotCodes dot_codes = dots;

}  // namespace ramify::RAMIFY_VARIANT
