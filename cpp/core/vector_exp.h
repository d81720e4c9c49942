// e^x of a vector, shared by the kernels that need it. Internal linkage, as in lanes.h.
#pragma once

#include <string.h>

namespace ramify::RAMIFY_VARIANT {

namespace {

// e^x = 2^n · e^r with an integer n (as Ints and as Floats) and r = x - n ln 2, ln 2 in two parts (Cody and Waite,
// 1980). Callers choose how n is rounded and the polynomial for e^r: the solver's results are stored, so its Taylor
// polynomial must keep its bits, while the transformer's layers take a shorter minimax polynomial with fused
// multiply-adds.
template <class Floats, class Ints, class Polynomial>
inline Floats exp_by_parts(Floats x, Ints n, Floats n_as_float, Polynomial&& polynomial) {
    const Floats r = (x - n_as_float * 0.693359375f) + n_as_float * 2.12194440e-4f;
    const Floats p = polynomial(r);
    const Ints power = (n + 127) << 23;
    Floats two_n;
    memcpy(&two_n, &power, sizeof two_n);
    return p * two_n;
}

}  // namespace

}  // namespace ramify::RAMIFY_VARIANT
