// Dot products of one vector with many and weighted sums of many vectors: four at a time, with the bits of one at a
// time.
#pragma once

#include <cstdint>

#include "core/isa.h"

namespace ramify {

// out[j] = a · at(j), vectors of n floats; for j < count.
template <class At>
void dots(const float* a, std::int64_t n, std::int64_t count, At&& at, float* out) {
    const HotKernels& kernels = hot();
    std::int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
        const float* const others[4] = {at(j), at(j + 1), at(j + 2), at(j + 3)};
        kernels.dot_4(a, others, n, out + j);
    }
    for (; j < count; ++j) out[j] = kernels.dot(a, at(j), n);
}

// sums += scale · values for each vector of n floats that is added; complete after finish().
class ScaledSum {
public:
    ScaledSum(std::int64_t n, float* sums) : kernels_(hot()), n_(n), sums_(sums) {}

    void add(float scale, const float* values) {
        scales_[n_waiting_] = scale;
        waiting_[n_waiting_++] = values;
        if (n_waiting_ < 4) return;
        kernels_.add_scaled_4(scales_, waiting_, n_, sums_);
        n_waiting_ = 0;
    }

    void finish() {
        for (int i = 0; i < n_waiting_; ++i) kernels_.add_scaled(scales_[i], waiting_[i], n_, sums_);
        n_waiting_ = 0;
    }

private:
    const HotKernels& kernels_;
    std::int64_t n_;
    float* sums_;
    float scales_[4] = {};
    const float* waiting_[4] = {};
    int n_waiting_ = 0;
};

// Prefetches n floats at an address that the hardware prefetcher cannot predict.
inline void prefetch_row(const float* values, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 16) __builtin_prefetch(values + i);
}

}  // namespace ramify
