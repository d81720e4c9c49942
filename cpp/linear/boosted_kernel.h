// Evaluation of boosted trees; compiled for several instruction sets (core/isa.h).
#pragma once

#include <cstdint>

namespace ramify {

// Trees of at most 32 leaves. A split says which leaves are out of reach where  value > threshold: those to its left.
// The first leaf that no split excludes is the one that a walk from the root ends at (QuickScorer, Lucchese et al.
// 2015), so that all splits are evaluated without a branch, for several rows at once.
struct BoostedView {
    std::int64_t n_trees = 0;
    const std::int64_t* indptr = nullptr;    // (n_trees + 1) splits of each tree
    const std::int32_t* features = nullptr;  // (splits) columns
    const float* thresholds = nullptr;       // (splits)
    const std::uint32_t* masks = nullptr;    // (splits) bits of the leaves that remain
    const float* leaves = nullptr;           // (n_trees, 32) values
};

inline constexpr std::int64_t boosted_lanes = 32;
inline constexpr std::int64_t boosted_leaves = 32;

// Sums of leaves, in the order of the trees, of boosted_lanes rows: feature f of row j is columns[f * stride + j].
using BoostedSums = void (*)(const BoostedView& trees, const float* columns, std::int64_t stride, float* sums);

}  // namespace ramify
