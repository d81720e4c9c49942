// Choice of the instruction set at run time.
//
// The kernel files are compiled once for each variant into a namespace of its own, and kernel_table.cpp collects them
// in a table of function pointers. hot() picks the best variant that this machine supports;
// RAMIFY_ISA=baseline|avx2|avx512 asks for a lower one, which is how the tests compare them.
#pragma once

#include "core/kernels.h"

namespace ramify {

// The kernels of the chosen variant; chosen at the first call, the same for the life of the process.
const HotKernels& hot();

// "baseline", "avx2" or "avx512".
const char* isa_name();

}  // namespace ramify
