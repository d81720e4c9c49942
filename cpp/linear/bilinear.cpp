#include "linear/bilinear.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"

namespace ramify {

namespace {

// A label term of the candidates of the current sample.
struct Slot {
    std::int32_t term;
    float product;  // (xᵀ W) of the term, kept up to date while pairs change
    float norm;     // Σ x² over the terms of the sample that have a weight for it: the norm of its column of features
    float common;   // value of the same term of the sample
    float change;   // d of the weights: W(a, term) changes by d · x(a)
};

}  // namespace

BilinearShared fit_bilinear(const CsrView<std::int32_t>& X, const CsrView<std::int32_t>& Z,
                            const CsrView<std::int32_t>& pairs, const float* costs, const CsrView<std::int32_t>& W,
                            const BilinearOptions& options, float* weights) {
    const auto n = static_cast<std::size_t>(X.rows);
    std::vector<float> dual(static_cast<std::size_t>(pairs.indptr[pairs.rows]), 0.0f);
    std::vector<std::int32_t> slot_of(static_cast<std::size_t>(Z.cols), -1), order(n);
    std::vector<Slot> slots;
    std::iota(order.begin(), order.end(), 0);
    Random random(options.seed);
    BilinearShared shared;
    InterruptWatch interrupts;
    std::fill_n(weights, W.indptr[W.rows], 0.0f);
    const float direct_norm = direct_scale * direct_scale;
    // Calls visit(weight index, slot, value of x) for each weight between a term of the sample and one of its slots.
    const auto for_weights = [&](std::int32_t row, auto&& visit) {
        for (std::int32_t at = X.indptr[row]; at < X.indptr[row + 1]; ++at) {
            const std::int32_t term = X.indices[at];
            for (std::int32_t w = W.indptr[term]; w < W.indptr[term + 1]; ++w)
                if (const std::int32_t slot = slot_of[static_cast<std::size_t>(W.indices[w])]; slot >= 0)
                    visit(w, slots[static_cast<std::size_t>(slot)], X.data[at]);
        }
    };
    const auto slot_at = [&](std::int32_t z) -> Slot& {
        return slots[static_cast<std::size_t>(slot_of[static_cast<std::size_t>(Z.indices[z])])];
    };
    for (int epoch = 0; epoch < options.max_epochs; ++epoch) {
        for (std::size_t i = n; i > 1; --i)
            std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
        float violation = 0;
        for (const std::int32_t row : order) {
            slots.clear();
            for (std::int32_t p = pairs.indptr[row]; p < pairs.indptr[row + 1]; ++p)
                for (std::int32_t z = Z.indptr[pairs.indices[p]]; z < Z.indptr[pairs.indices[p] + 1]; ++z)
                    if (std::int32_t& slot = slot_of[static_cast<std::size_t>(Z.indices[z])]; slot < 0) {
                        slot = static_cast<std::int32_t>(slots.size());
                        slots.push_back({Z.indices[z], 0, 0, 0, 0});
                    }
            for_weights(row, [&](std::int32_t w, Slot& slot, float x) {
                slot.product += x * weights[w];
                slot.norm += x * x;
            });
            for (std::int32_t at = X.indptr[row]; at < X.indptr[row + 1]; ++at) {
                const std::int32_t term = X.indices[at];
                if (term < Z.cols && slot_of[static_cast<std::size_t>(term)] >= 0)
                    slots[static_cast<std::size_t>(slot_of[static_cast<std::size_t>(term)])].common = X.data[at];
            }
            for (std::int32_t p = pairs.indptr[row]; p < pairs.indptr[row + 1]; ++p) {
                const std::int32_t begin = Z.indptr[pairs.indices[p]], end = Z.indptr[pairs.indices[p] + 1];
                const float target = pairs.data[p];
                float score = shared.bias, norm = 1, common = 0;
                for (std::int32_t z = begin; z < end; ++z) {
                    score += Z.data[z] * slot_at(z).product;
                    norm += Z.data[z] * Z.data[z] * slot_at(z).norm;
                    common += Z.data[z] * slot_at(z).common;
                }
                score += shared.direct * common;
                norm += direct_norm * common * common;
                const float cost = costs[row] * (target > 0 ? options.positive_cost : options.negative_cost);
                const float diagonal = 0.5f / cost;
                float& alpha = dual[static_cast<std::size_t>(p)];
                const float gradient = target * score - 1 + alpha * diagonal;
                if (alpha == 0 && gradient >= 0) continue;
                violation = std::max(violation, std::abs(gradient));
                const float next = std::max(0.0f, alpha - gradient / (norm + diagonal));
                const float step = (next - alpha) * target;
                alpha = next;
                shared.bias += step;
                shared.direct += step * direct_norm * common;
                for (std::int32_t z = begin; z < end; ++z) {
                    Slot& slot = slot_at(z);
                    slot.change += step * Z.data[z];
                    slot.product += step * Z.data[z] * slot.norm;
                }
            }
            for_weights(row, [&](std::int32_t w, const Slot& slot, float x) { weights[w] += x * slot.change; });
            for (const Slot& slot : slots) slot_of[static_cast<std::size_t>(slot.term)] = -1;
            interrupts.look();
        }
        if (violation <= options.tolerance) break;
    }
    return shared;
}

}  // namespace ramify
