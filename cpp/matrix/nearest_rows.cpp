#include "matrix/nearest_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t queries_at_once = 8;
constexpr std::int64_t scanned_at_once = 64;

struct SearchScratch {
    std::vector<float> sums;  // of each sample; zero between searches
    TopK best;
};

// Kept between calls, since they have the size of all samples, or of all columns.
ScratchPool<SearchScratch> search_scratch;
ScratchPool<std::vector<float>> query_scratch;

// The largest of a few sums: whole runs of samples are passed over by one comparison.
float largest_of(const float* sums, std::int64_t n) {
    float largest = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, sums[i]);
    return largest;
}

}  // namespace

template <class Index>
void nearest_rows(const PostingsView& postings, const CsrView<Index>& queries, std::int64_t k, int threads,
                  std::int32_t* ids, float* products) {
    const std::int64_t n = postings.n_samples;
    parallel_for((queries.rows + queries_at_once - 1) / queries_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<SearchScratch>::Lease lease(search_scratch);
        SearchScratch& s = *lease;
        if (static_cast<std::int64_t>(s.sums.size()) < n) s.sums.resize(static_cast<std::size_t>(n), 0.0f);
        float* const sums = s.sums.data();
        const std::int64_t end = std::min(queries.rows, (block + 1) * queries_at_once);
        for (std::int64_t row = block * queries_at_once; row < end; ++row) {
            for (Index at = queries.indptr[row]; at < queries.indptr[row + 1]; ++at) {
                const auto column = static_cast<std::int64_t>(queries.indices[at]);
                const float value = queries.data[at];
                for (std::int64_t p = postings.indptr[column]; p < postings.indptr[column + 1]; ++p)
                    sums[postings.samples[p]] += value * postings.values[p];
            }
            s.best.start(k);
            float cutoff = 0;
            for (std::int64_t first = 0; first < n; first += scanned_at_once) {
                const std::int64_t size = std::min(scanned_at_once, n - first);
                const float largest = largest_of(sums + first, size);
                if (largest <= 0 || largest < cutoff) continue;
                for (std::int64_t i = first; i < first + size; ++i)
                    if (sums[i] > 0 && sums[i] >= cutoff) s.best.add({sums[i], static_cast<std::int32_t>(i)});
                cutoff = std::max(0.0f, s.best.cutoff());
            }
            const std::vector<Scored>& found = s.best.finish();
            write_row(found.data(), static_cast<std::int64_t>(found.size()), k, ids + row * k, products + row * k);
            std::fill_n(sums, n, 0.0f);
        }
    });
}

template <class Index>
void selected_products(const CsrView<Index>& queries, const CsrView<Index>& rows, const std::int32_t* ids,
                       std::int64_t k, int threads, float* products) {
    parallel_for((queries.rows + queries_at_once - 1) / queries_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<std::vector<float>>::Lease lease(query_scratch);
        std::vector<float>& query = *lease;  // zero between searches
        if (static_cast<std::int64_t>(query.size()) < queries.cols)
            query.resize(static_cast<std::size_t>(queries.cols));
        const std::int64_t end = std::min(queries.rows, (block + 1) * queries_at_once);
        for (std::int64_t i = block * queries_at_once; i < end; ++i) {
            for (Index at = queries.indptr[i]; at < queries.indptr[i + 1]; ++at)
                query[static_cast<std::size_t>(queries.indices[at])] = queries.data[at];
            for (std::int64_t j = i * k; j < (i + 1) * k; ++j) {
                float sum = ids[j] < 0 ? -std::numeric_limits<float>::infinity() : 0.0f;
                if (ids[j] >= 0)
                    for (Index at = rows.indptr[ids[j]]; at < rows.indptr[ids[j] + 1]; ++at)
                        sum += query[static_cast<std::size_t>(rows.indices[at])] * rows.data[at];
                products[j] = sum;
            }
            for (Index at = queries.indptr[i]; at < queries.indptr[i + 1]; ++at)
                query[static_cast<std::size_t>(queries.indices[at])] = 0;
        }
    });
}

template void selected_products(const CsrView<std::int32_t>&, const CsrView<std::int32_t>&, const std::int32_t*,
                                std::int64_t, int, float*);
template void selected_products(const CsrView<std::int64_t>&, const CsrView<std::int64_t>&, const std::int32_t*,
                                std::int64_t, int, float*);
template void nearest_rows(const PostingsView&, const CsrView<std::int32_t>&, std::int64_t, int, std::int32_t*, float*);
template void nearest_rows(const PostingsView&, const CsrView<std::int64_t>&, std::int64_t, int, std::int32_t*, float*);

}  // namespace ramify
