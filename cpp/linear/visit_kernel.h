// Scores of one chunk of a packed level for many sparse queries; compiled for several instruction sets (core/isa.h). It
// adds up in the order of the features, as beam_kernel.h does: the same bits.
#pragma once

#include <cstdint>

namespace ramify {

// The weights of a chunk for one feature, as they lie in the packed table: n codes, then n columns.
struct ChunkRow {
    const std::uint8_t* entries;
    std::int32_t feature;
    std::int32_t n;
};

struct ChunkRows {
    const ChunkRow* rows = nullptr;  // (n) one for each feature
    std::int64_t n = 0;
    std::int64_t width = 0;       // columns
    const float* bias = nullptr;  // (width)
    const float* codebook = nullptr;
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

static inline std::int64_t wide_stride(std::int64_t width) { return (width + 7) / 8 * 8; }

struct VisitHit {
    const float* wide;  // a dense row of the chunk
    float value;
};

struct VisitScratch {
    std::int32_t* row_of = nullptr;  // (n_features) zeros, before and after
    float* wide = nullptr;           // (n_wide) dense rows: room for those of one query at least, and one
    std::int64_t n_wide = 0;
    VisitHit* hits = nullptr;          // one more than a query has features
    const ChunkRow** first = nullptr;  // as many as a query has features
};

// sums = bias + the weighted rows of the chunk, for each visit. A row becomes dense at its first visit, after which it
// costs a few vector instructions. Returns false if the table is damaged.
using ScoreVisits = bool (*)(const ChunkRows& chunk, const QueryFeatures& queries, const Visit* visits,
                             std::int64_t n_visits, const VisitScratch& scratch);

}  // namespace ramify
