// Binary cross-entropy of the label probabilities of ELIAS.
#pragma once

#include <cstdint>

namespace ramify {

// Shortlists (rows, width) with everything that the loss reads.
struct ScoredShortlists {
    std::int64_t rows = 0, width = 0;
    const std::int32_t* labels = nullptr;   // -1: no label, no loss
    const float* scores = nullptr;          // u: log path scores
    const float* logits = nullptr;          // v: of the label classifiers
    const std::uint8_t* targets = nullptr;  // 1: true label
};

// Σ weights[row] · BCE(p, target) with p = σ(v) e^u, in log space. Backward pass, shape (rows, width):
//   target 1:  d_u = -weight,                 d_v = -weight (1 - σ(v))
//   target 0:  d_u = weight p / (1 - p),      d_v = weight p (1 - σ(v)) / (1 - p)
double path_loss(const ScoredShortlists& lists, const float* weights, float* d_scores, float* d_logits, int threads);

}  // namespace ramify
