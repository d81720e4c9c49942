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

// Candidates of one sample with the two parts of their scores; its memory serves one sample after the other.
class Parts {
public:
    Parts(const Classifiers& classifiers, float beta) : classifiers_(classifiers), beta_(beta) {}

    // Reads the candidates of sample i, with its embedding x.
    void read(const Candidates& candidates, std::int64_t i, const float* x) {
        items_.clear();
        similarities_.clear();
        max_similarity_ = max_probability_ = 0;
        for (std::int64_t j = i * candidates.width; j < (i + 1) * candidates.width; ++j) {
            if (candidates.labels[j] < 0) continue;
            items_.push_back({0.0f, candidates.labels[j]});
            similarities_.push_back(candidates.similarities[j]);
            max_similarity_ = std::max(max_similarity_, candidates.similarities[j]);
        }
        products_.resize(items_.size());
        const std::int64_t dim = classifiers_.dim, size = static_cast<std::int64_t>(items_.size());
        const auto row = [&](std::int64_t j) {
            return classifiers_.weights + items_[static_cast<std::size_t>(j)].id * dim;
        };
        const auto prefetched_row = [&](std::int64_t j) {
            if (j + rows_ahead < size) prefetch_row(row(j + rows_ahead), dim);  // the table is large and read at random
            return row(j);
        };
        dots(x, dim, size, prefetched_row, products_.data());
        for (std::size_t j = 0; j < items_.size(); ++j) {
            items_[j].score = 1.0f / (1.0f + std::exp(-(products_[j] + classifiers_.bias[items_[j].id])));
            max_probability_ = std::max(max_probability_, items_[j].score);
        }
    }

    // The blended scores, relative to the maxima of the candidates or not.
    std::vector<Scored>& blend(bool by_row) {
        const float max_probability = by_row ? max_probability_ : 1.0f,
                    max_similarity = by_row ? max_similarity_ : 1.0f;
        const float p_scale = max_probability > 0 ? max_probability : 1.0f,
                    s_scale = max_similarity > 0 ? max_similarity : 1.0f;
        const float level = std::max(max_probability, 1e-30f);  // keeps the order where every probability is 0
        for (std::size_t j = 0; j < items_.size(); ++j)
            items_[j].score =
                (beta_ * (items_[j].score / p_scale) + (1.0f - beta_) * (similarities_[j] / s_scale)) * level;
        return items_;
    }

private:
    const Classifiers& classifiers_;
    float beta_, max_similarity_ = 0, max_probability_ = 0;
    std::vector<Scored> items_;
    std::vector<float> similarities_, products_;
};

}  // namespace

void rank_blended(const Classifiers& classifiers, float beta, bool by_row, const Candidates& candidates,
                  const float* embeddings, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    parallel_for((candidates.n + samples_at_once - 1) / samples_at_once, threads, [&](std::int64_t block, int) {
        Parts parts(classifiers, beta);
        const std::int64_t end = std::min(candidates.n, (block + 1) * samples_at_once);
        for (std::int64_t i = block * samples_at_once; i < end; ++i) {
            parts.read(candidates, i, embeddings + i * classifiers.dim);
            write_topk(parts.blend(by_row), k, ids + i * k, scores + i * k);
        }
    });
}

}  // namespace ramify
