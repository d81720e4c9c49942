// Choice of the instruction set at run time.
//
// cpp/hot_kernels.cpp is compiled once for each variant into a namespace of its own and exports a table of function
// pointers. isa() picks the best variant that this machine runs; RAMIFY_ISA=baseline|avx2|avx512 asks for a lower one,
// which is how the tests compare them.
#pragma once

#include "core/hot_kernels.h"

namespace ramify {

// The kernels of the chosen variant; chosen at the first call, the same for the life of the process.
const HotKernels& hot();

// "baseline", "avx2" or "avx512".
const char* isa_name();

}  // namespace ramify
