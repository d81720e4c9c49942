// Ranking of candidates by a blend of classifier and similarity (DeepXML; LightDXML).
#pragma once

#include <cstdint>

namespace ramify {

// Dense classifiers, one for each label.
struct Classifiers {
    const float* weights = nullptr;  // (labels, dim)
    const float* bias = nullptr;     // (labels)
    std::int64_t dim = 0;
};

// Candidate labels of n samples with their similarities.
struct Candidates {
    std::int64_t n = 0, width = 0;
    const std::int32_t* labels = nullptr;  // (n, width), -1 for none
    const float* similarities = nullptr;   // (n, width), at least 0
};

// The k best candidates of each embedding (n, dim), best first and equal ones by id, padded with -1 and -inf. With p =
// σ(w·x + b) the score is  β p + (1 - β) s,  or by row  max(p) · (β p / max(p) + (1 - β) s / max(s)),  the maxima over
// the sample's candidates.
void rank_blended(const Classifiers& classifiers, float beta, bool by_row, const Candidates& candidates,
                  const float* embeddings, std::int64_t k, int threads, std::int32_t* ids, float* scores);

}  // namespace ramify
