// Beam search of many rows at once: level by level, and at each level chunk by chunk (chunk_weights.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "linear/beam.h"
#include "linear/chunk_weights.h"

namespace ramify {

constexpr std::int64_t min_batch_rows = 256;

// The weights of a model sorted by chunk, kept from batch to batch. A level is sorted once its batches have had enough
// rows to be worth it. Threads may use it at once; it takes no lock, which a fork could leave held.
class BatchWeights {
public:
    explicit BatchWeights(std::size_t n_levels) : levels_(n_levels) {}
    BatchWeights(const BatchWeights&) = delete;
    BatchWeights& operator=(const BatchWeights&) = delete;
    ~BatchWeights() {
        for (Level& level : levels_) delete level.weights.load();
    }

    // The sorted weights of level t for a batch of n rows; null: the batch is searched row by row.
    const ChunkWeights* get(const BeamModel& model, std::int64_t t, std::int64_t n, int threads);

private:
    struct Level {
        std::atomic<const ChunkWeights*> weights{nullptr};
        std::atomic<std::int64_t> n_rows{0};  // of all batches so far
    };
    std::vector<Level> levels_;
};

// `beam_search` of a batch; every row gets the same bits as alone.
template <class Index>
void search_batch(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads,
                  BatchWeights& weights, std::int32_t* ids, float* scores);

}  // namespace ramify
