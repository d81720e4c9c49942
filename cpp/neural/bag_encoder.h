// The bag-of-embeddings encoder of the DeepXML family: φ(x) = h + relu(R h + r) with h = relu(Σ_t x_t e_t).
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

struct BagEncoder {
    std::int64_t dim = 0;
    const float* words = nullptr;     // (features, dim) word embeddings e
    const float* residual = nullptr;  // (dim, dim) R
    const float* bias = nullptr;      // (dim) r
};

// Embeddings (rows, dim) of sparse rows. The embedding of a row does not depend on the other rows, to the last bit.
template <class Index>
void embed_bags(const BagEncoder& encoder, const CsrView<Index>& rows, int threads, float* out);

// The residual layer alone, on h (rows, dim); out must not be h.
void embed_dense(const BagEncoder& encoder, const float* h, std::int64_t rows, int threads, float* out);

}  // namespace ramify
