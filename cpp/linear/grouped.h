// Scores of many queries at once, chunk by chunk: all queries that score a chunk visit it in a row, while its weights
// are in the cache. The sums are those of a single query, bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"
#include "linear/beam.h"
#include "linear/visit_kernel.h"

namespace ramify {

// The weights of a level by chunk, for the features that some query has.
struct GroupedLevel {
    std::vector<std::int64_t> row_indptr;    // (n_chunks + 1) first row of each chunk
    std::vector<std::int64_t> table_indptr;  // (n_chunks + 1) first byte of each chunk
    LargeVector<std::int32_t> features;      // of each row, ascending in each chunk
    LargeVector<std::uint32_t> starts;       // of each row; see ChunkRows
    LargeVector<std::uint8_t> table;
};

// counts[f]: number of queries that have the feature. Returns pairs of a query feature and one of its weights, relative
// to the weights of these features: how often a weight would be visited if every query visited every chunk.
double visits_per_weight(const PackedView& level, const std::vector<std::int32_t>& counts);
// Empty if a chunk has more than 2 GB.
GroupedLevel group_level(const BeamLevel& level, const std::vector<std::int32_t>& counts);

// Scores of all visits; those of chunk p are [indptr[p], indptr[p + 1]).
void score_grouped(const BeamLevel& level, const GroupedLevel& grouped, const QueryFeatures& queries,
                   const std::vector<std::int64_t>& indptr, const std::vector<Visit>& visits, int threads);

}  // namespace ramify
