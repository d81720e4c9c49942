// The weights of one tree level, packed for search.
//
// The columns of a level (its nodes) are divided into chunks: children of one parent, at most 256 of them. A feature's
// block holds its weights for the whole level, chunk by chunk:
//
//     u32 rows × 2 + kind                      rows: chunks in which it has weights; kind: 0 list, 1 bitmap
//     list:    chunk ids (u8, u16 or u32), ascending
//     bitmap:  for each 64 chunks u64 bits, u32 rows before, u32 entries before
//     u8 × rows                                entries of each row, minus one
//     for each row: u8 codes, then u8 columns  weight = codebook[code]; column within the chunk
//
// So a query finds everything about a feature in one place, mostly in one or two cache lines. `block_starts` holds the
// start of each block, in units of 4 bytes. All of it is read from files that may be damaged: the search checks what it
// follows.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/csr.h"

namespace ramify {

constexpr std::int64_t chunk_width = 256;
constexpr std::int64_t block_unit = 4;
constexpr std::int64_t block_header = 4;
constexpr std::int64_t table_padding = 64;  // readable bytes behind the last block; their values do not matter

struct PackedView {
    std::int64_t n_features = 0;
    const std::uint32_t* block_starts = nullptr;  // (n_features + 1)
    const std::uint8_t* table = nullptr;          // (table_size), padding included
    std::int64_t table_size = 0;
    const float* codebook = nullptr;  // (256)
    std::int64_t n_chunks = 0;
};

// Internal linkage: these are compiled into the variants of the kernels too (core/isa.h).
static inline int chunk_id_bytes(std::int64_t n_chunks) { return n_chunks <= 256 ? 1 : n_chunks <= 65536 ? 2 : 4; }

// The block of one feature. The entries of a row are n codes and n columns; in an intact file they end before `end`.
struct FeatureBlock {
    std::int64_t n_rows = 0;
    bool list = true;
    const std::uint8_t* chunks = nullptr;  // ids or bitmap
    const std::uint8_t* counts = nullptr;
    const std::uint8_t* entries = nullptr;
    const std::uint8_t* end = nullptr;
};

// Returns false if the file is damaged. A feature without weights has no rows.
static inline bool read_block(const PackedView& level, std::int64_t feature, FeatureBlock& block) {
    const std::int64_t begin = level.block_starts[feature] * block_unit,
                       finish = level.block_starts[feature + 1] * block_unit;
    block.n_rows = 0;
    if (begin == finish) return true;
    if (begin > finish || finish + table_padding > level.table_size) return false;
    std::uint32_t header;
    __builtin_memcpy(&header, level.table + begin, sizeof header);
    block.n_rows = header / 2;
    block.list = header % 2 == 0;
    const std::int64_t room =
        block.list ? block.n_rows * chunk_id_bytes(level.n_chunks) : 16 * ((level.n_chunks + 63) / 64);
    if (block_header + room + block.n_rows > finish - begin) return false;
    block.chunks = level.table + begin + block_header;
    block.counts = block.chunks + room;
    block.entries = block.counts + block.n_rows;
    block.end = level.table + finish;
    return true;
}

struct DamagedTable : std::runtime_error {
    DamagedTable() : std::runtime_error("the model is damaged: its weight tables do not fit together") {}
};

struct PackedWeights {
    std::vector<std::uint32_t> block_starts;
    std::vector<std::uint8_t> table;
    std::vector<float> codebook;
};

// Packs weights (K × n_features); chunk p has the nodes [chunks[p], chunks[p + 1]). Weights are quantized to
// 256 values that lie closest where weights are most frequent (Panter and Dite, 1951).
template <class Index>
PackedWeights pack_weights(const CsrView<Index>& weights, std::int64_t n_features, const std::int64_t* chunks,
                           std::int64_t n_chunks, int threads);

}  // namespace ramify
