// Classification of the characters of a text; compiled for several instruction sets (core/isa.h).
#pragma once

#include <cstdint>

namespace ramify {

// Scans n code points of the given width (1, 2 or 4 bytes). lowered[i]: the code point as ASCII, in lower case if
// asked, undefined where it is not ASCII. Bit i of word: an ASCII letter, digit or underscore; bit i of wide: not
// ASCII. Both masks have n / 64 + 1 words, with zeros behind bit n. lowered needs room for 64 bytes behind n.
using ScanText = void (*)(const void* text, std::int64_t n, int width, bool lowercase, std::uint8_t* lowered,
                          std::uint64_t* word, std::uint64_t* wide);

}  // namespace ramify
