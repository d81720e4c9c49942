// See beam_kernel.h and packed.h. Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/beam_kernel.h"

#include <string.h>

namespace ramify::RAMIFY_VARIANT {

namespace {

template <class T>
inline T read(const std::uint8_t* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// Sum of n bytes; up to 7 bytes behind them are read.
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
    const ActiveChunks& active;
    Hit* hits;
    std::int64_t n_hits = 0;
    int id_bytes = chunk_id_bytes(level.n_chunks);

    std::int64_t id_at(const std::uint8_t* ids, std::int64_t i) const {
        if (id_bytes == 1) return ids[i];
        if (id_bytes == 2) return read<std::uint16_t>(ids + 2 * i);
        return read<std::uint32_t>(ids + 4 * i);
    }

    bool hit(std::int32_t slot, const std::uint8_t* entries, std::int64_t entry, std::int64_t n,
             const std::uint8_t* end, float value) {
        const std::uint8_t* at = entries + 2 * entry;
        if (at + 2 * n > end) return false;
        __builtin_prefetch(at);
        hits[n_hits++] = {at, static_cast<std::int32_t>(n), slot, value};
        return true;
    }

    template <class Id>
    bool scan_list(const FeatureBlock& block, float value) {
        std::int64_t entry = 0;
        for (std::int64_t i = 0; i < block.n_rows; ++i) {
            const std::int64_t n = block.counts[i] + 1;
            const auto chunk =
                static_cast<std::int64_t>(read<Id>(block.chunks + i * static_cast<std::int64_t>(sizeof(Id))));
            if (chunk >= level.n_chunks) return false;
            const std::int32_t slot = active.slot_of[chunk];
            if (slot >= 0 && !hit(slot, block.entries, entry, n, block.end, value)) return false;
            entry += n;
        }
        return true;
    }

    bool search_list(const FeatureBlock& block, float value) {
        const std::int64_t n_rows = block.n_rows;
        std::int64_t low = 0, counted = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n && low < n_rows; ++s) {
            const std::int64_t wanted = active.chunks[s];
            std::int64_t high = n_rows;
            while (low < high) {
                const std::int64_t middle = (low + high) / 2;
                if (id_at(block.chunks, middle) < wanted) low = middle + 1;
                else high = middle;
            }
            if (low == n_rows || id_at(block.chunks, low) != wanted) continue;
            entry += sum_bytes(block.counts + counted, low - counted) + (low - counted);
            counted = low;
            if (!hit(static_cast<std::int32_t>(s), block.entries, entry, block.counts[low] + 1, block.end, value))
                return false;
        }
        return true;
    }

    bool scan_bitmap(const FeatureBlock& block, float value) {
        // Pieces ascend, so entries are counted on from the last hit of the same group.
        std::int64_t at_group = -1, row = 0, entry = 0;
        for (std::int64_t s = 0; s < active.n; ++s) {
            const std::int32_t chunk = active.chunks[s];
            const std::uint8_t* group = block.chunks + 16 * (chunk / 64);
            const std::uint64_t bits = read<std::uint64_t>(group), bit = std::uint64_t{1} << (chunk % 64);
            if ((bits & bit) == 0) continue;
            if (chunk / 64 != at_group) {
                at_group = chunk / 64;
                row = read<std::uint32_t>(group + 8);
                entry = read<std::uint32_t>(group + 12);
            }
            const std::int64_t next = read<std::uint32_t>(group + 8) + __builtin_popcountll(bits & (bit - 1));
            if (next >= block.n_rows) return false;
            entry += sum_bytes(block.counts + row, next - row) + next - row;
            row = next;
            if (!hit(static_cast<std::int32_t>(s), block.entries, entry, block.counts[row] + 1, block.end, value))
                return false;
        }
        return true;
    }

    bool add_feature(std::int64_t f, float value) {
        FeatureBlock block;
        if (!read_block(level, f, block)) return false;
        if (block.n_rows == 0) return true;
        if (!block.list) return scan_bitmap(block, value);
        if (block.n_rows > 8 * active.n) return search_list(block, value);
        if (id_bytes == 1) return scan_list<std::uint8_t>(block, value);
        if (id_bytes == 2) return scan_list<std::uint16_t>(block, value);
        return scan_list<std::uint32_t>(block, value);
    }
};

bool score(const PackedView& level, const ActiveChunks& active, const std::int32_t* features, const float* values,
           std::int64_t n, Hit* hits, float* sums) {
    for (std::int64_t from = 0; from < n; from += features_at_once) {
        const std::int64_t to = from + features_at_once < n ? from + features_at_once : n;
        // The blocks lie anywhere in memory: prefetch all of them first.
        for (std::int64_t i = from; i < to; ++i) __builtin_prefetch(level.block_starts + features[i]);
        for (std::int64_t i = from; i < to; ++i) {
            const std::uint8_t* block = level.table + level.block_starts[features[i]] * block_unit;
            __builtin_prefetch(block);
            __builtin_prefetch(block + 64);
        }
        Collector collector{level, active, hits};
        for (std::int64_t i = from; i < to; ++i)
            if (!collector.add_feature(features[i], values[i])) return false;
        for (std::int64_t h = 0; h < collector.n_hits; ++h) {
            const Hit& hit = hits[h];
            const std::uint8_t* columns = hit.entries + hit.n;
            float* sum = sums + hit.slot * chunk_width;
            for (std::int32_t i = 0; i < hit.n; ++i) sum[columns[i]] += hit.value * level.codebook[hit.entries[i]];
        }
    }
    return true;
}

}  // namespace

extern const ScoreChunks score_chunks;
const ScoreChunks score_chunks = score;

}  // namespace ramify::RAMIFY_VARIANT
