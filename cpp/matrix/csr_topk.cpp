#include "matrix/csr_topk.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

template <class Index>
void csr_topk(const CsrView<Index>& matrix, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    constexpr std::int64_t block_size = 1024;
    parallel_for((matrix.rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(matrix.rows, (b + 1) * block_size); ++row) {
            items.clear();
            for (Index i = matrix.indptr[row]; i < matrix.indptr[row + 1]; ++i)
                items.push_back({matrix.data[i], static_cast<std::int32_t>(matrix.indices[i])});
            write_topk(items, k, ids + row * k, scores + row * k);
        }
    });
}

template <class Index>
CsrRows largest_entries(const CsrView<Index>& matrix, std::int64_t n, int threads) {
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(matrix.rows) + 1);
    for (std::int64_t row = 0; row < matrix.rows; ++row)
        indptr[static_cast<std::size_t>(row) + 1] =
            indptr[static_cast<std::size_t>(row)] +
            std::min<std::int64_t>(n, matrix.indptr[row + 1] - matrix.indptr[row]);
    CsrRows result = allocate_rows(std::move(indptr));
    constexpr std::int64_t block_size = 256;
    parallel_for((matrix.rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(matrix.rows, (b + 1) * block_size); ++row) {
            const Index first = matrix.indptr[row], last = matrix.indptr[row + 1];
            std::int32_t* columns = result.indices.get() + result.indptr[static_cast<std::size_t>(row)];
            float* values = result.data.get() + result.indptr[static_cast<std::size_t>(row)];
            Scored worst{-1.0f, 0};
            if (last - first > n) {
                items.clear();
                for (Index i = first; i < last; ++i)
                    items.push_back({std::abs(matrix.data[i]), static_cast<std::int32_t>(matrix.indices[i])});
                std::nth_element(items.begin(), items.begin() + (n - 1), items.end(), better);
                worst = items[static_cast<std::size_t>(n - 1)];
            }
            for (Index i = first; i < last; ++i) {
                const Scored item{std::abs(matrix.data[i]), static_cast<std::int32_t>(matrix.indices[i])};
                if (last - first > n && better(worst, item)) continue;
                *columns++ = item.id;
                *values++ = matrix.data[i];
            }
        }
    });
    return result;
}

template void csr_topk(const CsrView<std::int32_t>&, std::int64_t, int, std::int32_t*, float*);
template void csr_topk(const CsrView<std::int64_t>&, std::int64_t, int, std::int32_t*, float*);
template CsrRows largest_entries(const CsrView<std::int32_t>&, std::int64_t, int);
template CsrRows largest_entries(const CsrView<std::int64_t>&, std::int64_t, int);

}  // namespace ramify
