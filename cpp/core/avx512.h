// Intrinsics of AVX-512, for kernels that are compiled for it (isa.h).
#pragma once

#if defined(__AVX512F__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns about its own header
#endif
#include <immintrin.h>
#endif
