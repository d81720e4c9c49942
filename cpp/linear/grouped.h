// Scores of many queries at once, chunk by chunk: all queries that score a chunk visit it in a row, so that its weights
// are unpacked once and stay in the cache. The sums are those of score_chunks, bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"
#include "linear/packed.h"
#include "linear/visit_kernel.h"

namespace ramify {

// The rows of a packed level by chunk, for the features that some query has.
struct GroupedLevel {
    std::vector<std::int64_t> indptr;  // (n_chunks + 1)
    LargeVector<ChunkRow> rows;        // features ascending in each chunk
};

// How much of a level the features of the queries touch.
struct LevelUse {
    std::int64_t rows = 0;  // rows of the level that some query has a feature for
    double hits = 0;        // pairs of a query feature and one of its rows
};

// counts[f]: number of queries that have the feature.
LevelUse use_of_level(const PackedView& level, const std::vector<std::int32_t>& counts);
GroupedLevel group_level(const PackedView& level, const std::vector<std::int32_t>& counts);

// Scores of all visits; those of chunk p are [indptr[p], indptr[p + 1]). chunks: first node of each chunk; longest: the
// largest number of features of a query.
void score_grouped(const PackedView& level, const GroupedLevel& grouped, const std::int64_t* chunks, const float* bias,
                   const QueryFeatures& queries, std::int64_t longest, const std::vector<std::int64_t>& indptr,
                   const std::vector<Visit>& visits, int threads);

}  // namespace ramify
