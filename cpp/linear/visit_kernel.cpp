// See visit_kernel.h. Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/visit_kernel.h"

#include "linear/packed_row.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

void score(const ChunkRows& chunk, const QueryFeatures& queries, const Visit* visits, std::int64_t n_visits,
           const FeatureRanks& ranks) {
    for (std::int64_t i = 0; i < chunk.n; ++i) {
        const std::int32_t f = chunk.features[i];
        if (ranks.bits[f / 64] == 0) ranks.before[f / 64] = static_cast<std::int32_t>(i);
        ranks.bits[f / 64] |= std::uint64_t{1} << (f % 64);
    }
    const std::int64_t stride = wide_stride(chunk.width);
    float sums[chunk_width];
    for (std::int64_t v = 0; v < n_visits; ++v) {
        for (std::int64_t j = 0; j < chunk.width; ++j) sums[j] = chunk.bias[j];
        for (std::int64_t j = chunk.width; j < stride; ++j) sums[j] = 0.0f;
        const std::int64_t end = queries.indptr[visits[v].row + 1];
        for (std::int64_t from = queries.indptr[visits[v].row]; from < end; from += max_room) {
            const std::int64_t to = from + max_room < end ? from + max_room : end;
            // Without branches, which would be mispredicted half of the time.
            std::int64_t n_hits = 0;
            for (std::int64_t i = from; i < to; ++i) {
                const std::int32_t f = queries.features[i];
                const std::uint64_t bits = ranks.bits[f / 64], bit = std::uint64_t{1} << (f % 64);
                ranks.rows[n_hits] = ranks.before[f / 64] + __builtin_popcountll(bits & (bit - 1));
                ranks.values[n_hits] = queries.values[i] * chunk.scale;
                n_hits += (bits & bit) != 0;
            }
            std::int64_t n_early = 0, n_late = 0;
            for (std::int64_t h = 0; h < n_hits; ++h) {
                const std::uint32_t start = chunk.starts[ranks.rows[h]];
                ranks.early[n_early] = ranks.late[n_late] = {chunk.table + start / 2, ranks.values[h]};
                n_early += start % 2;
                n_late += 1 - start % 2;
            }
            add_rows(ranks.early, n_early, chunk.width, chunk.mantissa_bits, sums);
            add_rows(ranks.late, n_late, chunk.width, chunk.mantissa_bits, sums);
        }
        memcpy(visits[v].sums, sums, static_cast<unsigned long>(stride) * sizeof(float));
    }
    for (std::int64_t i = 0; i < chunk.n; ++i) ranks.bits[chunk.features[i] / 64] = 0;
}

}  // namespace

extern const ScoreVisits score_visits;
const ScoreVisits score_visits = score;

}  // namespace ramify::RAMIFY_VARIANT
