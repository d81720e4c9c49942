// Linear classifiers over sparse and dense features, evaluated on candidate lists.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/csr.h"
#include "linear/beam.h"
#include "linear/candidate_kernel.h"

namespace ramify {

struct PackedFeatures {
    std::vector<std::uint32_t> block_starts;
    std::vector<std::uint8_t> blocks;
};

// Packs the weights of each feature (features × positions) as candidate_kernel.h describes. They are rounded to 8
// significant bits.
template <class Index>
PackedFeatures pack_features(const CsrView<Index>& weights, int threads);

struct LinearClassifiers {
    FeatureWeights sparse;
    const std::int32_t* positions = nullptr;  // (rows) position of each classifier among the sparse weights
    const float* dense = nullptr;             // (rows, n_dense)
    std::int64_t n_dense = 0;
    const float* bias = nullptr;  // (rows)
};

// Queries with candidates: their sparse features are scaled to norm 1, the dense ones to `dense_norm`.
template <class Index>
struct CandidateQueries {
    CsrView<Index> sparse;
    const float* dense = nullptr;  // (n, n_dense)
    float dense_norm = 1.0f;
    const std::int32_t* candidates = nullptr;  // (n, width) classifiers, -1 for none
    std::int64_t width = 0;
};

// out (n, width) = margins of the candidates, 0 where there is none. Throws DamagedTable if the sparse weights do not
// fit together.
template <class Index>
void score_candidates(const LinearClassifiers& classifiers, const CandidateQueries<Index>& queries, float* out,
                      int threads);

// A decision tree over the scores of a candidate; the children of a leaf are the leaf itself.
struct ScoreTree {
    static constexpr int n_features = 4;
    const std::int32_t* feature = nullptr;  // goes left if this feature is at most the threshold
    const double* threshold = nullptr;
    const std::int32_t* left = nullptr;
    const std::int32_t* right = nullptr;
    const float* value = nullptr;
    int depth = 0;
};

// The score of a candidate: p^γ q with the score p of the search that proposed it and q of its classifier, or with a
// tree  (1 - w) p^γ q + w T(p^γ q, p, q, n),  n its number of training samples.
struct CandidateBlend {
    float power = 1.0f;  // γ
    Transform transform = Transform::sigmoid;
    float transform_power = 1.0f;
    std::optional<ScoreTree> tree;
    float tree_weight = 0.0f;              // w
    const std::int64_t* counts = nullptr;  // (rows) n
};

// The k best candidates of each query with the logarithms of their scores, given log p (n, width); padded with -1 and
// -inf.
template <class Index>
void rank_candidates(const LinearClassifiers& classifiers, const CandidateBlend& blend,
                     const CandidateQueries<Index>& queries, const float* log_scores, std::int64_t k, std::int32_t* ids,
                     float* scores, int threads);

}  // namespace ramify
