#include "neural/adam.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/vector_ops.h"

namespace ramify {

void adam_rows(const PairsView& pairs, const float* gradients, const float* embeddings, std::int64_t dim, float* table,
               float* bias, const RowState& state, const AdamOptions& options, int threads) {
    constexpr std::int64_t rows_at_once = 64;
    const HotKernels& kernels = hot();
    const AdamStep step(options);
    parallel_for((pairs.n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> sum(static_cast<std::size_t>(dim));
        for (std::int64_t i = block * rows_at_once; i < std::min(pairs.n, (block + 1) * rows_at_once); ++i) {
            std::fill(sum.begin(), sum.end(), 0.0f);
            ScaledSum d_row(dim, sum.data());
            float d_bias = 0;
            bool in_use = false;
            for (std::int64_t p = pairs.indptr[i]; p < pairs.indptr[i + 1]; ++p) {
                const std::int64_t at = pairs.positions[p];
                if (gradients[at] == 0.0f) continue;
                d_row.add(gradients[at], embeddings + at / pairs.width * dim);
                d_bias += gradients[at];
                in_use = true;
            }
            if (!in_use) continue;
            d_row.finish();
            float* first = state.first + state.slots[i] * (dim + 1);
            float* second = state.second + state.slots[i] * (dim + 1);
            kernels.adam(step, sum.data(), dim, true, table + pairs.rows[i] * dim, first, second);
            if (bias != nullptr) kernels.adam(step, &d_bias, 1, false, bias + pairs.rows[i], first + dim, second + dim);
        }
    });
}

void adam_dense(float* values, const float* gradients, float* first, float* second, std::int64_t n,
                const AdamOptions& options) {
    hot().adam(AdamStep(options), gradients, n, true, values, first, second);
}

}  // namespace ramify
