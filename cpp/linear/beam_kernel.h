// Scores of the active chunks of a packed level for one sparse query; compiled for several instruction sets
// (core/isa.h).
#pragma once

#include <cstdint>

#include "linear/packed.h"

namespace ramify {

struct Hit {
    const std::uint8_t* entries;  // n codes, then n columns
    std::int32_t n;
    std::int32_t slot;
    float value;
};

struct ActiveChunks {
    const std::int32_t* chunks = nullptr;  // (n) ascending
    std::int64_t n = 0;
    const std::int32_t* slot_of = nullptr;  // (n_chunks) position of a chunk among the active ones, -1 for others
};

constexpr std::int64_t features_at_once = 128;

// sums[slot * 256 + column] += value * weight for the features of the query (ids ascending, all below n_features); hits
// has room for features_at_once * chunks.n. Returns false if the table is damaged.
using ScoreChunks = bool (*)(const PackedView& level, const ActiveChunks& active, const std::int32_t* features,
                             const float* values, std::int64_t n, Hit* hits, float* sums);

}  // namespace ramify
