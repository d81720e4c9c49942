#include "neural/gather.h"

#include <algorithm>
#include <cmath>

#include "core/dots.h"
#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 64;
constexpr std::int64_t vectors_at_once = 8;
constexpr std::int64_t rows_ahead = 4;  // that are asked for before they are needed
constexpr std::int64_t n_parts = 8;  // sums of the backward pass, whatever the number of threads

}  // namespace

Pairs group_pairs(const std::int32_t* lists, std::int64_t vectors, std::int64_t width, std::int64_t n_rows) {
    // Zeros between calls; kept, so that a step does not cost what all rows of a large table would.
    thread_local std::vector<std::int64_t> count;
    if (static_cast<std::int64_t>(count.size()) < n_rows) count.resize(static_cast<std::size_t>(n_rows));
    Pairs pairs;
    for (std::int64_t i = 0; i < vectors * width; ++i)
        if (lists[i] >= 0 && count[static_cast<std::size_t>(lists[i])]++ == 0) pairs.rows.push_back(lists[i]);
    std::sort(pairs.rows.begin(), pairs.rows.end());
    pairs.begin.push_back(0);
    for (const std::int32_t row : pairs.rows) {
        auto& at = count[static_cast<std::size_t>(row)];
        const std::int64_t before = pairs.begin.back();
        pairs.begin.push_back(before + at);
        at = before;
    }
    pairs.places.resize(static_cast<std::size_t>(pairs.begin.back()));
    for (std::int64_t i = 0; i < vectors * width; ++i)
        if (lists[i] >= 0) pairs.places[static_cast<std::size_t>(count[static_cast<std::size_t>(lists[i])]++)] = i;
    for (const std::int32_t row : pairs.rows) count[static_cast<std::size_t>(row)] = 0;
    return pairs;
}

void gather_dot(const PairsView& pairs, const float* table, const float* offset, const float* vectors, std::int64_t d, float* out, int threads) {
    parallel_for((pairs.n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> products;
        for (std::int64_t i = block * rows_at_once; i < std::min(pairs.n, (block + 1) * rows_at_once); ++i) {
            const std::int64_t* places = pairs.places + pairs.begin[i];
            const std::int64_t count = pairs.begin[i + 1] - pairs.begin[i];
            products.resize(static_cast<std::size_t>(count));
            dots(table + pairs.rows[i] * d, d, count, [&](std::int64_t j) { return vectors + places[j] / pairs.width * d; }, products.data());
            for (std::int64_t j = 0; j < count; ++j) out[places[j]] = products[static_cast<std::size_t>(j)] + offset[pairs.rows[i]];
        }
    });
}

void all_products(const float* table, std::int64_t rows, const float* vectors, std::int64_t n, std::int64_t d, float* out, int threads) {
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i)
            dots(vectors + i * d, d, rows, [&](std::int64_t row) { return table + row * d; }, out + i * rows);
    });
}

void gather_dot_back(const PairsView& pairs, const float* table, const float* gradients, std::int64_t n_vectors, std::int64_t d,
                     float* d_vectors, int threads) {
    const auto add_scaled = hot().add_scaled;
    const auto size = static_cast<std::size_t>(n_vectors * d);
    std::vector<std::vector<float>> sums(n_parts);
    parallel_for(n_parts, threads, [&](std::int64_t part, int) {
        auto& sum = sums[static_cast<std::size_t>(part)];
        sum.assign(size, 0.0f);
        // Parts hold about as many pairs each, whole rows of the table.
        const std::int64_t total = pairs.begin[pairs.n];
        const auto border = [&](std::int64_t k) { return std::lower_bound(pairs.begin, pairs.begin + pairs.n, total * k / n_parts) - pairs.begin; };
        for (std::int64_t i = border(part); i < (part + 1 == n_parts ? pairs.n : border(part + 1)); ++i) {
            const float* row = table + pairs.rows[i] * d;
            for (std::int64_t p = pairs.begin[i]; p < pairs.begin[i + 1]; ++p) {
                const std::int64_t place = pairs.places[p];
                if (gradients[place] != 0.0f) add_scaled(gradients[place], row, d, sum.data() + place / pairs.width * d);
            }
        }
    });
    std::fill(d_vectors, d_vectors + size, 0.0f);
    for (const auto& sum : sums) add_scaled(1.0f, sum.data(), static_cast<std::int64_t>(size), d_vectors);
}

void row_adam(const PairsView& pairs, const float* gradients, const float* vectors, std::int64_t d, float* table, float* offset,
              const std::int64_t* slots, float* first, float* second, const AdamOptions& options, int threads) {
    const HotKernels& kernels = hot();
    const AdamStep step(options);
    parallel_for((pairs.n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> sum(static_cast<std::size_t>(d));
        for (std::int64_t i = block * rows_at_once; i < std::min(pairs.n, (block + 1) * rows_at_once); ++i) {
            std::fill(sum.begin(), sum.end(), 0.0f);
            ScaledSum scaled(d, sum.data());
            float offset_sum = 0;
            bool any = false;
            for (std::int64_t p = pairs.begin[i]; p < pairs.begin[i + 1]; ++p) {
                const std::int64_t place = pairs.places[p];
                if (gradients[place] == 0.0f) continue;
                scaled.add(gradients[place], vectors + place / pairs.width * d);
                offset_sum += gradients[place];
                any = true;
            }
            if (!any) continue;  // as if the step did not name the row
            scaled.finish();
            float* m = first + slots[i] * (d + 1);
            float* v = second + slots[i] * (d + 1);
            kernels.adam(step, sum.data(), d, true, table + pairs.rows[i] * d, m, v);
            if (offset != nullptr) kernels.adam(step, &offset_sum, 1, false, offset + pairs.rows[i], m + d, v + d);
        }
    });
}

void flat_adam(float* values, const float* gradients, float* first, float* second, std::int64_t n, const AdamOptions& options) {
    hot().adam(AdamStep(options), gradients, n, true, values, first, second);
}

void rank_lists(const ListRanking& ranking, const std::int32_t* lists, const float* evidence, std::int64_t width, const float* vectors,
                std::int64_t n, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    const std::int64_t d = ranking.d;
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        std::vector<Scored> items;
        std::vector<float> beside, products;
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i) {
            items.clear();
            beside.clear();
            float most = 0;
            for (std::int64_t j = i * width; j < (i + 1) * width; ++j) {
                if (lists[j] < 0) continue;
                items.push_back({0.0f, lists[j]});
                beside.push_back(evidence[j]);
                most = std::max(most, evidence[j]);
            }
            products.resize(items.size());
            const auto row = [&](std::int64_t j) { return ranking.table + items[static_cast<std::size_t>(j)].id * d; };
            const auto size = static_cast<std::int64_t>(items.size());
            dots(vectors + i * d, d, size, [&](std::int64_t j) {
                if (j + rows_ahead < size) fetch_ahead(row(j + rows_ahead), d);  // the table is large and read at random
                return row(j);
            }, products.data());
            float largest = 0;
            for (std::size_t j = 0; j < items.size(); ++j) {
                items[j].score = 1.0f / (1.0f + std::exp(-(products[j] + ranking.offset[items[j].id])));
                largest = std::max(largest, items[j].score);
            }
            const float own = largest > 0 ? largest : 1.0f, theirs = most > 0 ? most : 1.0f;
            const float level = std::max(largest, 1e-30f);  // where it is 0 the order still counts
            for (std::size_t j = 0; j < items.size(); ++j)
                items[j].score = (ranking.beta * (items[j].score / own) + (1.0f - ranking.beta) * (beside[j] / theirs)) * level;
            const std::int64_t found = topk(items.data(), size, k);
            write_row(items.data(), found, k, ids + i * k, scores + i * k);
        }
    });
}

namespace {

// Four sums side by side: one would wait for each product before the next.
float sparse_dot(const LinearRows& rows, std::int32_t row, const float* values) {
    const std::int64_t begin = rows.begin[row], n = rows.begin[row + 1] - begin;
    const std::int32_t* features = rows.features + begin;
    const float* weights = rows.weights + begin;
    float part[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; ++j) part[j] += weights[i + j] * values[features[i + j]];
    for (; i < n; ++i) part[0] += weights[i] * values[features[i]];
    return (part[0] + part[1]) + (part[2] + part[3]);
}

}  // namespace

template <class Index>
void score_lists(const LinearRows& classifiers, const CsrView<Index>& queries, const float* dense, const std::int32_t* lists,
                 std::int64_t width, float* out, int threads) {
    const auto dot = hot().dot;
    constexpr std::int64_t queries_at_once = 16;
    parallel_for((queries.rows + queries_at_once - 1) / queries_at_once, threads, [&](std::int64_t block, int) {
        thread_local std::vector<float> values;  // of a query, by feature; zeros between queries
        if (static_cast<std::int64_t>(values.size()) < queries.cols) values.resize(static_cast<std::size_t>(queries.cols));
        for (std::int64_t q = block * queries_at_once; q < std::min(queries.rows, (block + 1) * queries_at_once); ++q) {
            for (Index i = queries.indptr[q]; i < queries.indptr[q + 1]; ++i) values[static_cast<std::size_t>(queries.indices[i])] = queries.data[i];
            for (std::int64_t j = 0; j < width; ++j) {
                const std::int32_t row = lists[q * width + j];
                float sum = 0;
                if (row >= 0) {
                    sum = sparse_dot(classifiers, row, values.data()) + dot(classifiers.dense + row * classifiers.n_dense, dense + q * classifiers.n_dense, classifiers.n_dense);
                    sum += classifiers.offset[row];
                }
                out[q * width + j] = sum;
            }
            for (Index i = queries.indptr[q]; i < queries.indptr[q + 1]; ++i) values[static_cast<std::size_t>(queries.indices[i])] = 0;
        }
    });
}

template void score_lists(const LinearRows&, const CsrView<std::int32_t>&, const float*, const std::int32_t*, std::int64_t, float*, int);
template void score_lists(const LinearRows&, const CsrView<std::int64_t>&, const float*, const std::int32_t*, std::int64_t, float*, int);

}  // namespace ramify
