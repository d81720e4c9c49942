// Products of some rows of a large table with some vectors, forwards and backwards, and Adam for the rows that were used.
//
// A batch pairs each of its vectors with the rows on its list. The pairs are grouped by table row: each row is read once,
// while the vectors of a batch stay in cache. Nothing of the size pairs × width exists.
#pragma once

#include <cstdint>
#include <vector>

#include "neural/adam.h"
#include "core/csr.h"

namespace ramify {

// Pairs of a batch by table row, vectors ascending within a row.
struct Pairs {
    std::vector<std::int32_t> rows;    // (n) table rows in use, ascending
    std::vector<std::int64_t> begin;   // (n + 1)
    std::vector<std::int64_t> places;  // (pairs) i · width + j, in the lists
};

// lists: (vectors, width) table rows, -1 for none.
Pairs group_pairs(const std::int32_t* lists, std::int64_t vectors, std::int64_t width, std::int64_t n_rows);

struct PairsView {
    std::int64_t n = 0;
    const std::int32_t* rows = nullptr;
    const std::int64_t* begin = nullptr;
    const std::int64_t* places = nullptr;
    std::int64_t width = 0;  // of the lists
};

// out[place] = table[row] · vectors[place / width] + offset[row]; places without a pair are left alone.
void gather_dot(const PairsView& pairs, const float* table, const float* offset, const float* vectors, std::int64_t d, float* out, int threads);

// out (n, rows) = every vector (n, d) times every row of a table (rows, d), each vector by itself.
void all_products(const float* table, std::int64_t rows, const float* vectors, std::int64_t n, std::int64_t d, float* out, int threads);

// d_vectors (vectors, d) = what the gradients (vectors, width) of the products say about the vectors.
void gather_dot_back(const PairsView& pairs, const float* table, const float* gradients, std::int64_t n_vectors, std::int64_t d,
                     float* d_vectors, int threads);

// One step of Adam for the table rows in use: the gradient of a row is Σ gradient · vector over its pairs, that of its
// offset (null: none) Σ gradient. Moments lie at slots[i] of first and second (slots, d + 1); they rest while their row is not
// used, which it is not either where all of its gradients are 0.
void row_adam(const PairsView& pairs, const float* gradients, const float* vectors, std::int64_t d, float* table, float* offset,
              const std::int64_t* slots, float* first, float* second, const AdamOptions& options, int threads);

// The same for n numbers with their gradients.
void flat_adam(float* values, const float* gradients, float* first, float* second, std::int64_t n, const AdamOptions& options);

// Rows of a table as classifiers, each on its own list of candidates.
struct ListRanking {
    const float* table = nullptr;   // (rows of the table, d)
    const float* offset = nullptr;  // (rows of the table)
    std::int64_t d = 0;
    float beta = 1.0f;              // weight of the classifiers
};

// The best k of each vector's candidates lists (vectors, width), -1 for none, by β · σ(classifier) + (1 - β) · evidence, each
// divided by the row's largest, times the largest σ(classifier): so rows can be compared. evidence (vectors, width) is at
// least 0. Best first, equal ones by number; -1 and -inf where there are fewer.
void rank_lists(const ListRanking& ranking, const std::int32_t* lists, const float* evidence, std::int64_t width, const float* vectors,
                std::int64_t n, std::int64_t k, int threads, std::int32_t* ids, float* scores);

// Linear classifiers over sparse and dense features.
struct LinearRows {
    const std::int64_t* begin = nullptr;    // (rows + 1) sparse weights of each
    const std::int32_t* features = nullptr;
    const float* weights = nullptr;
    const float* dense = nullptr;           // (rows, n_dense)
    std::int64_t n_dense = 0;
    const float* offset = nullptr;          // (rows)
};

// out (queries, width): classifier lists[i, j] on query i; 0 where the list has -1.
template <class Index>
void score_lists(const LinearRows& classifiers, const CsrView<Index>& queries, const float* dense, const std::int32_t* lists,
                 std::int64_t width, float* out, int threads);

}  // namespace ramify
