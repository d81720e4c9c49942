// Texts as bags of word vectors: φ = h + relu(R h + r) with h = relu(Σ x_t e_t).
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

struct BagModel {
    std::int64_t d = 0;
    const float* words = nullptr;     // (features, d)
    const float* residual = nullptr;  // (d, d)
    const float* offset = nullptr;    // (d)
};

// Vectors (rows, d) of sparse rows, each by itself: one row gives the same bits as many.
template <class Index>
void encode_bags(const BagModel& model, const CsrView<Index>& rows, int threads, float* out);

// The second half alone, for vectors h (rows, d) that are there already; out may not be h.
void encode_dense(const BagModel& model, const float* h, std::int64_t rows, int threads, float* out);

}  // namespace ramify
