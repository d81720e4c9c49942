// See visit_kernel.h and packed.h. Compiled once for each instruction set; core/kernel_table.cpp says what that
// forbids.
#include "linear/visit_kernel.h"

#include <string.h>

#include "core/lanes.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

// sums[8 V] += value * weights for each hit, in their order.
template <int V>
void add_hits(const VisitHit* hits, std::int64_t n, std::int64_t first, float* sums) {
    F8 sum[V];
    for (int i = 0; i < V; ++i) sum[i] = load8(sums + first + 8 * i);
    for (std::int64_t h = 0; h < n; ++h) {
        const F8 value = all8(hits[h].value);
        for (int i = 0; i < V; ++i) sum[i] += value * load8(hits[h].wide + first + 8 * i);
    }
    for (int i = 0; i < V; ++i) store8(sums + first + 8 * i, sum[i]);
}

void add_all(const VisitHit* hits, std::int64_t n, std::int64_t stride, float* sums) {
    // In parts of at most eight registers, as equal as possible.
    const std::int64_t n_registers = stride / 8, n_parts = (n_registers + 7) / 8;
    for (std::int64_t part = 0, at = 0; part < n_parts; ++part) {
        const std::int64_t width = (n_registers - at + n_parts - part - 1) / (n_parts - part);
        switch (width) {
            case 1: add_hits<1>(hits, n, 8 * at, sums); break;
            case 2: add_hits<2>(hits, n, 8 * at, sums); break;
            case 3: add_hits<3>(hits, n, 8 * at, sums); break;
            case 4: add_hits<4>(hits, n, 8 * at, sums); break;
            case 5: add_hits<5>(hits, n, 8 * at, sums); break;
            case 6: add_hits<6>(hits, n, 8 * at, sums); break;
            case 7: add_hits<7>(hits, n, 8 * at, sums); break;
            default: add_hits<8>(hits, n, 8 * at, sums); break;
        }
        at += width;
    }
}

// Writes a row of the chunk as plain floats.
bool widen(const ChunkRow& row, const ChunkRows& chunk, std::int64_t stride, float* weights) {
    memset(weights, 0, static_cast<unsigned long>(stride) * sizeof(float));
    for (std::int32_t i = 0; i < row.n; ++i) {
        const std::uint8_t column = row.entries[row.n + i];
        if (column >= chunk.width) return false;
        weights[column] = chunk.codebook[row.entries[i]];
    }
    return true;
}

bool score(const ChunkRows& chunk, const QueryFeatures& queries, const Visit* visits, std::int64_t n_visits,
           const VisitScratch& scratch) {
    const std::int64_t stride = wide_stride(chunk.width), room = scratch.n_wide / stride - 1;  // row 0 is unused
    auto reset = [&] {
        for (std::int64_t i = 0; i < chunk.n; ++i)
            scratch.row_of[chunk.rows[i].feature] = static_cast<std::int32_t>(i + 1);
    };
    std::int64_t n_wide = 0;
    bool intact = true;
    reset();
    for (std::int64_t v = 0; v < n_visits && intact; ++v) {
        const std::int64_t begin = queries.indptr[visits[v].row], end = queries.indptr[visits[v].row + 1];
        if (n_wide + end - begin > room) {
            reset();
            n_wide = 0;
        }
        // Rows that are visited for the first time lie anywhere in the table: prefetch all before the first is read.
        const std::int64_t n_before = n_wide;
        std::int64_t n_hits = 0;
        for (std::int64_t i = begin; i < end; ++i) {
            std::int32_t& at = scratch.row_of[queries.features[i]];
            if (at > 0) {
                const ChunkRow& row = chunk.rows[at - 1];
                __builtin_prefetch(row.entries);
                scratch.first[n_wide++ - n_before] = &row;
                at = static_cast<std::int32_t>(-n_wide);
            }
            scratch.hits[n_hits] = {scratch.wide - at * stride, queries.values[i]};
            n_hits += at != 0;
        }
        for (std::int64_t i = n_before; i < n_wide; ++i)
            intact &= widen(*scratch.first[i - n_before], chunk, stride, scratch.wide + (i + 1) * stride);
        float* sums = visits[v].sums;
        for (std::int64_t j = 0; j < chunk.width; ++j) sums[j] = chunk.bias[j];
        for (std::int64_t j = chunk.width; j < stride; ++j) sums[j] = 0;
        add_all(scratch.hits, n_hits, stride, sums);
    }
    for (std::int64_t i = 0; i < chunk.n; ++i) scratch.row_of[chunk.rows[i].feature] = 0;
    return intact;
}

}  // namespace

extern const ScoreVisits score_visits;
const ScoreVisits score_visits = score;

}  // namespace ramify::RAMIFY_VARIANT
