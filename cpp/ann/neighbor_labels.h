// Labels near a query, merged with the labels of training samples near it (Astec).
#pragma once

#include <cstdint>

namespace ramify {

// Results of a search (rows, width): ids, padded with -1, and cosine similarities.
struct Found {
    std::int64_t width = 0;
    const std::int32_t* ids = nullptr;
    const float* similarities = nullptr;
};

// Labels of the training samples.
struct SampleLabels {
    const std::int64_t* indptr = nullptr;  // (samples + 1)
    const std::int32_t* labels = nullptr;  // below n_labels
    std::int64_t n_labels = 0;
};

// The k best labels (rows, k) by  (1 - weight) · n_l + weight · v_l / max(v),  best first and equal ones by id, padded
// with -1 and -inf. n_l = (1 + similarity) / 2, or 0 for a label that was not found; v_l sums the same over the samples
// found that have the label.
void merge_neighbor_labels(const Found& labels, const Found& samples, const SampleLabels& sample_labels, float weight,
                           std::int64_t rows, std::int64_t k, int threads, std::int32_t* ids, float* scores);

}  // namespace ramify
