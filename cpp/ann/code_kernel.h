// Dot products of int8 codes; compiled for several instruction sets (core/isa.h).
#pragma once

#include <cstdint>

namespace ramify {

// products[i] = code · codes[i] for a code (n_bytes) and codes (n, n_bytes) with entries from -127 to 127; n_bytes is a
// multiple of 32.
using DotCodes = void (*)(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t n_bytes,
                          std::int32_t* products);

}  // namespace ramify
