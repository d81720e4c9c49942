// The scores of many queries at once, piece by piece: all queries that look at a piece visit it in a row, so that its
// weights are unpacked once and stay in the cache. The sums are those of score_pieces, bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/beam_kernel.h"
#include "core/memory.h"
#include "linear/packed.h"

namespace ramify {

// The rows of a packed level by piece, of the features that some query has.
struct GroupedLevel {
    std::vector<std::int64_t> begin;  // (n_pieces + 1)
    LargeVector<PieceRow> rows;       // features ascending in each piece
};

// What the queries know about a level before the search gets there.
struct LevelUse {
    std::int64_t rows = 0;  // rows of the level that some query has a feature for
    double hits = 0;        // pairs of a query's feature and a row of it
};

// counts[f]: how many queries have the feature.
LevelUse use_of_level(const PackedView& level, const std::vector<std::int32_t>& counts);
GroupedLevel group_level(const PackedView& level, const std::vector<std::int32_t>& counts);

// Scores of all visits; those of piece p are [begin[p], begin[p + 1]). pieces: first column of each piece; longest: the
// most features that a query has.
void score_grouped(const PackedView& level, const GroupedLevel& grouped, const std::int64_t* pieces, const float* bias,
                   const QueryFeatures& queries, std::int64_t longest, const std::vector<std::int64_t>& begin,
                   const std::vector<Visit>& visits, int threads);

}  // namespace ramify
