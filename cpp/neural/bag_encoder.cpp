#include "neural/bag_encoder.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/vector_ops.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 16;

// out = h + relu(R h + r) for some rows; the rows of R are read once for all of them.
void add_residual(const BagEncoder& encoder, const float* h, std::int64_t rows, float* out) {
    constexpr std::int64_t outputs_at_once = 4;
    const std::int64_t dim = encoder.dim;
    float products[outputs_at_once];
    for (std::int64_t f = 0; f < dim; f += outputs_at_once) {
        const std::int64_t count = std::min(outputs_at_once, dim - f);
        for (std::int64_t row = 0; row < rows; ++row) {
            const float* input = h + row * dim;
            dots(input, dim, count, [&](std::int64_t j) { return encoder.residual + (f + j) * dim; }, products);
            for (std::int64_t j = 0; j < count; ++j)
                out[row * dim + f + j] = input[f + j] + std::max(0.0f, products[j] + encoder.bias[f + j]);
        }
    }
}

}  // namespace

template <class Index>
void embed_bags(const BagEncoder& encoder, const CsrView<Index>& rows, int threads, float* out) {
    const std::int64_t dim = encoder.dim;
    parallel_for((rows.rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const std::int64_t first = block * rows_at_once, count = std::min(rows.rows - first, rows_at_once);
        std::vector<float> h(static_cast<std::size_t>(count * dim));
        for (std::int64_t row = 0; row < count; ++row) {
            ScaledSum sum(dim, h.data() + row * dim);
            for (Index i = rows.indptr[first + row]; i < rows.indptr[first + row + 1]; ++i)
                sum.add(rows.data[i], encoder.words + static_cast<std::int64_t>(rows.indices[i]) * dim);
            sum.finish();
        }
        for (float& x : h) x = std::max(0.0f, x);
        add_residual(encoder, h.data(), count, out + first * dim);
    });
}

void embed_dense(const BagEncoder& encoder, const float* h, std::int64_t rows, int threads, float* out) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const std::int64_t first = block * rows_at_once;
        add_residual(encoder, h + first * encoder.dim, std::min(rows - first, rows_at_once), out + first * encoder.dim);
    });
}

template void embed_bags(const BagEncoder&, const CsrView<std::int32_t>&, int, float*);
template void embed_bags(const BagEncoder&, const CsrView<std::int64_t>&, int, float*);

}  // namespace ramify
