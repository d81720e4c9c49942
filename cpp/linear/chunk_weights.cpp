#include "linear/chunk_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/parallel.h"

namespace ramify {

namespace {

// What a query alone adds first: weights in lists, then rows without a mask, then rows with one. The sums of a batch
// have the same bits only if they are added in the same order.
enum class Kind : std::uint8_t { list = 0, few = 1, mask = 2 };

constexpr std::int64_t n_parts = 16;  // of the features

// The weights of a feature in one chunk.
struct ChunkRow {
    std::int32_t chunk;
    std::int64_t n;
    Kind kind;
    std::int64_t first;         // list: its first weight
    const std::uint8_t* bytes;  // otherwise: the row
};

// Where a row comes from, in little memory.
struct RowSource {
    const std::uint8_t* bytes = nullptr;
    std::uint32_t first = 0;
    std::uint16_t last_weight = 0;
    Kind kind = Kind::list;

    std::int64_t n_weights() const { return std::int64_t{last_weight} + 1; }
};

// Reads the blocks of features. Throws DamagedTable.
class BlockReader {
public:
    explicit BlockReader(const BeamLevel& level)
        : level_(level), id_bytes_(node_id_bytes(level.n_nodes)), chunk_of_(static_cast<std::size_t>(level.n_nodes)) {
        for (std::size_t p = 0; p + 1 < level.chunks.size(); ++p)
            std::fill(chunk_of_.begin() + level.chunks[p], chunk_of_.begin() + level.chunks[p + 1],
                      static_cast<std::int32_t>(p));
    }

    FeatureBlock block_of(std::int64_t feature) const {
        FeatureBlock block;
        if (!read_block(level_.weights, feature, block)) throw DamagedTable();
        return block;
    }

    // Calls body(row) for each chunk that has weights of a feature, ascending.
    template <class Body>
    void for_each_row(const FeatureBlock& block, Body&& body) const {
        if (block.size == 0) return;
        if (block.is_list) read_list(block, body);
        else read_bitmap(block, body);
    }

    // Writes a row as in packed.h.
    void write(std::int64_t feature, std::int32_t chunk, const RowSource& row, std::uint8_t* at) const {
        const std::int64_t n = row.n_weights();
        if (row.kind != Kind::list) {
            std::memcpy(at, row.bytes, static_cast<std::size_t>(size_of(chunk, n)));
            return;
        }
        const FeatureBlock block = block_of(feature);
        *at++ = static_cast<std::uint8_t>(row.last_weight);
        const std::int64_t n_mask = mask_size(chunk);
        const bool has_mask = n_mask <= n;
        if (has_mask) std::memset(at, 0, static_cast<std::size_t>(n_mask));
        std::uint8_t* const codes = has_mask ? at + n_mask : at;
        std::memcpy(codes, block.offsets + row.first, static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t column = node_at(block, row.first + i) - level_.chunks[static_cast<std::size_t>(chunk)];
            if (has_mask) at[column / 8] = static_cast<std::uint8_t>(at[column / 8] | 1 << (column % 8));
            else codes[n + i] = static_cast<std::uint8_t>(column);
        }
    }
    // Bytes of a row of n weights.
    std::int64_t size_of(std::int32_t chunk, std::int64_t n) const { return 1 + n + std::min(n, mask_size(chunk)); }

private:
    std::int64_t mask_size(std::int32_t chunk) const {
        const auto p = static_cast<std::size_t>(chunk);
        return mask_bytes(level_.chunks[p + 1] - level_.chunks[p]);
    }
    std::int64_t node_at(const FeatureBlock& block, std::int64_t i) const {
        std::uint32_t node = 0;  // little-endian
        std::memcpy(&node, block.index + i * id_bytes_, static_cast<std::size_t>(id_bytes_));
        return node;
    }

    template <class Body>
    void read_list(const FeatureBlock& block, Body&& body) const {
        std::int64_t first = 0, before = -1;
        while (first < block.size) {
            std::int64_t node = node_at(block, first), end = first + 1;
            if (node <= before || node >= level_.n_nodes) throw DamagedTable();
            const std::int32_t chunk = chunk_of_[static_cast<std::size_t>(node)];
            const std::int64_t behind = level_.chunks[static_cast<std::size_t>(chunk) + 1];
            for (before = node; end < block.size && (node = node_at(block, end)) < behind; ++end, before = node)
                if (node <= before) throw DamagedTable();
            body(ChunkRow{chunk, end - first, Kind::list, first, nullptr});
            first = end;
        }
    }

    template <class Body>
    void read_bitmap(const FeatureBlock& block, Body&& body) const {
        const PackedView& weights = level_.weights;
        for (std::int64_t group = 0; group < (weights.n_chunks + 63) / 64; ++group) {
            const std::uint8_t* head = block.index + bitmap_group_size * group;
            std::uint64_t bits;
            std::uint32_t row, bytes_before;
            std::memcpy(&bits, head, sizeof bits);
            std::memcpy(&row, head + 8, sizeof row);
            std::memcpy(&bytes_before, head + 12, sizeof bytes_before);
            for (; bits != 0; bits &= bits - 1, ++row) {
                const std::int64_t chunk = group * 64 + std::countr_zero(bits);
                if (chunk >= weights.n_chunks || row >= block.size) throw DamagedTable();
                std::uint16_t start;
                std::memcpy(&start, block.offsets + 2 * std::int64_t{row}, sizeof start);
                const std::int64_t offset = block.rows - weights.table + bytes_before + start;
                if (offset > weights.table_size - max_row_size) throw DamagedTable();
                const std::uint8_t* bytes = weights.table + offset;
                const std::int64_t n = *bytes + 1;
                const Kind kind = n < mask_size(static_cast<std::int32_t>(chunk)) ? Kind::few : Kind::mask;
                const ChunkRow found{static_cast<std::int32_t>(chunk), n, kind, 0, bytes};
                if (!is_sound(found)) throw DamagedTable();
                body(found);
            }
        }
    }

    // Whether a row has as many columns as weights, all of them in its chunk: sums have room for no others.
    bool is_sound(const ChunkRow& row) const {
        const auto p = static_cast<std::size_t>(row.chunk);
        const std::int64_t width = level_.chunks[p + 1] - level_.chunks[p];
        if (row.kind == Kind::few)
            return std::all_of(row.bytes + 1 + row.n, row.bytes + 1 + 2 * row.n,
                               [&](std::uint8_t column) { return column < width; });
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < mask_size(row.chunk); ++i) n += std::popcount(row.bytes[1 + i]);
        return n == row.n;
    }

    const BeamLevel& level_;
    const int id_bytes_;
    std::vector<std::int32_t> chunk_of_;
};

}  // namespace

ChunkWeights::ChunkWeights(const BeamLevel& level, int threads) {
    const BlockReader reader(level);
    const auto n_features = level.weights.n_features;
    const auto n_chunks = level.chunks.size() - 1;

    std::vector<std::int32_t> by_size(static_cast<std::size_t>(n_features));  // features, most weights first
    std::iota(by_size.begin(), by_size.end(), 0);
    std::vector<std::int64_t> sizes(by_size.size());
    for (std::int64_t f = 0; f < n_features; ++f) sizes[static_cast<std::size_t>(f)] = reader.block_of(f).size;
    std::stable_sort(by_size.begin(), by_size.end(), [&](std::int32_t a, std::int32_t b) {
        return sizes[static_cast<std::size_t>(a)] > sizes[static_cast<std::size_t>(b)];
    });
    numbers_.resize(by_size.size());
    for (std::size_t i = 0; i < by_size.size(); ++i)
        numbers_[static_cast<std::size_t>(by_size[i])] = static_cast<std::int32_t>(i);

    // Rows of each chunk in each part of the features; then where they start.
    std::vector<std::int64_t> next_rows(n_parts * n_chunks);
    auto at = [&](std::int64_t part, const ChunkRow& row) {
        return static_cast<std::size_t>(part) * n_chunks + static_cast<std::size_t>(row.chunk);
    };
    auto for_each_row = [&](std::int64_t part, auto&& body) {
        for (std::int64_t i = part * n_features / n_parts; i < (part + 1) * n_features / n_parts; ++i) {
            const FeatureBlock block = reader.block_of(by_size[static_cast<std::size_t>(i)]);
            reader.for_each_row(block, [&](const ChunkRow& row) { body(i, row); });
        }
    };
    parallel_for(n_parts, threads, [&](std::int64_t part, int) {
        for_each_row(part, [&](std::int64_t, const ChunkRow& row) { ++next_rows[at(part, row)]; });
    });
    first_row_.assign(1, 0);
    for (std::size_t c = 0; c < n_chunks; ++c) {
        std::int64_t next = first_row_.back();
        for (std::size_t part = 0; part < n_parts; ++part) next += std::exchange(next_rows[part * n_chunks + c], next);
        first_row_.push_back(next);
    }
    // A row has an index entry or a node id, and at least one code. A damaged table may name the same row again and
    // again: its rows would take more memory than the table.
    if (first_row_.back() > level.weights.table_size / 2) throw DamagedTable();

    // The rows of each chunk, by feature.
    const auto n_rows = static_cast<std::size_t>(first_row_.back());
    features_.resize(n_rows);
    std::vector<RowSource> sources(n_rows);
    parallel_for(n_parts, threads, [&](std::int64_t part, int) {
        for_each_row(part, [&](std::int64_t number, const ChunkRow& row) {
            const auto r = static_cast<std::size_t>(next_rows[at(part, row)]++);
            features_[r] = static_cast<std::uint32_t>(number);
            sources[r] = {row.bytes, static_cast<std::uint32_t>(row.first), static_cast<std::uint16_t>(row.n - 1),
                          row.kind};
        });
    });

    // Their places in the order of adding.
    order_.resize(n_rows);
    starts_.resize(n_rows);
    first_byte_.assign(n_chunks + 1, 0);
    parallel_for(static_cast<std::int64_t>(n_chunks), threads, [&](std::int64_t chunk, int) {
        const auto c = static_cast<std::size_t>(chunk);
        const auto first = static_cast<std::size_t>(first_row_[c]);
        std::vector<std::pair<std::uint64_t, std::uint32_t>> keys;
        keys.reserve(static_cast<std::size_t>(first_row_[c + 1]) - first);
        for (std::size_t r = first; r < static_cast<std::size_t>(first_row_[c + 1]); ++r)
            keys.emplace_back(
                static_cast<std::uint64_t>(sources[r].kind) << 32 | static_cast<std::uint32_t>(by_size[features_[r]]),
                static_cast<std::uint32_t>(r - first));
        std::sort(keys.begin(), keys.end());
        std::int64_t start = 0;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            order_[first + i] = keys[i].second;
            starts_[first + i] = static_cast<std::uint32_t>(start);
            start += reader.size_of(static_cast<std::int32_t>(chunk), sources[first + keys[i].second].n_weights());
        }
        first_byte_[c + 1] = start;
    });
    accumulate(first_byte_);
    if (first_byte_.back() > 2 * level.weights.table_size) throw DamagedTable();

    table_.resize(static_cast<std::size_t>(first_byte_.back() + table_padding));
    parallel_for(static_cast<std::int64_t>(n_chunks), threads, [&](std::int64_t chunk, int) {
        const auto c = static_cast<std::size_t>(chunk);
        const auto first = static_cast<std::size_t>(first_row_[c]), end = static_cast<std::size_t>(first_row_[c + 1]);
        for (std::size_t i = first; i < end; ++i) {
            const std::size_t r = first + order_[i];
            reader.write(by_size[features_[r]], static_cast<std::int32_t>(chunk), sources[r],
                         table_.data() + first_byte_[c] + starts_[i]);
        }
    });
}

ChunkView ChunkWeights::Lookup::open(const ChunkWeights& weights, std::int32_t chunk) {
    const auto c = static_cast<std::size_t>(chunk);
    const auto first = static_cast<std::size_t>(weights.first_row_[c]),
               end = static_cast<std::size_t>(weights.first_row_[c + 1]);
    words_.assign(weights.numbers_.size() / 64 + 1, {});
    std::uint32_t row = 0;
    std::size_t word = 0;
    for (std::size_t i = first; i < end; ++i, ++row) {
        const std::uint32_t f = weights.features_[i];
        for (; word <= f / 64; ++word) words_[word].rows_before = row;
        words_[f / 64].bits |= std::uint64_t{1} << (f % 64);
    }
    return {words_.data(), weights.order_.data() + first, weights.starts_.data() + first,
            weights.table_.data() + weights.first_byte_[c], static_cast<std::int64_t>(end - first)};
}

}  // namespace ramify
