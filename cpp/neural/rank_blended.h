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
// σ(w·x + b) the score is  max(p) · (β p / max(p) + (1 - β) s / max(s)),  the maxima over the sample's candidates; the
// common factor makes the scores of different samples comparable.
void rank_blended(const Classifiers& classifiers, float beta, const Candidates& candidates, const float* embeddings,
                  std::int64_t k, int threads, std::int32_t* ids, float* scores);

// The same of candidates beside a shortlist, which may have labels of it: the maxima are those over the shortlist, so
// that a label has the score that it has on the shortlist. `best` (n) is the best score of the shortlist, -inf if it is
// empty.
void rank_beside(const Classifiers& classifiers, float beta, const Candidates& shortlist, const Candidates& candidates,
                 const float* embeddings, std::int64_t k, int threads, std::int32_t* ids, float* scores, float* best);

}  // namespace ramify
