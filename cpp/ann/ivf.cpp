#include "ann/ivf.h"

#include <algorithm>
#include <vector>

#include "core/histogram.h"
#include "core/parallel.h"
#include "core/topk.h"
#include "core/vector_ops.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 8;
constexpr std::int64_t codes_at_once = 256;  // whose products stay in cache
constexpr std::int64_t vectors_ahead = 4;    // prefetched before they are needed

// Codes rank a little differently than vectors do: this many are rescored to get the best k.
std::int64_t n_rescored(std::int64_t k) { return k + k / 8 + 16; }

// Calls take(product, i) for the codes [first, end), with the product of query code and code in units of the query's
// scale.
template <class Take>
void compare(const std::int8_t* query, const Codes& codes, std::int64_t first, std::int64_t end, std::int64_t n_bytes,
             Take&& take) {
    std::int32_t products[codes_at_once];
    for (; first < end; first += codes_at_once) {
        const std::int64_t count = std::min(codes_at_once, end - first);
        hot().dot_codes(query, codes.codes + first * n_bytes, count, n_bytes, products);
        for (std::int64_t i = 0; i < count; ++i)
            take(static_cast<float>(products[i]) * codes.scales[first + i], static_cast<std::int32_t>(first + i));
    }
}

}  // namespace

void search_ivf(const IvfIndex& index, const float* queries, std::int64_t rows, const IvfOptions& options, int threads,
                std::int32_t* ids, float* scores) {
    const std::int64_t dim = index.dim, n_bytes = code_size(dim), k = options.k;
    const std::int64_t nprobe = std::min(options.nprobe, index.nlist);
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<Scored> nearest, best;
        std::vector<float> products;
        std::vector<std::int8_t> code(static_cast<std::size_t>(n_bytes));
        std::vector<std::int32_t> bins;
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            const float* query = queries + row * dim;
            const float scale = quantize_one(query, dim, code.data());
            nearest.clear();
            compare(code.data(), index.centroids, 0, index.nlist, n_bytes,
                    [&](float product, std::int32_t c) { nearest.push_back({product, c}); });
            move_best(nearest.data(), index.nlist, nprobe, bins);

            best.clear();
            for (std::int64_t c = 0; c < nprobe; ++c) {
                const std::int32_t list = nearest[static_cast<std::size_t>(c)].id;
                compare(code.data(), index.codes, index.indptr[list], index.indptr[list + 1], n_bytes,
                        [&](float product, std::int32_t i) { best.push_back({product, i}); });
            }
            const bool codes_only = index.vectors == nullptr;
            std::int64_t size =
                move_best(best.data(), static_cast<std::int64_t>(best.size()), codes_only ? k : n_rescored(k), bins);
            products.resize(static_cast<std::size_t>(size));
            if (codes_only) {
                for (std::size_t i = 0; i < products.size(); ++i) products[i] = best[i].score * scale;
            } else {
                const auto vector = [&](std::int64_t i) {
                    return index.vectors + best[static_cast<std::size_t>(i)].id * dim;
                };
                const auto prefetched_vector = [&](std::int64_t i) {
                    if (i + vectors_ahead < size) prefetch_row(vector(i + vectors_ahead), dim);
                    return vector(i);
                };
                dots(query, dim, size, prefetched_vector, products.data());
            }
            for (std::size_t i = 0; i < products.size(); ++i) best[i] = {products[i], index.ids[best[i].id]};
            size = options.ordered ? topk(best.data(), size, k) : move_best(best.data(), size, k, bins);
            write_row(best.data(), size, k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
