// Rows of a packed level (packed.h), for kernels that are compiled once for each instruction set (core/isa.h).
// Everything here has internal linkage, so that no variant gets another's code.
#pragma once

#include <string.h>

#include <cstdint>

#include "core/avx512.h"
#include "linear/beam_kernel.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

template <class T>
inline T read(const std::uint8_t* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

#if defined(__AVX512F__)
// The sums of 16 n columns stay in registers: through memory, each row would wait for the stores of the one before.
template <int n>
void add_rows_of(const Hit* hits, std::int64_t n_hits, std::int64_t n_bytes, int mantissa_bits, float* sums) {
    const __m512i one = _mm512_set1_epi32(127 << 23), low = _mm512_set1_epi32(127), high = _mm512_set1_epi32(128);
    const __m128i shift = _mm_cvtsi32_si128(23 - mantissa_bits);
    const std::uint32_t last_mask = n_bytes % 2 == 0 ? 0xffff : 0xff;  // an odd mask is followed by codes
    __m512 sum[n];
    for (int g = 0; g < n; ++g) sum[g] = _mm512_loadu_ps(sums + 16 * g);
    for (std::int64_t h = 0; h < n_hits; ++h) {
        const std::uint8_t* mask = hits[h].row;
        const std::uint8_t* codes = mask + n_bytes;
        const __m512 by = _mm512_set1_ps(hits[h].value);
        for (int g = 0; g < n; ++g) {
            const std::uint32_t bits = read<std::uint16_t>(mask + 2 * g) & (g + 1 == n ? last_mask : 0xffffu);
            const auto lanes = static_cast<__mmask16>(bits);
            const __m512i code = _mm512_maskz_expand_epi32(
                lanes, _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
            const __m512i magnitude = _mm512_sll_epi32(_mm512_and_si512(code, low), shift);
            const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, high), 24);
            const __m512 weight = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_or_si512(magnitude, sign), one));
            sum[g] = _mm512_mask_add_ps(sum[g], lanes, sum[g], _mm512_mul_ps(by, weight));
            codes += __builtin_popcount(bits);
        }
    }
    for (int g = 0; g < n; ++g) _mm512_storeu_ps(sums + 16 * g, sum[g]);
}
#endif

// sums[column] += value * weight for rows of a chunk with the given width; sums has chunk_width floats.
inline void add_rows(const Hit* hits, std::int64_t n_hits, std::int64_t width, int mantissa_bits, float* sums) {
    const std::int64_t n_bytes = mask_bytes(width);
#if defined(__AVX512F__)
    using Add = void (*)(const Hit*, std::int64_t, std::int64_t, int, float*);
    static constexpr Add by_width[] = {add_rows_of<1>,  add_rows_of<2>,  add_rows_of<3>,  add_rows_of<4>,
                                       add_rows_of<5>,  add_rows_of<6>,  add_rows_of<7>,  add_rows_of<8>,
                                       add_rows_of<9>,  add_rows_of<10>, add_rows_of<11>, add_rows_of<12>,
                                       add_rows_of<13>, add_rows_of<14>, add_rows_of<15>, add_rows_of<16>};
    by_width[(width - 1) / 16](hits, n_hits, n_bytes, mantissa_bits, sums);
#else
    for (std::int64_t h = 0; h < n_hits; ++h) {
        const std::uint8_t* mask = hits[h].row;
        const std::uint8_t* codes = mask + n_bytes;
        for (std::int64_t b = 0; b < n_bytes; ++b)
            for (std::uint32_t bits = mask[b]; bits != 0; bits &= bits - 1)
                sums[8 * b + __builtin_ctz(bits)] += hits[h].value * decode(*codes++, mantissa_bits);
    }
#endif
}

}  // namespace

}  // namespace ramify::RAMIFY_VARIANT
