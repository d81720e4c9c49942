// Scores of one chunk of a packed level for many sparse queries; compiled for several instruction sets (core/isa.h). It
// adds up in the order of beam_kernel.h: the same bits.
#pragma once

#include <cstdint>

#include "linear/beam_kernel.h"

namespace ramify {

// The rows of a chunk for the features of the queries, ascending.
struct ChunkRows {
    const std::int32_t* features = nullptr;  // (n)
    const std::uint32_t* starts = nullptr;   // (n) 2 × start in `table`, + 1 for weights of a list: they come first
    std::int64_t n = 0;
    const std::uint8_t* table = nullptr;
    std::int64_t width = 0;       // columns
    const float* bias = nullptr;  // (width)
    float scale = 1.0f;
    int mantissa_bits = 4;
};

struct QueryFeatures {
    const std::int64_t* indptr = nullptr;  // (rows + 1)
    const std::int32_t* features = nullptr;
    const float* values = nullptr;
};

// A query that scores the chunk, and where its scores go: wide_stride(width) floats.
struct Visit {
    std::int64_t row;
    float* sums;
};

static inline std::int64_t wide_stride(std::int64_t width) { return (width + 15) / 16 * 16; }

// The features of a chunk as a bitmap with the number of bits before each word: it fits the first-level cache, and
// gives the row of a feature.
struct FeatureRanks {
    std::uint64_t* bits = nullptr;   // (n_features / 64 + 1) zeros, before and after
    std::int32_t* before = nullptr;  // (n_features / 64 + 1)
    std::int32_t* rows = nullptr;    // (max_room) of the features that a query shares with the chunk
    float* values = nullptr;         // (max_room)
    Hit* early = nullptr;            // (max_room) weights of lists
    Hit* late = nullptr;             // (max_room) the others
};

using ScoreVisits = void (*)(const ChunkRows& chunk, const QueryFeatures& queries, const Visit* visits,
                             std::int64_t n_visits, const FeatureRanks& ranks);

}  // namespace ramify
