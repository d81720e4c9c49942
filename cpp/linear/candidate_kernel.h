// Sparse products of one query with its candidates; compiled for several instruction sets (core/isa.h).
//
// A query has few features and its candidates have many weights, so weights are stored by feature: the query reads the
// blocks of its own features and takes from them what its candidates have. Classifiers are numbered by their positions,
// an order that puts similar ones side by side, in groups of 16. The block of a feature:
//
//     u32 entries × 2 + kind        kind: 0 list, 1 bitmap
//     list:    positions (u16 if all fit, else u32), ascending
//     bitmap:  for each 64 positions u64 bits, u32 entries before
//     u16 × entries                 weights: the upper halves of their floats
//
// `block_starts` holds the start of each block, in units of 4 bytes. All of it is read from files that may be damaged:
// the kernel checks what it follows.
#pragma once

#include <cstdint>

namespace ramify {

constexpr std::int64_t feature_block_unit = 4;
constexpr std::int64_t feature_block_header = 4;
constexpr std::int64_t bitmap_word_size = 12;       // bits and entries before
constexpr std::int64_t feature_block_padding = 32;  // readable bytes behind the last block
constexpr std::int64_t position_group = 16;

struct FeatureWeights {
    std::int64_t n_features = 0, n_positions = 0;
    const std::uint32_t* block_starts = nullptr;  // (n_features + 1)
    const std::uint8_t* blocks = nullptr;         // (size), padding included
    std::int64_t size = 0;
};

struct CandidateGroup {
    std::uint32_t group;
    std::uint16_t candidates;  // a bit for each
};

// The groups that hold candidates of a query.
struct CandidateGroups {
    const CandidateGroup* groups = nullptr;  // (n) ascending
    std::int64_t n = 0;
    const std::int32_t* slot_of = nullptr;  // (all groups) index of a group among the active ones, -1 for others
};

// Internal linkage: these are compiled into the variants of the kernels too.
static inline std::int64_t bitmap_words(std::int64_t n_positions) { return (n_positions + 63) / 64; }
static inline std::int64_t position_bytes(std::int64_t n_positions) { return n_positions <= 65536 ? 2 : 4; }

// sums[16 · slot + position within the group] += value · weight for the features of the query, one after the other.
// Sums of positions that are no candidates are unspecified. Returns false if the weights are damaged.
using ScoreFeatures = bool (*)(const FeatureWeights& weights, const CandidateGroups& active,
                               const std::int32_t* features, const float* values, std::int64_t n, float* sums);

}  // namespace ramify
