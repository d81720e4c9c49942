// Labels of the training samples near a query: merged with labels near it (Astec), or alone (KNN).
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
    const float* weights = nullptr;  // (samples) of their votes; null: 1
};

// The k best labels (rows, k) by  (1 - weight) · n_l + weight · v_l / max(v),  best first and equal ones by id, padded
// with -1 and -inf. n_l = (1 + similarity) / 2, or 0 for a label that was not found; v_l sums the same over the samples
// found that have the label. allowed (n_labels): whether a label of the samples may be found; null: all of them. The
// votes of the others count in max(v), so that a score does not depend on what else is allowed.
void merge_neighbor_labels(const Found& labels, const Found& samples, const SampleLabels& sample_labels, float weight,
                           const std::uint8_t* allowed, std::int64_t rows, std::int64_t k, int threads,
                           std::int32_t* ids, float* scores);

// What the samples near a query say about each label.
struct Votes {
    std::int32_t* ids = nullptr;  // (rows, k), padded with -1
    float* votes = nullptr;       // fraction of the votes of all samples found
    float* counts = nullptr;      // samples found that have the label
    float* nearest = nullptr;     // largest similarity of one of them
};

// The k labels with the most votes, best first and equal ones by id, padded with -1 and -inf. A sample votes for its
// labels with  weight · similarity ^ power; negative similarities do not vote. A label with a vote has at least
// `least`, of which its penalty (n_labels) is taken off, so that equal votes are told apart. allowed (n_labels):
// whether a label may be found; null: all of them.
void vote_neighbor_labels(const Found& samples, const SampleLabels& sample_labels, float power, float least,
                          const float* penalties, const std::uint8_t* allowed, std::int64_t rows, std::int64_t k,
                          int threads, const Votes& out);

}  // namespace ramify
