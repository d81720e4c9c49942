// UTF-8 of code points; lone surrogates are three bytes.
#pragma once

#include <cstdint>

namespace ramify {

inline std::uint8_t* encode(std::uint32_t c, std::uint8_t* out) {
    if (c < 0x80) {
        *out++ = static_cast<std::uint8_t>(c);
    } else if (c < 0x800) {
        *out++ = static_cast<std::uint8_t>(0xc0 | c >> 6);
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = static_cast<std::uint8_t>(0xe0 | c >> 12);
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 6 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    } else {
        *out++ = static_cast<std::uint8_t>(0xf0 | c >> 18);
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 12 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 6 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    }
    return out;
}

// The code point at p, which `encode` has written; moves p behind it.
inline std::uint32_t decode(const std::uint8_t*& p) {
    const std::uint32_t first = *p++;
    if (first < 0x80) return first;
    const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    std::uint32_t c = first & (0x3fu >> more);
    for (int i = 0; i < more; ++i) c = c << 6 | (*p++ & 63u);
    return c;
}

inline bool is_first_byte(std::uint8_t byte) { return (byte & 0xc0) != 0x80; }

}  // namespace ramify
