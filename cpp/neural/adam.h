// Adam for the rows of a table that a batch uses, and for whole arrays.
#pragma once

#include <cstdint>

#include "neural/adam_kernel.h"
#include "neural/gather.h"

namespace ramify {

// Optimizer state of the rows in use: moments of a row at slots[i] of first and second (slots, dim + 1), its bias last.
struct RowState {
    const std::int64_t* slots = nullptr;  // (pairs.n)
    float* first = nullptr;
    float* second = nullptr;
};

// One step for the table rows in use: d_table[row] = Σ gradients[i, j] · embeddings[i] over the pairs (i, j) of the
// row, and d_bias[row] = Σ gradients[i, j] (bias may be null). The moments of a row stay as they are while the row is
// not in use; a row whose gradients are all 0 counts as not in use.
void adam_rows(const PairsView& pairs, const float* gradients, const float* embeddings, std::int64_t dim, float* table,
               float* bias, const RowState& state, const AdamOptions& options, int threads);

// One step for n values with their gradients.
void adam_dense(float* values, const float* gradients, float* first, float* second, std::int64_t n,
                const AdamOptions& options);

}  // namespace ramify
