// Dot products and weighted sums of float vectors; compiled for several instruction sets (isa.h).
#pragma once

#include <cstdint>

namespace ramify {

// sums[i] += scale · values[i]; for i < n.
using AddScaled = void (*)(float scale, const float* values, std::int64_t n, float* sums);

// The same for four scales and vectors, one after the other: the same bits, a quarter of the loads and stores.
using AddScaled4 = void (*)(const float* scales, const float* const* values, std::int64_t n, float* sums);

// Σ a[i] · b[i]; for i < n.
using Dot = float (*)(const float* a, const float* b, std::int64_t n);

// products[j] = dot(a, b[j], n) to the last bit; for j < 4. Four sums side by side hide the latency of the additions.
using Dot4 = void (*)(const float* a, const float* const* b, std::int64_t n, float* products);

}  // namespace ramify
