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

FeatureBlock block_of(const PackedView& level, std::int64_t feature) {
    FeatureBlock block;
    if (!read_block(level, feature, block)) throw DamagedTable();
    return block;
}

template <class T>
T read(const std::uint8_t* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Calls body(chunk, weights) for the rows of a bitmap.
template <class Body>
void for_each_row(const PackedView& level, const FeatureBlock& block, Body&& body) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < (level.n_chunks + 63) / 64; ++group) {
        const std::uint8_t* head = block.index + bitmap_group_size * group;
        for (auto bits = read<std::uint64_t>(head); bits != 0; bits &= bits - 1) {
            const std::int64_t chunk = 64 * group + std::countr_zero(bits);
            if (row >= block.size || chunk >= level.n_chunks) throw DamagedTable();
            const std::uint8_t* weights =
                block.rows + read<std::uint32_t>(head + 12) + read<std::uint16_t>(block.offsets + 2 * row++);
            if (weights > level.table + level.table_size - max_row_size) throw DamagedTable();
            body(chunk, weights);
        }
    }
}

// Node i of a list.
std::uint32_t node_at(const FeatureBlock& block, std::int64_t i, int id_bytes) {
    std::uint32_t node = 0;
    std::memcpy(&node, block.index + i * id_bytes, static_cast<std::size_t>(id_bytes));  // little-endian
    return node;
}

// Calls body(chunk, first weight, end) for the weights of a list, chunk by chunk.
template <class Body>
void for_each_run(const BeamLevel& level, const std::vector<std::int32_t>& chunk_of, const FeatureBlock& block,
                  Body&& body) {
    const int id_bytes = node_id_bytes(level.n_nodes);
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < block.size;) {
        const std::int64_t first = i, node = node_at(block, i, id_bytes);
        if (node >= level.n_nodes || node <= before) throw DamagedTable();
        const std::int64_t chunk = chunk_of[at(node)], last = level.chunks[at(chunk) + 1];
        for (before = node, ++i; i < block.size; ++i) {
            const std::int64_t next = node_at(block, i, id_bytes);
            if (next <= before) throw DamagedTable();
            if (next >= last) break;
            before = next;
        }
        body(chunk, first, i);
    }
}

}  // namespace

double visits_per_weight(const PackedView& level, const std::vector<std::int32_t>& counts) {
    double visits = 0, weights = 0;
    for (std::size_t f = 0; f < counts.size(); ++f) {
        if (counts[f] == 0) continue;
        const auto size = static_cast<double>(block_of(level, static_cast<std::int64_t>(f)).size);
        visits += size * counts[f];
        weights += size;
    }
    return weights > 0 ? visits / weights : 0.0;
}

GroupedLevel group_level(const BeamLevel& level, const std::vector<std::int32_t>& counts) {
    const PackedView& weights = level.weights;
    GroupedLevel grouped;
    grouped.row_indptr.assign(at(weights.n_chunks) + 1, 0);
    grouped.table_indptr.assign(at(weights.n_chunks) + 1, 0);
    std::vector<std::int32_t> chunk_of(at(level.n_nodes));
    for (std::int64_t p = 0; p < weights.n_chunks; ++p)
        std::fill(chunk_of.begin() + level.chunks[at(p)], chunk_of.begin() + level.chunks[at(p) + 1],
                  static_cast<std::int32_t>(p));
    auto mask_size = [&](std::int64_t chunk) {
        return mask_bytes(level.chunks[at(chunk) + 1] - level.chunks[at(chunk)]);
    };
    // Calls row(chunk, feature, size, is_list, write) for every row of the level; write(destination) writes it.
    auto for_each = [&](auto&& row) {
        for (std::size_t f = 0; f < counts.size(); ++f) {
            if (counts[f] == 0) continue;
            const FeatureBlock block = block_of(weights, static_cast<std::int64_t>(f));
            if (block.size == 0) continue;
            if (!block.is_list) {
                for_each_row(weights, block, [&](std::int64_t chunk, const std::uint8_t* from) {
                    std::int64_t size = mask_size(chunk);
                    for (std::int64_t b = 0, n = size; b < n; ++b) size += std::popcount(from[b]);
                    row(chunk, f, size, false, [&](std::uint8_t* to) { std::memcpy(to, from, at(size)); });
                });
                continue;
            }
            for_each_run(level, chunk_of, block, [&](std::int64_t chunk, std::int64_t first, std::int64_t end) {
                const std::int64_t n_mask = mask_size(chunk);
                row(chunk, f, n_mask + end - first, true, [&](std::uint8_t* to) {
                    for (std::int64_t i = first; i < end; ++i) {
                        const std::int64_t column =
                            node_at(block, i, node_id_bytes(level.n_nodes)) - level.chunks[at(chunk)];
                        to[column / 8] = static_cast<std::uint8_t>(to[column / 8] | 1 << (column % 8));
                    }
                    std::memcpy(to + n_mask, block.offsets + first, at(end - first));
                });
            });
        }
    };
    for_each([&](std::int64_t chunk, std::size_t, std::int64_t size, bool, auto&&) {
        ++grouped.row_indptr[at(chunk) + 1];
        grouped.table_indptr[at(chunk) + 1] += size;
    });
    if (*std::max_element(grouped.table_indptr.begin(), grouped.table_indptr.end()) > INT32_MAX) return {};
    accumulate(grouped.row_indptr);
    accumulate(grouped.table_indptr);
    grouped.features.resize(at(grouped.row_indptr.back()));
    grouped.starts.resize(at(grouped.row_indptr.back()));
    grouped.table.resize(at(grouped.table_indptr.back() + table_padding));
    std::vector<std::int64_t> next_row(grouped.row_indptr.begin(), grouped.row_indptr.end() - 1);
    std::vector<std::int64_t> next_byte(grouped.table_indptr.begin(), grouped.table_indptr.end() - 1);
    for_each([&](std::int64_t chunk, std::size_t f, std::int64_t size, bool is_list, auto&& write) {
        const auto row = at(next_row[at(chunk)]++);
        grouped.features[row] = static_cast<std::int32_t>(f);
        grouped.starts[row] =
            static_cast<std::uint32_t>(2 * (next_byte[at(chunk)] - grouped.table_indptr[at(chunk)]) + is_list);
        write(grouped.table.data() + next_byte[at(chunk)]);
        next_byte[at(chunk)] += size;
    });
    return grouped;
}

void score_grouped(const BeamLevel& level, const GroupedLevel& grouped, const QueryFeatures& queries,
                   const std::vector<std::int64_t>& indptr, const std::vector<Visit>& visits, int threads) {
    struct Task {
        std::int64_t chunk, first, end;
    };
    std::vector<Task> tasks;
    for (std::int64_t p = 0; p < level.weights.n_chunks; ++p)
        for (std::int64_t first = indptr[at(p)]; first < indptr[at(p) + 1]; first += visits_per_task)
            tasks.push_back({p, first, std::min(first + visits_per_task, indptr[at(p) + 1])});

    struct Scratch {
        std::vector<std::uint64_t> bits;
        std::vector<std::int32_t> before;
        std::vector<std::int32_t> rows = std::vector<std::int32_t>(at(max_room));
        std::vector<float> values = std::vector<float>(at(max_room));
        std::vector<Hit> early = std::vector<Hit>(at(max_room)), late = early;
    };
    const auto n_words = at(level.weights.n_features / 64 + 1);
    ScratchPool<Scratch> pool;
    parallel_for(static_cast<std::int64_t>(tasks.size()), threads, [&](std::int64_t t, int) {
        const ScratchPool<Scratch>::Lease lease(pool);
        Scratch& s = *lease;
        if (s.bits.size() < n_words) s.bits.resize(n_words), s.before.resize(n_words);
        const Task& task = tasks[at(t)];
        const auto p = at(task.chunk);
        const std::int64_t first_row = grouped.row_indptr[p];
        const ChunkRows rows{grouped.features.data() + first_row,
                             grouped.starts.data() + first_row,
                             grouped.row_indptr[p + 1] - first_row,
                             grouped.table.data() + grouped.table_indptr[p],
                             level.chunks[p + 1] - level.chunks[p],
                             level.bias + level.chunks[p],
                             level.weights.scale,
                             level.weights.mantissa_bits};
        hot().score_visits(
            rows, queries, visits.data() + task.first, task.end - task.first,
            {s.bits.data(), s.before.data(), s.rows.data(), s.values.data(), s.early.data(), s.late.data()});
    });
}

}  // namespace ramify
