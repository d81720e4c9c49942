// Products of embeddings with chosen rows of a large table, forward and backward.
//
// A batch pairs each of its embeddings with the table rows of its candidate list. The pairs are grouped by table row:
// each row is read once, while the embeddings of a batch stay in cache. Nothing of the size pairs × dim is ever
// allocated.
#pragma once

#include <cstdint>
#include <vector>

namespace ramify {

// Pairs of a batch by table row, embeddings ascending within a row.
struct Pairs {
    std::vector<std::int32_t> rows;       // (n) table rows in use, ascending
    std::vector<std::int64_t> indptr;     // (n + 1)
    std::vector<std::int64_t> positions;  // (pairs) i · width + j of the candidate (i, j)
};

// candidates: (n, width) table rows, -1 for none.
Pairs group_pairs(const std::int32_t* candidates, std::int64_t n, std::int64_t width, std::int64_t n_rows);

struct PairsView {
    std::int64_t n = 0;
    const std::int32_t* rows = nullptr;
    const std::int64_t* indptr = nullptr;
    const std::int64_t* positions = nullptr;
    std::int64_t width = 0;  // of the candidate lists
};

// out[i, j] = table[row] · embeddings[i] + bias[row] for each pair (i, j) of a row; other entries are left alone.
void gather_dot(const PairsView& pairs, const float* table, const float* bias, const float* embeddings,
                std::int64_t dim, float* out, int threads);

// Backward pass: d_embeddings[i] = Σ_j gradients[i, j] · table[row of (i, j)], shape (n, dim), from gradients (n,
// width).
void gather_dot_backward(const PairsView& pairs, const float* table, const float* gradients, std::int64_t n,
                         std::int64_t dim, float* d_embeddings, int threads);

}  // namespace ramify
