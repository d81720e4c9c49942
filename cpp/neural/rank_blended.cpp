#include "neural/rank_blended.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "core/topk.h"
#include "core/vector_ops.h"

namespace ramify {

namespace {

constexpr std::int64_t samples_at_once = 8;
constexpr std::int64_t rows_ahead = 4;  // prefetched before they are needed

}  // namespace

void rank_blended(const Classifiers& classifiers, float beta, const Candidates& candidates, const float* embeddings,
                  std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    const std::int64_t dim = classifiers.dim, n = candidates.n, width = candidates.width;
    parallel_for((n + samples_at_once - 1) / samples_at_once, threads, [&](std::int64_t block, int) {
        std::vector<Scored> items;
        std::vector<float> similarities, products;
        for (std::int64_t i = block * samples_at_once; i < std::min(n, (block + 1) * samples_at_once); ++i) {
            items.clear();
            similarities.clear();
            float max_similarity = 0;
            for (std::int64_t j = i * width; j < (i + 1) * width; ++j) {
                if (candidates.labels[j] < 0) continue;
                items.push_back({0.0f, candidates.labels[j]});
                similarities.push_back(candidates.similarities[j]);
                max_similarity = std::max(max_similarity, candidates.similarities[j]);
            }
            products.resize(items.size());
            const auto row = [&](std::int64_t j) {
                return classifiers.weights + items[static_cast<std::size_t>(j)].id * dim;
            };
            const auto size = static_cast<std::int64_t>(items.size());
            const auto prefetched_row = [&](std::int64_t j) {
                if (j + rows_ahead < size)
                    prefetch_row(row(j + rows_ahead), dim);  // the table is large and read at random
                return row(j);
            };
            dots(embeddings + i * dim, dim, size, prefetched_row, products.data());
            float max_probability = 0;
            for (std::size_t j = 0; j < items.size(); ++j) {
                items[j].score = 1.0f / (1.0f + std::exp(-(products[j] + classifiers.bias[items[j].id])));
                max_probability = std::max(max_probability, items[j].score);
            }
            const float p_scale = max_probability > 0 ? max_probability : 1.0f,
                        s_scale = max_similarity > 0 ? max_similarity : 1.0f;
            const float level = std::max(max_probability, 1e-30f);  // keeps the order where every probability is 0
            for (std::size_t j = 0; j < items.size(); ++j)
                items[j].score =
                    (beta * (items[j].score / p_scale) + (1.0f - beta) * (similarities[j] / s_scale)) * level;
            write_topk(items, k, ids + i * k, scores + i * k);
        }
    });
}

}  // namespace ramify
