// Vectors of eight floats, for files that are compiled once for each instruction set (isa.h). Everything here has
// internal linkage, so that no variant gets another's code.
#pragma once

#include <string.h>

#include <cstdint>

namespace ramify::RAMIFY_VARIANT {

namespace {

// Compilers lower it to one AVX register or to two of SSE or NEON; wider ones they lower badly for AVX2.
using F8 = float __attribute__((vector_size(32)));
using I8 = std::int32_t __attribute__((vector_size(32)));

inline F8 all8(float x) { return F8{x, x, x, x, x, x, x, x}; }
inline F8 load8(const float* p) {
    F8 x;
    memcpy(&x, p, sizeof x);
    return x;
}
inline void store8(float* p, F8 x) { memcpy(p, &x, sizeof x); }

}  // namespace

}  // namespace ramify::RAMIFY_VARIANT
