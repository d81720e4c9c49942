// The weights of a packed level for one sparse query, and their sums; compiled for several instruction sets
// (core/isa.h).
#pragma once

#include <cstdint>

#include "linear/packed.h"

namespace ramify {

// Features whose weights are added up together: first those from lists, then those from rows. A constant, so that sums
// do not depend on what else is scored.
constexpr std::int64_t max_room = 1024;

// The weights of one feature of the query in one chunk: a row of the packed level.
struct Hit {
    const std::uint8_t* row;
    float value;  // of the feature, times the scale of the level
};

// The active ones of 64 chunks, as the bitmaps of a packed level have them.
struct ActiveGroup {
    std::uint64_t bits;
    std::int32_t group;
    std::int32_t first_slot;
};

struct ActiveChunks {
    const ActiveGroup* groups = nullptr;  // (n_groups) ascending
    std::int64_t n_groups = 0;
    const std::uint64_t* nodes = nullptr;       // bit i: node i is active
    const std::int32_t* position_of = nullptr;  // (n_nodes) slot * chunk_width + column of an active node
};

// What a query finds in the active chunks.
struct FoundWeights {
    float* sums = nullptr;           // (slots, chunk_width): weights of rare features are added at once
    Hit* hits = nullptr;             // the others, in the order of the features: those of slot s from hits + s * room
    std::int32_t* counts = nullptr;  // (slots)
    std::int64_t room = 0;           // at least the number of features
};

// Adds n features (ids below n_features). Returns false if the table is damaged.
using CollectHits = bool (*)(const PackedView& level, const ActiveChunks& active, const std::int32_t* features,
                             const float* values, std::int64_t n, const FoundWeights& found);

// sums[column] += value * weight for n hits of a chunk of the given width; sums has chunk_width floats. Reorders the
// hits.
using AddHits = void (*)(Hit* hits, std::int64_t n, std::int64_t width, int mantissa_bits, float* sums);

// 64 features of a chunk.
struct ChunkWord {
    std::uint64_t bits = 0;  // bit i: the chunk has a row of the i-th
    std::uint32_t rows_before = 0;
};

// The weights of one chunk (chunk_weights.h).
struct ChunkView {
    const ChunkWord* words = nullptr;
    const std::uint32_t* order = nullptr;   // (n_rows) rows in the order of adding
    const std::uint32_t* starts = nullptr;  // (n_rows) in bytes, in the same order
    const std::uint8_t* rows = nullptr;     // as in packed.h, in the same order
    std::int64_t n_rows = 0;
};

// A row of the queries that visits a chunk.
struct Visitor {
    const std::int32_t* features;  // as the chunk numbers them
    const float* values;           // times the scale of the level
    std::int64_t n;
};

struct FoundRow {
    std::uint32_t id;  // of the row of weights, or of the visitor
    float value;
};

// Working memory of `score_chunk`.
struct ChunkScratch {
    std::uint32_t* ends;     // (n_rows + 2)
    FoundRow* found;         // one more than the visitors have features
    FoundRow* by_row;        // as many
    std::uint32_t* n_found;  // (n_visitors)
};

// sums[v * stride + column] += value * weight for all visitors. The stride is the width of the chunk, rounded up to a
// multiple of 16.
using ScoreChunk = void (*)(const ChunkView& chunk, const Visitor* visitors, std::int64_t n_visitors,
                            std::int64_t width, int mantissa_bits, const ChunkScratch& scratch, std::int64_t stride,
                            float* sums);

// The hinge transforms give every margin above 1 the same score; a bonus too small to matter otherwise ranks the wider
// margin first. Inner nodes pass theirs on to all labels below, where it would outweigh the labels' own: it ends at a
// margin of 2.
constexpr double margin_bonus = 1e-5;
// Internal linkage: it is compiled into the variants of the kernels too (core/isa.h).
static inline float bonus_of(float margin, bool is_label) {
    const float over = margin - 1.0f;
    return over <= 0.0f ? 0.0f : static_cast<float>(margin_bonus) * (is_label || over < 1.0f ? over : 1.0f);
}

// Margins become log scores: parent - max(0, 1 - margin)^power + bonus_of(margin), for n nodes; a power of 1 to 4.
using HingeScores = void (*)(float* margins, std::int64_t n, float parent, int power, bool are_labels);

// Bit j of `over` says that score j is not below the cutoff, for n scores, at most chunk_width. NaN is not below.
using FindOver = void (*)(const float* scores, std::int64_t n, float cutoff, std::uint64_t* over);

}  // namespace ramify
