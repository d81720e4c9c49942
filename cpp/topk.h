// The k best of a list; equal scores are ordered by id, so that a ranking never depends on the order of the input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.h"
#include "parallel.h"

namespace ramify {

struct Scored {
    float score;
    std::int32_t id;
};

// NaN never wins: it sorts behind every number.
inline bool better(const Scored& a, const Scored& b) {
    const bool a_nan = a.score != a.score, b_nan = b.score != b.score;
    if (a_nan != b_nan) return b_nan;
    if (!a_nan && a.score != b.score) return a.score > b.score;
    return a.id < b.id;
}

// Reorders [items, items + n) so that its first min(k, n) elements are the best ones in order. Returns that count.
inline std::int64_t topk(Scored* items, std::int64_t n, std::int64_t k) {
    if (k < n) {
        std::nth_element(items, items + k, items + n, better);
        n = k;
    }
    std::sort(items, items + n, better);
    return n;
}

// The k best entries of each row: ids (rows, k) with -1, scores (rows, k) with -inf where a row has fewer.
template <class Index>
void csr_topk(const CsrView<Index>& matrix, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    constexpr std::int64_t block_size = 1024;
    parallel_for((matrix.rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(matrix.rows, (b + 1) * block_size); ++row) {
            items.clear();
            for (Index i = matrix.indptr[row]; i < matrix.indptr[row + 1]; ++i)
                items.push_back({matrix.data[i], static_cast<std::int32_t>(matrix.indices[i])});
            const std::int64_t n = topk(items.data(), static_cast<std::int64_t>(items.size()), k);
            for (std::int64_t j = 0; j < k; ++j) {
                ids[row * k + j] = j < n ? items[static_cast<std::size_t>(j)].id : -1;
                scores[row * k + j] = j < n ? items[static_cast<std::size_t>(j)].score : -std::numeric_limits<float>::infinity();
            }
        }
    });
}

}  // namespace ramify
