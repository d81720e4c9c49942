// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "text/scan_kernel.h"

#include <string.h>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ramify::RAMIFY_VARIANT {

namespace {

// One bit for each of 64 bytes, which are lowercased on the way.
struct Masks {
    std::uint64_t word, wide;
};

#if defined(__AVX2__)
struct Bytes {
    using Register = __m256i;
    static constexpr int width = 32;
    static Register load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Register*>(p)); }
    static void store(std::uint8_t* p, Register x) { _mm256_storeu_si256(reinterpret_cast<Register*>(p), x); }
    static Register fill(char c) { return _mm256_set1_epi8(c); }
    static Register greater(Register a, Register b) { return _mm256_cmpgt_epi8(a, b); }
    static Register equal(Register a, Register b) { return _mm256_cmpeq_epi8(a, b); }
    static Register and_(Register a, Register b) { return _mm256_and_si256(a, b); }
    static Register or_(Register a, Register b) { return _mm256_or_si256(a, b); }
    static std::uint64_t bits(Register x) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(x)); }
};
#elif defined(__SSE2__)
struct Bytes {
    using Register = __m128i;
    static constexpr int width = 16;
    static Register load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const Register*>(p)); }
    static void store(std::uint8_t* p, Register x) { _mm_storeu_si128(reinterpret_cast<Register*>(p), x); }
    static Register fill(char c) { return _mm_set1_epi8(c); }
    static Register greater(Register a, Register b) { return _mm_cmpgt_epi8(a, b); }
    static Register equal(Register a, Register b) { return _mm_cmpeq_epi8(a, b); }
    static Register and_(Register a, Register b) { return _mm_and_si128(a, b); }
    static Register or_(Register a, Register b) { return _mm_or_si128(a, b); }
    static std::uint64_t bits(Register x) { return static_cast<std::uint32_t>(_mm_movemask_epi8(x)); }
};
#endif

#if defined(__AVX2__) || defined(__SSE2__)
// Bytes compare as signed integers: those over 127 are never between two ASCII characters.
inline Bytes::Register between(Bytes::Register x, char low, char high) {
    return Bytes::and_(Bytes::greater(x, Bytes::fill(static_cast<char>(low - 1))),
                       Bytes::greater(Bytes::fill(static_cast<char>(high + 1)), x));
}

inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    Masks masks{0, 0};
    for (int i = 0; i < 64; i += Bytes::width) {
        const Bytes::Register x = Bytes::load(in + i);
        const Bytes::Register folded = Bytes::or_(x, Bytes::and_(between(x, 'A', 'Z'), Bytes::fill(0x20)));
        const Bytes::Register letter_or_digit = Bytes::or_(between(folded, 'a', 'z'), between(x, '0', '9'));
        Bytes::store(out + i, lowercase ? folded : x);
        masks.word |= Bytes::bits(Bytes::or_(letter_or_digit, Bytes::equal(x, Bytes::fill('_')))) << i;
        masks.wide |= Bytes::bits(x) << i;
    }
    return masks;
}
#else
inline Masks scan_64(const std::uint8_t* in, bool lowercase, std::uint8_t* out) {
    Masks masks{0, 0};
    for (int i = 0; i < 64; ++i) {
        const std::uint8_t c = in[i];
        const bool upper = c >= 'A' && c <= 'Z';
        const std::uint8_t folded = static_cast<std::uint8_t>(c | (upper ? 0x20 : 0));
        const bool word = (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '_';
        out[i] = lowercase ? folded : c;
        masks.word |= static_cast<std::uint64_t>(word) << i;
        masks.wide |= static_cast<std::uint64_t>(c >> 7) << i;
    }
    return masks;
}
#endif

// Up to 64 code points as bytes, 0x80 for anything outside ASCII, padded with zeros.
template <class Unit>
inline void narrow_64(const Unit* in, std::int64_t n, std::uint8_t* out) {
    if (n < 64) memset(out, 0, 64);
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] < 0x80 ? in[i] : 0x80);
}

void scan(const void* text, std::int64_t n, int width, bool lowercase, std::uint8_t* lowered, std::uint64_t* word,
          std::uint64_t* wide) {
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

}  // namespace

extern const ScanText scan_text;
const ScanText scan_text = scan;

}  // namespace ramify::RAMIFY_VARIANT
