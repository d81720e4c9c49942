#include "linear/grouped.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/scratch.h"

namespace ramify {

namespace {

// Enough that preparing a chunk pays off, few enough that threads can divide a level with few chunks.
constexpr std::int64_t visits_per_task = 2048;

// Floats of dense rows that a thread keeps, unless a query needs more.
constexpr std::int64_t wide_room = 1 << 21;

FeatureBlock block_of(const PackedView& level, std::int64_t feature) {
    FeatureBlock block;
    if (!read_block(level, feature, block)) throw DamagedTable();
    return block;
}

// Calls body(chunk) for each row of a block, in order.
template <class Body>
void for_each_chunk(const PackedView& level, const FeatureBlock& block, Body&& body) {
    if (block.list) {
        const int id_bytes = chunk_id_bytes(level.n_chunks);
        for (std::int64_t i = 0; i < block.n_rows; ++i) {
            std::uint32_t chunk = 0;
            std::memcpy(&chunk, block.chunks + i * id_bytes, static_cast<std::size_t>(id_bytes));  // little-endian
            body(static_cast<std::int64_t>(chunk));
        }
        return;
    }
    for (std::int64_t group = 0; group < (level.n_chunks + 63) / 64; ++group) {
        std::uint64_t bits;
        std::memcpy(&bits, block.chunks + 16 * group, sizeof bits);
        for (; bits != 0; bits &= bits - 1) body(64 * group + std::countr_zero(bits));
    }
}

}  // namespace

LevelUse use_of_level(const PackedView& level, const std::vector<std::int32_t>& counts) {
    LevelUse use;
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const std::int64_t n_rows = block_of(level, static_cast<std::int64_t>(f)).n_rows;
        use.rows += n_rows;
        use.hits += static_cast<double>(n_rows) * counts[f];
    }
    return use;
}

GroupedLevel group_level(const PackedView& level, const std::vector<std::int32_t>& counts) {
    GroupedLevel grouped;
    grouped.indptr.assign(static_cast<std::size_t>(level.n_chunks) + 1, 0);
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const FeatureBlock block = block_of(level, static_cast<std::int64_t>(f));
        std::int64_t n_rows = 0, n_entries = 0;
        for_each_chunk(level, block, [&](std::int64_t chunk) {
            if (chunk >= level.n_chunks || n_rows >= block.n_rows) throw DamagedTable();
            ++grouped.indptr[static_cast<std::size_t>(chunk) + 1];
            n_entries += block.counts[n_rows++] + 1;
        });
        if (2 * n_entries > block.end - block.entries) throw DamagedTable();
    }
    accumulate(grouped.indptr);
    grouped.rows.resize(static_cast<std::size_t>(grouped.indptr.back()));
    std::vector<std::int64_t> next(grouped.indptr.begin(), grouped.indptr.end() - 1);
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const FeatureBlock block = block_of(level, static_cast<std::int64_t>(f));
        const std::uint8_t* entries = block.entries;
        std::int64_t row = 0;
        for_each_chunk(level, block, [&](std::int64_t chunk) {
            const std::int32_t n = block.counts[row++] + 1;
            grouped.rows[static_cast<std::size_t>(next[static_cast<std::size_t>(chunk)]++)] = {
                entries, static_cast<std::int32_t>(f), n};
            entries += 2 * n;
        });
    }
    return grouped;
}

void score_grouped(const PackedView& level, const GroupedLevel& grouped, const std::int64_t* chunks, const float* bias,
                   const QueryFeatures& queries, std::int64_t longest, const std::vector<std::int64_t>& indptr,
                   const std::vector<Visit>& visits, int threads) {
    struct Task {
        std::int64_t chunk, first, end;
    };
    std::vector<Task> tasks;
    for (std::int64_t p = 0; p < level.n_chunks; ++p)
        for (std::int64_t first = indptr[static_cast<std::size_t>(p)]; first < indptr[static_cast<std::size_t>(p) + 1];
             first += visits_per_task)
            tasks.push_back({p, first, std::min(first + visits_per_task, indptr[static_cast<std::size_t>(p) + 1])});

    struct Scratch {
        LargeVector<std::int32_t> row_of;
        LargeBuffer<float> wide;
        std::vector<VisitHit> hits;
        std::vector<const ChunkRow*> first;
    };
    const std::int64_t n_wide = std::max(wide_room, (longest + 1) * chunk_width);
    const auto n_tasks = static_cast<std::int64_t>(tasks.size());
    ScratchPool<Scratch> pool;
    parallel_for(n_tasks, threads, [&](std::int64_t t, int) {
        const ScratchPool<Scratch>::Lease lease(pool);
        Scratch& s = *lease;
        if (s.row_of.empty()) {
            s.row_of.resize(static_cast<std::size_t>(level.n_features));
            s.wide.reserve(static_cast<std::size_t>(n_wide));
            s.hits.resize(static_cast<std::size_t>(longest) + 1);
            s.first.resize(static_cast<std::size_t>(longest));
        }
        const Task& task = tasks[static_cast<std::size_t>(t)];
        const auto p = static_cast<std::size_t>(task.chunk);
        const ChunkRows rows{grouped.rows.data() + grouped.indptr[p], grouped.indptr[p + 1] - grouped.indptr[p],
                             chunks[p + 1] - chunks[p], bias + chunks[p], level.codebook};
        if (!hot().score_visits(rows, queries, visits.data() + task.first, task.end - task.first,
                                {s.row_of.data(), s.wide.data(), n_wide, s.hits.data(), s.first.data()}))
            throw DamagedTable();
    });
}

}  // namespace ramify
