#include "neural/gather.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/vector_ops.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 64;
constexpr std::int64_t n_parts = 8;  // partial sums of the backward pass, whatever the number of threads

// Zeros between calls; kept, so that a training step does not cost a pass over all rows of a large table.
ScratchPool<std::vector<std::int64_t>> counts;

}  // namespace

Pairs group_pairs(const std::int32_t* candidates, std::int64_t n, std::int64_t width, std::int64_t n_rows) {
    const ScratchPool<std::vector<std::int64_t>>::Lease lease(counts);
    std::vector<std::int64_t>& count = *lease;
    if (static_cast<std::int64_t>(count.size()) < n_rows) count.resize(static_cast<std::size_t>(n_rows));
    Pairs pairs;
    for (std::int64_t i = 0; i < n * width; ++i)
        if (candidates[i] >= 0 && count[static_cast<std::size_t>(candidates[i])]++ == 0)
            pairs.rows.push_back(candidates[i]);
    std::sort(pairs.rows.begin(), pairs.rows.end());
    pairs.indptr.push_back(0);
    for (const std::int32_t row : pairs.rows) {
        auto& at = count[static_cast<std::size_t>(row)];
        const std::int64_t before = pairs.indptr.back();
        pairs.indptr.push_back(before + at);
        at = before;
    }
    pairs.positions.resize(static_cast<std::size_t>(pairs.indptr.back()));
    for (std::int64_t i = 0; i < n * width; ++i)
        if (candidates[i] >= 0)
            pairs.positions[static_cast<std::size_t>(count[static_cast<std::size_t>(candidates[i])]++)] = i;
    for (const std::int32_t row : pairs.rows) count[static_cast<std::size_t>(row)] = 0;
    return pairs;
}

void gather_dot(const PairsView& pairs, const float* table, const float* bias, const float* embeddings,
                std::int64_t dim, float* out, int threads) {
    parallel_for((pairs.n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> products;
        for (std::int64_t i = block * rows_at_once; i < std::min(pairs.n, (block + 1) * rows_at_once); ++i) {
            const std::int64_t* positions = pairs.positions + pairs.indptr[i];
            const std::int64_t count = pairs.indptr[i + 1] - pairs.indptr[i];
            products.resize(static_cast<std::size_t>(count));
            const auto embedding = [&](std::int64_t j) { return embeddings + positions[j] / pairs.width * dim; };
            dots(table + pairs.rows[i] * dim, dim, count, embedding, products.data());
            for (std::int64_t j = 0; j < count; ++j)
                out[positions[j]] = products[static_cast<std::size_t>(j)] + bias[pairs.rows[i]];
        }
    });
}

void gather_dot_backward(const PairsView& pairs, const float* table, const float* gradients, std::int64_t n,
                         std::int64_t dim, float* d_embeddings, int threads) {
    const auto add_scaled = hot().add_scaled;
    const auto size = static_cast<std::size_t>(n * dim);
    std::vector<std::vector<float>> sums(n_parts);
    parallel_for(n_parts, threads, [&](std::int64_t part, int) {
        auto& sum = sums[static_cast<std::size_t>(part)];
        sum.assign(size, 0.0f);
        // Parts are whole table rows with about the same number of pairs.
        const std::int64_t total = pairs.indptr[pairs.n];
        const auto first_row = [&](std::int64_t k) {
            return std::lower_bound(pairs.indptr, pairs.indptr + pairs.n, total * k / n_parts) - pairs.indptr;
        };
        for (std::int64_t i = first_row(part); i < (part + 1 == n_parts ? pairs.n : first_row(part + 1)); ++i) {
            const float* row = table + pairs.rows[i] * dim;
            for (std::int64_t p = pairs.indptr[i]; p < pairs.indptr[i + 1]; ++p) {
                const std::int64_t at = pairs.positions[p];
                if (gradients[at] != 0.0f) add_scaled(gradients[at], row, dim, sum.data() + at / pairs.width * dim);
            }
        }
    });
    std::fill(d_embeddings, d_embeddings + size, 0.0f);
    for (const auto& sum : sums) add_scaled(1.0f, sum.data(), static_cast<std::int64_t>(size), d_embeddings);
}

}  // namespace ramify
