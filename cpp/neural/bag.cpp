#include "neural/bag.h"

#include <algorithm>
#include <vector>

#include "core/dots.h"
#include "core/parallel.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 16;

// out = h + relu(R h + r) for some rows; the rows of R are read once for all of them.
void add_residual(const BagModel& model, const float* h, std::int64_t rows, float* out) {
    constexpr std::int64_t at_once = 4;
    float products[at_once];
    for (std::int64_t f = 0; f < model.d; f += at_once) {
        const std::int64_t count = std::min(at_once, model.d - f);
        for (std::int64_t row = 0; row < rows; ++row) {
            const float* own = h + row * model.d;
            dots(own, model.d, count, [&](std::int64_t j) { return model.residual + (f + j) * model.d; }, products);
            for (std::int64_t j = 0; j < count; ++j) out[row * model.d + f + j] = own[f + j] + std::max(0.0f, products[j] + model.offset[f + j]);
        }
    }
}

}  // namespace

template <class Index>
void encode_bags(const BagModel& model, const CsrView<Index>& rows, int threads, float* out) {
    parallel_for((rows.rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const std::int64_t first = block * rows_at_once, count = std::min(rows.rows - first, rows_at_once);
        std::vector<float> h(static_cast<std::size_t>(count * model.d));
        for (std::int64_t row = 0; row < count; ++row) {
            ScaledSum sum(model.d, h.data() + row * model.d);
            for (Index i = rows.indptr[first + row]; i < rows.indptr[first + row + 1]; ++i)
                sum.add(rows.data[i], model.words + static_cast<std::int64_t>(rows.indices[i]) * model.d);
            sum.finish();
        }
        for (float& x : h) x = std::max(0.0f, x);
        add_residual(model, h.data(), count, out + first * model.d);
    });
}

void encode_dense(const BagModel& model, const float* h, std::int64_t rows, int threads, float* out) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const std::int64_t first = block * rows_at_once;
        add_residual(model, h + first * model.d, std::min(rows - first, rows_at_once), out + first * model.d);
    });
}

template void encode_bags(const BagModel&, const CsrView<std::int32_t>&, int, float*);
template void encode_bags(const BagModel&, const CsrView<std::int64_t>&, int, float*);

}  // namespace ramify
