#include "bag.h"

#include <algorithm>
#include <vector>

#include "isa.h"
#include "parallel.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 16;

void add_residual(const BagModel& model, const float* h, float* out) {
    const auto dot = hot().dot;
    for (std::int64_t f = 0; f < model.d; ++f) out[f] = h[f] + std::max(0.0f, dot(model.residual + f * model.d, h, model.d) + model.offset[f]);
}

}  // namespace

template <class Index>
void encode_bags(const BagModel& model, const CsrView<Index>& rows, int threads, float* out) {
    const auto add_scaled = hot().add_scaled;
    parallel_for((rows.rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> h(static_cast<std::size_t>(model.d));
        for (std::int64_t row = block * rows_at_once; row < std::min(rows.rows, (block + 1) * rows_at_once); ++row) {
            std::fill(h.begin(), h.end(), 0.0f);
            for (Index i = rows.indptr[row]; i < rows.indptr[row + 1]; ++i)
                add_scaled(rows.data[i], model.words + static_cast<std::int64_t>(rows.indices[i]) * model.d, model.d, h.data());
            for (float& x : h) x = std::max(0.0f, x);
            add_residual(model, h.data(), out + row * model.d);
        }
    });
}

void encode_dense(const BagModel& model, const float* h, std::int64_t rows, int threads, float* out) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row)
            add_residual(model, h + row * model.d, out + row * model.d);
    });
}

template void encode_bags(const BagModel&, const CsrView<std::int32_t>&, int, float*);
template void encode_bags(const BagModel&, const CsrView<std::int64_t>&, int, float*);

}  // namespace ramify
