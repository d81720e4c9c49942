// The weights of one tree level, packed for search.
//
// The columns of a level (its nodes) are grouped by parent into chunks, and chunks into pieces of at most 256 columns. A
// feature's block holds its weights for the whole level, piece by piece:
//
//     u32 rows × 2 + kind                      rows: pieces in which it has weights; kind: 0 list, 1 bitmap
//     list:    piece ids (u8, u16 or u32), ascending
//     bitmap:  for each 64 pieces u64 bits, u32 rows before, u32 entries before
//     u8 × rows                                entries of each row, less one
//     for each row: u8 codes, then u8 columns  weight = codebook[code]; column within the piece
//
// So a query finds all it needs of a feature in one place, mostly in one or two cache lines. `heads` says where blocks
// begin, in units of 4 bytes. Everything is read from files that may be damaged: the search checks what it follows.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/csr.h"

namespace ramify {

constexpr std::int64_t piece_width = 256;
constexpr std::int64_t block_unit = 4;
constexpr std::int64_t block_header = 4;
constexpr std::int64_t table_padding = 64;  // bytes behind the last block that may be read, but mean nothing

struct PackedView {
    std::int64_t n_features = 0;
    const std::uint32_t* heads = nullptr;  // (n_features + 1)
    const std::uint8_t* table = nullptr;   // (table_size), padding included
    std::int64_t table_size = 0;
    const float* codebook = nullptr;       // (256)
    std::int64_t n_pieces = 0;
};

// Internal linkage: these are compiled into the variants of the hot loops too (isa.h).
static inline int piece_id_bytes(std::int64_t n_pieces) { return n_pieces <= 256 ? 1 : n_pieces <= 65536 ? 2 : 4; }

// The block of one feature. The entries of a row are n codes and n columns; they end before `end` in a sound file.
struct FeatureBlock {
    std::int64_t n_rows = 0;
    bool list = true;
    const std::uint8_t* pieces = nullptr;  // ids or bitmap
    const std::uint8_t* counts = nullptr;
    const std::uint8_t* entries = nullptr;
    const std::uint8_t* end = nullptr;
};

// False if the file is damaged. A feature without weights has no rows.
static inline bool read_block(const PackedView& level, std::int64_t feature, FeatureBlock& block) {
    const std::int64_t begin = level.heads[feature] * block_unit, finish = level.heads[feature + 1] * block_unit;
    block.n_rows = 0;
    if (begin == finish) return true;
    if (begin > finish || finish + table_padding > level.table_size) return false;
    std::uint32_t header;
    __builtin_memcpy(&header, level.table + begin, sizeof header);
    block.n_rows = header / 2;
    block.list = header % 2 == 0;
    const std::int64_t room = block.list ? block.n_rows * piece_id_bytes(level.n_pieces) : 16 * ((level.n_pieces + 63) / 64);
    if (block_header + room + block.n_rows > finish - begin) return false;
    block.pieces = level.table + begin + block_header;
    block.counts = block.pieces + room;
    block.entries = block.counts + block.n_rows;
    block.end = level.table + finish;
    return true;
}

struct DamagedTable : std::runtime_error {
    DamagedTable() : std::runtime_error("the model is damaged: its weight tables do not fit together") {}
};

struct PackedWeights {
    std::vector<std::uint32_t> heads;
    std::vector<std::uint8_t> table;
    std::vector<float> codebook;
};

// Packs weights (K × n_features); piece p has the columns [pieces[p], pieces[p + 1]). Weights are rounded to 256 values
// that lie closest where weights are most frequent (Panter and Dite, 1951).
template <class Index>
PackedWeights pack_weights(const CsrView<Index>& weights, std::int64_t n_features, const std::int64_t* pieces, std::int64_t n_pieces,
                           int threads);

}  // namespace ramify
