// Selection from candidate lists, and the mean of several rankings.
#pragma once

#include <cstdint>

namespace ramify {

// The k best of each row of candidates (rows, width), id -1 for none; padded with -1 and -inf.
void list_topk(const std::int32_t* ids, const float* scores, std::int64_t rows, std::int64_t width, std::int64_t k,
               int threads, std::int32_t* best_ids, float* best_scores);

// Blends rankings (n_rankings, rows, width) of log scores: log of the mean of e^score over all rankings, with 0 for a
// label that a ranking does not contain. The result is (rows, k).
void blend_rankings(const std::int32_t* ids, const float* scores, std::int64_t n_rankings, std::int64_t rows,
                    std::int64_t width, std::int64_t k, int threads, std::int32_t* best_ids, float* best_scores);

}  // namespace ramify
