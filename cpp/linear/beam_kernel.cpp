// See beam_kernel.h and packed.h. Compiled once for each instruction set: no standard containers here.
#include "linear/beam_kernel.h"

#include <string.h>

#include "core/hot_kernels.h"
#include "core/lanes.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

template <class T>
inline T read(const std::uint8_t* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// Sum of n bytes; up to 7 bytes behind them may be read.
inline std::int64_t sum_bytes(const std::uint8_t* p, std::int64_t n) {
    std::uint64_t sum = 0;
    while (n > 0) {
        std::uint64_t x = read<std::uint64_t>(p);
        if (n < 8) x &= (std::uint64_t{1} << (8 * n)) - 1;
        x = (x & 0x00ff00ff00ff00ffull) + ((x >> 8) & 0x00ff00ff00ff00ffull);
        sum += (x * 0x0001000100010001ull) >> 48;
        p += 8;
        n -= 8;
    }
    return static_cast<std::int64_t>(sum);
}

struct Collector {
    const PackedView& level;
    const ActivePieces& active;
    Hit* hits;
    std::int64_t n_hits = 0;
    int id_bytes = piece_id_bytes(level.n_pieces);

    std::int64_t id_at(const std::uint8_t* ids, std::int64_t i) const {
        if (id_bytes == 1) return ids[i];
        if (id_bytes == 2) return read<std::uint16_t>(ids + 2 * i);
        return read<std::uint32_t>(ids + 4 * i);
    }

    bool hit(std::int32_t slot, const std::uint8_t* entries, std::int64_t entry, std::int64_t n, const std::uint8_t* end, float value) {
        const std::uint8_t* at = entries + 2 * entry;
        if (at + 2 * n > end) return false;
        __builtin_prefetch(at);
        hits[n_hits++] = {at, static_cast<std::int32_t>(n), slot, value};
        return true;
    }

    template <class Id>
    bool walk_list(const FeatureBlock& block, float value) {
        std::int64_t entry = 0;
        for (std::int64_t i = 0; i < block.n_rows; ++i) {
            const std::int64_t n = block.counts[i] + 1;
            const auto piece = static_cast<std::int64_t>(read<Id>(block.pieces + i * static_cast<std::int64_t>(sizeof(Id))));
            if (piece >= level.n_pieces) return false;
            const std::int32_t slot = active.slot_of[piece];
            if (slot >= 0 && !hit(slot, block.entries, entry, n, block.end, value)) return false;
            entry += n;
        }
        return true;
    }

    bool search_list(const FeatureBlock& block, float value) {
        const std::int64_t n_rows = block.n_rows;
        std::int64_t low = 0, counted = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n && low < n_rows; ++s) {
            const std::int64_t wanted = active.pieces[s];
            std::int64_t high = n_rows;
            while (low < high) {
                const std::int64_t middle = (low + high) / 2;
                if (id_at(block.pieces, middle) < wanted) low = middle + 1;
                else high = middle;
            }
            if (low == n_rows || id_at(block.pieces, low) != wanted) continue;
            entry += sum_bytes(block.counts + counted, low - counted) + (low - counted);
            counted = low;
            if (!hit(static_cast<std::int32_t>(s), block.entries, entry, block.counts[low] + 1, block.end, value)) return false;
        }
        return true;
    }

    bool bitmap(const FeatureBlock& block, float value) {
        // Pieces ascend, so entries are counted on from the last hit of the same group.
        std::int64_t at_group = -1, row = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n; ++s) {
            const std::int32_t piece = active.pieces[s];
            const std::uint8_t* group = block.pieces + 16 * (piece / 64);
            const std::uint64_t bits = read<std::uint64_t>(group), bit = std::uint64_t{1} << (piece % 64);
            if ((bits & bit) == 0) continue;
            if (piece / 64 != at_group) {
                at_group = piece / 64;
                row = read<std::uint32_t>(group + 8);
                entry = read<std::uint32_t>(group + 12);
            }
            const std::int64_t next = read<std::uint32_t>(group + 8) + __builtin_popcountll(bits & (bit - 1));
            if (next >= block.n_rows) return false;
            entry += sum_bytes(block.counts + row, next - row) + next - row;
            row = next;
            if (!hit(static_cast<std::int32_t>(s), block.entries, entry, block.counts[row] + 1, block.end, value)) return false;
        }
        return true;
    }

    bool feature(std::int64_t f, float value) {
        FeatureBlock block;
        if (!read_block(level, f, block)) return false;
        if (block.n_rows == 0) return true;
        if (!block.list) return bitmap(block, value);
        if (block.n_rows > 8 * active.n) return search_list(block, value);
        if (id_bytes == 1) return walk_list<std::uint8_t>(block, value);
        if (id_bytes == 2) return walk_list<std::uint16_t>(block, value);
        return walk_list<std::uint32_t>(block, value);
    }
};

}  // namespace

bool score_pieces(const PackedView& level, const ActivePieces& active, const std::int32_t* features, const float* values,
                  std::int64_t n, Hit* hits, float* sums) {
    for (std::int64_t from = 0; from < n; from += features_at_once) {
        const std::int64_t to = from + features_at_once < n ? from + features_at_once : n;
        // Memory is slow and there is much to wait for: ask for everything first.
        for (std::int64_t i = from; i < to; ++i) __builtin_prefetch(level.heads + features[i]);
        for (std::int64_t i = from; i < to; ++i) {
            const std::uint8_t* block = level.table + level.heads[features[i]] * block_unit;
            __builtin_prefetch(block);
            __builtin_prefetch(block + 64);
        }
        Collector collector{level, active, hits};
        for (std::int64_t i = from; i < to; ++i)
            if (!collector.feature(features[i], values[i])) return false;
        for (std::int64_t h = 0; h < collector.n_hits; ++h) {
            const Hit& hit = hits[h];
            const std::uint8_t* columns = hit.entries + hit.n;
            float* sum = sums + hit.slot * piece_width;
            for (std::int32_t i = 0; i < hit.n; ++i) sum[columns[i]] += hit.value * level.codebook[hit.entries[i]];
        }
    }
    return true;
}

namespace {

// sums[8 V] += value * weights for each hit, in their order.
template <int V>
void add_hits(const VisitHit* hits, std::int64_t n, std::int64_t offset, float* sums) {
    F8 sum[V];
    for (int i = 0; i < V; ++i) sum[i] = load8(sums + offset + 8 * i);
    for (std::int64_t h = 0; h < n; ++h) {
        const F8 value = all8(hits[h].value);
        for (int i = 0; i < V; ++i) sum[i] += value * load8(hits[h].wide + offset + 8 * i);
    }
    for (int i = 0; i < V; ++i) store8(sums + offset + 8 * i, sum[i]);
}

void add_all(const VisitHit* hits, std::int64_t n, std::int64_t stride, float* sums) {
    // As even parts as eight registers allow.
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

bool widen(const PieceRow& row, const PieceRows& piece, std::int64_t stride, float* weights) {
    memset(weights, 0, static_cast<unsigned long>(stride) * sizeof(float));
    for (std::int32_t i = 0; i < row.n; ++i) {
        const std::uint8_t column = row.entries[row.n + i];
        if (column >= piece.width) return false;
        weights[column] = piece.codebook[row.entries[i]];
    }
    return true;
}

}  // namespace

bool score_visits(const PieceRows& piece, const QueryFeatures& queries, const Visit* visits, std::int64_t n_visits,
                  const VisitScratch& scratch) {
    const std::int64_t stride = wide_stride(piece.width), room = scratch.n_wide / stride - 1;  // row 0 stands for nothing
    auto forget = [&] {
        for (std::int64_t i = 0; i < piece.n; ++i) scratch.place_of[piece.rows[i].feature] = static_cast<std::int32_t>(i + 1);
    };
    std::int64_t n_wide = 0;
    bool sound = true;
    forget();
    for (std::int64_t v = 0; v < n_visits && sound; ++v) {
        const std::int64_t begin = queries.indptr[visits[v].row], end = queries.indptr[visits[v].row + 1];
        if (n_wide + end - begin > room) {
            forget();
            n_wide = 0;
        }
        // Rows that are visited for the first time lie anywhere in the table: ask for all of them before the first is read.
        const std::int64_t n_before = n_wide;
        std::int64_t n_hits = 0;
        for (std::int64_t i = begin; i < end; ++i) {
            std::int32_t& place = scratch.place_of[queries.features[i]];
            if (place > 0) {
                const PieceRow& row = piece.rows[place - 1];
                __builtin_prefetch(row.entries);
                scratch.first[n_wide++ - n_before] = &row;
                place = static_cast<std::int32_t>(-n_wide);
            }
            scratch.hits[n_hits] = {scratch.wide - place * stride, queries.values[i]};
            n_hits += place != 0;
        }
        for (std::int64_t i = n_before; i < n_wide; ++i)
            sound &= widen(*scratch.first[i - n_before], piece, stride, scratch.wide + (i + 1) * stride);
        float* sums = visits[v].sums;
        for (std::int64_t j = 0; j < piece.width; ++j) sums[j] = piece.bias[j];
        for (std::int64_t j = piece.width; j < stride; ++j) sums[j] = 0;
        add_all(scratch.hits, n_hits, stride, sums);
    }
    for (std::int64_t i = 0; i < piece.n; ++i) scratch.place_of[piece.rows[i].feature] = 0;
    return sound;
}

}  // namespace ramify::RAMIFY_VARIANT
