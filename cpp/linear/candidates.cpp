#include "linear/candidates.h"

#include <algorithm>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/scratch.h"

namespace ramify {

namespace {

// Four partial sums: a single one would wait for each addition before the next.
float sparse_dot(const LinearClassifiers& classifiers, std::int32_t row, const float* values) {
    const std::int64_t start = classifiers.indptr[row], n = classifiers.indptr[row + 1] - start;
    const std::int32_t* features = classifiers.features + start;
    const float* weights = classifiers.weights + start;
    float part[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; ++j) part[j] += weights[i + j] * values[features[i + j]];
    for (; i < n; ++i) part[0] += weights[i] * values[features[i]];
    return (part[0] + part[1]) + (part[2] + part[3]);
}

// Values of a query by feature; zeros between queries.
ScratchPool<std::vector<float>> dense_queries;

}  // namespace

template <class Index>
void score_candidates(const LinearClassifiers& classifiers, const CsrView<Index>& queries, const float* dense,
                      const std::int32_t* candidates, std::int64_t width, float* out, int threads) {
    const auto dot = hot().dot;
    const std::int64_t n_dense = classifiers.n_dense;
    constexpr std::int64_t queries_at_once = 16;
    parallel_for((queries.rows + queries_at_once - 1) / queries_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<std::vector<float>>::Lease lease(dense_queries);
        std::vector<float>& values = *lease;
        if (static_cast<std::int64_t>(values.size()) < queries.cols)
            values.resize(static_cast<std::size_t>(queries.cols));
        for (std::int64_t q = block * queries_at_once; q < std::min(queries.rows, (block + 1) * queries_at_once); ++q) {
            for (Index i = queries.indptr[q]; i < queries.indptr[q + 1]; ++i)
                values[static_cast<std::size_t>(queries.indices[i])] = queries.data[i];
            for (std::int64_t j = 0; j < width; ++j) {
                const std::int32_t row = candidates[q * width + j];
                float sum = 0;
                if (row >= 0) {
                    sum = sparse_dot(classifiers, row, values.data()) +
                          dot(classifiers.dense + row * n_dense, dense + q * n_dense, n_dense);
                    sum += classifiers.bias[row];
                }
                out[q * width + j] = sum;
            }
            for (Index i = queries.indptr[q]; i < queries.indptr[q + 1]; ++i)
                values[static_cast<std::size_t>(queries.indices[i])] = 0;
        }
    });
}

template void score_candidates(const LinearClassifiers&, const CsrView<std::int32_t>&, const float*,
                               const std::int32_t*, std::int64_t, float*, int);
template void score_candidates(const LinearClassifiers&, const CsrView<std::int64_t>&, const float*,
                               const std::int32_t*, std::int64_t, float*, int);

}  // namespace ramify
