// The inner loops of the search: scores of the active pieces of a level for one sparse query, and of one piece for many
// queries. Both add up in the order of the features: the same bits. Compiled for several instruction sets (isa.h).
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

// The weights of a piece for one feature, as they lie in the packed table: n codes, then n columns.
struct PieceRow {
    const std::uint8_t* entries;
    std::int32_t feature;
    std::int32_t n;
};

struct PieceRows {
    const PieceRow* rows = nullptr;  // (n) one for each feature
    std::int64_t n = 0;
    std::int64_t width = 0;          // columns
    const float* bias = nullptr;     // (width)
    const float* codebook = nullptr;
};

struct QueryFeatures {
    const std::int64_t* indptr = nullptr;  // (rows + 1)
    const std::int32_t* features = nullptr;
    const float* values = nullptr;
};

// A query that looks at the piece, and where its scores go: wide_stride(width) floats.
struct Visit {
    std::int64_t row;
    float* sums;
};

static inline std::int64_t wide_stride(std::int64_t width) { return (width + 7) / 8 * 8; }

struct VisitHit {
    const float* wide;  // a row of the piece as plain floats
    float value;
};

struct VisitScratch {
    std::int32_t* place_of = nullptr;  // (n_features) noughts, before and after
    float* wide = nullptr;             // (n_wide) rows as plain floats: room for those of one query at least, and one
    std::int64_t n_wide = 0;
    VisitHit* hits = nullptr;          // one more than a query has features
    const PieceRow** first = nullptr;  // as many as a query has features
};

// sums = bias + the weighted rows of the piece, for each visit. A row is widened to plain floats at its first visit, after
// which it costs a few vector instructions. Returns false if the table is damaged.
using ScoreVisits = bool (*)(const PieceRows& piece, const QueryFeatures& queries, const Visit* visits, std::int64_t n_visits,
                             const VisitScratch& scratch);

}  // namespace ramify
