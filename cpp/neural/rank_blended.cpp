#include "neural/rank_blended.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

    // The blended scores, relative to the maxima of a shortlist.
    std::vector<Scored>& blend(const Parts& shortlist) {
        const float max_probability = shortlist.max_probability_, max_similarity = shortlist.max_similarity_;
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

template <typename Rank>
void for_each_sample(std::int64_t n, int threads, const Rank& rank) {
    parallel_for((n + samples_at_once - 1) / samples_at_once, threads, [&](std::int64_t block, int) {
        rank(block * samples_at_once, std::min(n, (block + 1) * samples_at_once));
    });
}

}  // namespace

void rank_blended(const Classifiers& classifiers, float beta, const Candidates& candidates, const float* embeddings,
                  std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    for_each_sample(candidates.n, threads, [&](std::int64_t begin, std::int64_t end) {
        Parts parts(classifiers, beta);
        for (std::int64_t i = begin; i < end; ++i) {
            parts.read(candidates, i, embeddings + i * classifiers.dim);
            write_topk(parts.blend(parts), k, ids + i * k, scores + i * k);
        }
    });
}

void rank_beside(const Classifiers& classifiers, float beta, const Candidates& shortlist, const Candidates& candidates,
                 const float* embeddings, std::int64_t k, int threads, std::int32_t* ids, float* scores, float* best) {
    for_each_sample(candidates.n, threads, [&](std::int64_t begin, std::int64_t end) {
        Parts listed(classifiers, beta), parts(classifiers, beta);
        for (std::int64_t i = begin; i < end; ++i) {
            const float* x = embeddings + i * classifiers.dim;
            listed.read(shortlist, i, x);
            parts.read(candidates, i, x);
            write_topk(parts.blend(listed), k, ids + i * k, scores + i * k);
            best[i] = -std::numeric_limits<float>::infinity();
            for (const Scored& item : listed.blend(listed)) best[i] = std::max(best[i], item.score);
        }
    });
}

}  // namespace ramify
