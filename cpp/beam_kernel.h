// The inner loop of the search: scores of the active pieces of a level for one sparse query. Compiled for several
// instruction sets (isa.h).
#pragma once

#include <cstdint>

#include "packed.h"

namespace ramify {

struct Hit {
    const std::uint8_t* entries;  // n codes, then n columns
    std::int32_t n;
    std::int32_t slot;
    float value;
};

struct ActivePieces {
    const std::int32_t* pieces = nullptr;  // (n) ascending
    std::int64_t n = 0;
    const std::int32_t* slot_of = nullptr;  // (n_pieces) place of a piece among the active ones, -1 for others
};

constexpr std::int64_t features_at_once = 128;

// sums[slot * 256 + column] += value * weight for the features of the query (ids ascending, all below n_features); hits
// has room for features_at_once * pieces.n. Returns false if the table is damaged.
using ScorePieces = bool (*)(const PackedView& level, const ActivePieces& active, const std::int32_t* features,
                             const float* values, std::int64_t n, Hit* hits, float* sums);

}  // namespace ramify
