#include "neural/path_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"

namespace ramify {

double path_loss(const ScoredShortlists& lists, const float* weights, float* d_scores, float* d_logits, int threads) {
    constexpr float negligible = -14.0f;  // log of a probability whose gradient is skipped
    std::vector<double> sums(static_cast<std::size_t>(lists.rows));
    parallel_for(lists.rows, threads, [&](std::int64_t row, int) {
        const float weight = weights[row];
        double sum = 0;
        for (std::int64_t i = row * lists.width; i < (row + 1) * lists.width; ++i) {
            d_scores[i] = d_logits[i] = 0.0f;
            if (lists.labels[i] < 0) continue;
            const float v = lists.logits[i], u = lists.scores[i];
            if (lists.targets[i] == 0 && u + std::min(v, 0.0f) < negligible) continue;
            const float e = std::exp(-std::abs(v));
            const float yes = v >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e),
                        no = v >= 0 ? e / (1.0f + e) : 1.0f / (1.0f + e);
            if (lists.targets[i] != 0) {
                const float log_yes = std::min(v, 0.0f) - std::log1p(e);
                sum -= log_yes + u;
                d_scores[i] = -weight;
                d_logits[i] = -weight * no;
            } else {
                // 1 - p = (1 - e^u) + e^u (1 - σ(v)), which stays exact when both factors are near 1.
                const float path = std::exp(u), rest = std::max(-std::expm1(u) + path * no, 1e-6f), p = path * yes;
                sum -= std::log(rest);
                d_scores[i] = weight * p / rest;
                d_logits[i] = weight * p * no / rest;
            }
        }
        sums[static_cast<std::size_t>(row)] = sum * weight;
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

}  // namespace ramify
