// See beam_kernel.h and packed.h. Compiled once for each instruction set: no standard containers here.
#include "beam_kernel.h"

#include <string.h>

#include "hot_kernels.h"

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
    bool walk_list(const std::uint8_t* ids, const std::uint8_t* counts, std::int64_t n_rows, const std::uint8_t* end, float value) {
        const std::uint8_t* entries = counts + n_rows;
        std::int64_t entry = 0;
        for (std::int64_t i = 0; i < n_rows; ++i) {
            const std::int64_t n = counts[i] + 1;
            const auto piece = static_cast<std::int64_t>(read<Id>(ids + i * static_cast<std::int64_t>(sizeof(Id))));
            if (piece >= level.n_pieces) return false;
            const std::int32_t slot = active.slot_of[piece];
            if (slot >= 0 && !hit(slot, entries, entry, n, end, value)) return false;
            entry += n;
        }
        return true;
    }

    bool search_list(const std::uint8_t* ids, const std::uint8_t* counts, std::int64_t n_rows, const std::uint8_t* end, float value) {
        const std::uint8_t* entries = counts + n_rows;
        std::int64_t low = 0, counted = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n && low < n_rows; ++s) {
            const std::int64_t wanted = active.pieces[s];
            std::int64_t high = n_rows;
            while (low < high) {
                const std::int64_t middle = (low + high) / 2;
                if (id_at(ids, middle) < wanted) low = middle + 1;
                else high = middle;
            }
            if (low == n_rows || id_at(ids, low) != wanted) continue;
            entry += sum_bytes(counts + counted, low - counted) + (low - counted);
            counted = low;
            if (!hit(static_cast<std::int32_t>(s), entries, entry, counts[low] + 1, end, value)) return false;
        }
        return true;
    }

    bool bitmap(const std::uint8_t* groups, std::int64_t n_rows, const std::uint8_t* end, float value) {
        const std::int64_t n_groups = (level.n_pieces + 63) / 64;
        const std::uint8_t* counts = groups + 16 * n_groups;
        const std::uint8_t* entries = counts + n_rows;
        // Pieces ascend, so entries are counted on from the last hit of the same group.
        std::int64_t at_group = -1, row = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n; ++s) {
            const std::int32_t piece = active.pieces[s];
            const std::uint8_t* group = groups + 16 * (piece / 64);
            const std::uint64_t bits = read<std::uint64_t>(group), bit = std::uint64_t{1} << (piece % 64);
            if ((bits & bit) == 0) continue;
            if (piece / 64 != at_group) {
                at_group = piece / 64;
                row = read<std::uint32_t>(group + 8);
                entry = read<std::uint32_t>(group + 12);
            }
            const std::int64_t next = read<std::uint32_t>(group + 8) + __builtin_popcountll(bits & (bit - 1));
            if (next >= n_rows) return false;
            entry += sum_bytes(counts + row, next - row) + next - row;
            row = next;
            if (!hit(static_cast<std::int32_t>(s), entries, entry, counts[row] + 1, end, value)) return false;
        }
        return true;
    }

    bool feature(std::int64_t f, float value) {
        const std::int64_t begin = level.heads[f] * block_unit, finish = level.heads[f + 1] * block_unit;
        if (begin == finish) return true;
        if (begin > finish || finish + table_padding > level.table_size) return false;
        const std::uint8_t* block = level.table + begin;
        const std::uint8_t* end = level.table + finish;
        const auto header = read<std::uint32_t>(block);
        const std::int64_t n_rows = header / 2;
        const bool list = header % 2 == 0;
        const std::uint8_t* ids = block + block_header;
        const std::int64_t room = list ? n_rows * id_bytes : 16 * ((level.n_pieces + 63) / 64);
        if (block_header + room + n_rows > finish - begin) return false;
        if (!list) return bitmap(ids, n_rows, end, value);
        const std::uint8_t* counts = ids + room;
        if (n_rows > 8 * active.n) return search_list(ids, counts, n_rows, end, value);
        if (id_bytes == 1) return walk_list<std::uint8_t>(ids, counts, n_rows, end, value);
        if (id_bytes == 2) return walk_list<std::uint16_t>(ids, counts, n_rows, end, value);
        return walk_list<std::uint32_t>(ids, counts, n_rows, end, value);
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

}  // namespace ramify::RAMIFY_VARIANT
