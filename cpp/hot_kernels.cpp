// Compiled once for each instruction set (CMakeLists.txt), each time into another namespace. Nothing here may use a
// function that other files could share (no standard containers): the linker would keep a single copy of it, perhaps
// the one for a machine that this is not.
#include "hot_kernels.h"

#include <string.h>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ramify::RAMIFY_VARIANT {
namespace {

// One bit a byte for 64 bytes, which are lowered on the way.
struct Masks {
    std::uint64_t word, wide;
};

#if defined(__AVX2__)
inline Masks scan_32(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    auto between = [&](__m256i v, char low, char high) {  // signed compare: bytes over 127 are never between
        return _mm256_and_si256(_mm256_cmpgt_epi8(v, _mm256_set1_epi8(static_cast<char>(low - 1))),
                                _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(high + 1)), v));
    };
    const __m256i upper = between(x, 'A', 'Z');
    const __m256i folded = _mm256_or_si256(x, _mm256_and_si256(upper, _mm256_set1_epi8(0x20)));
    const __m256i letter = between(folded, 'a', 'z');
    const __m256i digit = between(x, '0', '9');
    const __m256i line = _mm256_cmpeq_epi8(x, _mm256_set1_epi8('_'));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), lowercase ? folded : x);
    const __m256i word = _mm256_or_si256(_mm256_or_si256(letter, digit), line);
    return {static_cast<std::uint32_t>(_mm256_movemask_epi8(word)),
            static_cast<std::uint32_t>(_mm256_movemask_epi8(x))};
}
inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    const Masks a = scan_32(in, lowercase, out), b = scan_32(in + 32, lowercase, out + 32);
    return {a.word | b.word << 32, a.wide | b.wide << 32};
}
#elif defined(__SSE2__)
inline Masks scan_16(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    auto between = [&](__m128i v, char low, char high) {
        return _mm_and_si128(_mm_cmpgt_epi8(v, _mm_set1_epi8(static_cast<char>(low - 1))),
                             _mm_cmpgt_epi8(_mm_set1_epi8(static_cast<char>(high + 1)), v));
    };
    const __m128i upper = between(x, 'A', 'Z');
    const __m128i folded = _mm_or_si128(x, _mm_and_si128(upper, _mm_set1_epi8(0x20)));
    const __m128i letter = between(folded, 'a', 'z');
    const __m128i digit = between(x, '0', '9');
    const __m128i line = _mm_cmpeq_epi8(x, _mm_set1_epi8('_'));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), lowercase ? folded : x);
    const __m128i word = _mm_or_si128(_mm_or_si128(letter, digit), line);
    return {static_cast<std::uint16_t>(_mm_movemask_epi8(word)), static_cast<std::uint16_t>(_mm_movemask_epi8(x))};
}
inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    Masks all{0, 0};
    for (int i = 0; i < 4; ++i) {
        const Masks m = scan_16(in + 16 * i, lowercase, out + 16 * i);
        all.word |= m.word << (16 * i);
        all.wide |= m.wide << (16 * i);
    }
    return all;
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

}  // namespace

const HotKernels& kernels() {
    static constexpr HotKernels table{scan_text, mark_hits};
    return table;
}

}  // namespace ramify::RAMIFY_VARIANT
