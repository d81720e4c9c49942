#include "linear/grouped.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/isa.h"
#include "core/parallel.h"

namespace ramify {

namespace {

// Enough that a piece's preparation pays, few enough that threads share the work of a level with few pieces.
constexpr std::int64_t visits_a_task = 2048;

// Floats of unpacked rows that a thread keeps, if no query needs more.
constexpr std::int64_t wide_room = 1 << 21;

FeatureBlock block_of(const PackedView& level, std::int64_t feature) {
    FeatureBlock block;
    if (!read_block(level, feature, block)) throw DamagedTable();
    return block;
}

// Calls body(piece) for each row of a block, in order.
template <class Body>
void for_each_piece(const PackedView& level, const FeatureBlock& block, Body&& body) {
    if (block.list) {
        const int id_bytes = piece_id_bytes(level.n_pieces);
        for (std::int64_t i = 0; i < block.n_rows; ++i) {
            std::uint32_t piece = 0;
            std::memcpy(&piece, block.pieces + i * id_bytes, static_cast<std::size_t>(id_bytes));  // little-endian
            body(static_cast<std::int64_t>(piece));
        }
        return;
    }
    for (std::int64_t group = 0; group < (level.n_pieces + 63) / 64; ++group) {
        std::uint64_t bits;
        std::memcpy(&bits, block.pieces + 16 * group, sizeof bits);
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
    grouped.begin.assign(static_cast<std::size_t>(level.n_pieces) + 1, 0);
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const FeatureBlock block = block_of(level, static_cast<std::int64_t>(f));
        std::int64_t n_rows = 0, n_entries = 0;
        for_each_piece(level, block, [&](std::int64_t piece) {
            if (piece >= level.n_pieces || n_rows >= block.n_rows) throw DamagedTable();
            ++grouped.begin[static_cast<std::size_t>(piece) + 1];
            n_entries += block.counts[n_rows++] + 1;
        });
        if (2 * n_entries > block.end - block.entries) throw DamagedTable();
    }
    for (std::size_t p = 1; p < grouped.begin.size(); ++p) grouped.begin[p] += grouped.begin[p - 1];
    grouped.rows.resize(static_cast<std::size_t>(grouped.begin.back()));
    std::vector<std::int64_t> next(grouped.begin.begin(), grouped.begin.end() - 1);
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const FeatureBlock block = block_of(level, static_cast<std::int64_t>(f));
        const std::uint8_t* entries = block.entries;
        std::int64_t row = 0;
        for_each_piece(level, block, [&](std::int64_t piece) {
            const std::int32_t n = block.counts[row++] + 1;
            grouped.rows[static_cast<std::size_t>(next[static_cast<std::size_t>(piece)]++)] = {entries, static_cast<std::int32_t>(f), n};
            entries += 2 * n;
        });
    }
    return grouped;
}

void score_grouped(const PackedView& level, const GroupedLevel& grouped, const std::int64_t* pieces, const float* bias,
                   const QueryFeatures& queries, std::int64_t longest, const std::vector<std::int64_t>& begin,
                   const std::vector<Visit>& visits, int threads) {
    struct Task {
        std::int64_t piece, first, end;
    };
    std::vector<Task> tasks;
    for (std::int64_t p = 0; p < level.n_pieces; ++p)
        for (std::int64_t first = begin[static_cast<std::size_t>(p)]; first < begin[static_cast<std::size_t>(p) + 1]; first += visits_a_task)
            tasks.push_back({p, first, std::min(first + visits_a_task, begin[static_cast<std::size_t>(p) + 1])});

    struct Scratch {
        LargeVector<std::int32_t> place_of;
        LargeBuffer<float> wide;
        std::vector<VisitHit> hits;
        std::vector<const PieceRow*> first;
    };
    const std::int64_t n_wide = std::max(wide_room, (longest + 1) * piece_width);
    const auto n_tasks = static_cast<std::int64_t>(tasks.size());
    std::vector<Scratch> scratches(static_cast<std::size_t>(worker_count(n_tasks, threads)));
    parallel_for(n_tasks, threads, [&](std::int64_t t, int worker) {
        Scratch& s = scratches[static_cast<std::size_t>(worker)];
        if (s.place_of.empty()) {
            s.place_of.resize(static_cast<std::size_t>(level.n_features));
            s.wide.reserve(static_cast<std::size_t>(n_wide));
            s.hits.resize(static_cast<std::size_t>(longest) + 1);
            s.first.resize(static_cast<std::size_t>(longest));
        }
        const Task& task = tasks[static_cast<std::size_t>(t)];
        const auto p = static_cast<std::size_t>(task.piece);
        const PieceRows rows{grouped.rows.data() + grouped.begin[p], grouped.begin[p + 1] - grouped.begin[p], pieces[p + 1] - pieces[p],
                             bias + pieces[p], level.codebook};
        if (!hot().score_visits(rows, queries, visits.data() + task.first, task.end - task.first,
                                {s.place_of.data(), s.wide.data(), n_wide, s.hits.data(), s.first.data()}))
            throw DamagedTable();
    });
}

}  // namespace ramify
