// The weights of one packed level, sorted by chunk: for batches, whose rows visit each chunk many times.
//
// A query that comes alone finds the weights of a feature for all chunks in one place (packed.h). In a batch all
// visitors of a chunk are scored together: their features are sorted, each row of weights is unpacked once and added
// for all visitors that have its feature. Features are renumbered, the ones with most weights first, so that what
// visitors look up most often lies close together.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/beam.h"

namespace ramify {

class ChunkWeights {
public:
    // Throws DamagedTable.
    ChunkWeights(const BeamLevel& level, int threads);

    // The number of a feature here.
    std::int32_t number_of(std::int64_t feature) const { return numbers_[static_cast<std::size_t>(feature)]; }

    // What the kernel needs to know about one chunk; its memory is reused from chunk to chunk.
    class Lookup {
    public:
        ChunkView open(const ChunkWeights& weights, std::int32_t chunk);

    private:
        std::vector<ChunkWord> words_;
    };

private:
    std::vector<std::int32_t> numbers_;     // (n_features)
    std::vector<std::int64_t> first_row_;   // (n_chunks + 1) of each chunk
    std::vector<std::int64_t> first_byte_;  // (n_chunks + 1) of each chunk
    std::vector<std::uint32_t> features_;   // (rows) numbers, ascending in each chunk
    std::vector<std::uint32_t> order_;      // (rows) of each chunk, in the order of adding
    std::vector<std::uint32_t> starts_;     // (rows) in bytes from the first of its chunk, in the order of adding
    std::vector<std::uint8_t> table_;       // rows as in packed.h, in the order of adding
};

}  // namespace ramify
