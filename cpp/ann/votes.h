// Labels near a query, and the labels of points near it, as one list.
#pragma once

#include <cstdint>

namespace ramify {

// What a search found for each query (rows, width): numbers, -1 behind the last, and similarities from -1 to 1.
struct Found {
    std::int64_t width = 0;
    const std::int32_t* ids = nullptr;
    const float* similarities = nullptr;
};

// Labels of points.
struct PointLabels {
    const std::int64_t* begin = nullptr;   // (points + 1)
    const std::int32_t* labels = nullptr;  // below n_labels
    std::int64_t n_labels = 0;
};

// The best k labels (rows, k) by (1 - share) · nearness + share · votes, best first, equal ones by number; -1 and -inf where
// there are fewer. Nearness is (1 + similarity) / 2, 0 for a label that was not found; a point that was found votes for its
// labels with its nearness, and votes are divided by the most that a label of the row has.
void merge_votes(const Found& labels, const Found& points, const PointLabels& of_points, float share, std::int64_t rows, std::int64_t k,
                 int threads, std::int32_t* ids, float* scores);

}  // namespace ramify
