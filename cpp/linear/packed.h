// The weights of one tree level, packed for search.
//
// The columns of a level (its nodes) are divided into chunks: children of one parent, at most 256 of them. A feature's
// block holds its weights for the whole level, in one of two forms:
//
//     u32 size × 2 + kind
//     kind 0, few weights:   node ids (size; 1 to 4 bytes each), ascending; u8 codes (size)
//     kind 1, many weights:  for each 64 chunks u64 bits, u32 rows before, u32 bytes before
//                            u16 × rows: start of each row, in bytes from the first row of its 64 chunks
//                            rows, the weights of the feature in one chunk: u8 n - 1, then
//                              mask of its columns, u8 codes   where the mask has at most n bytes
//                              u8 codes, u8 columns            otherwise
//
// A code is a small floating-point number: a sign, then exponent and mantissa as in float32, together 7 bits. A level
// has as many mantissa bits as the range of its weights allows: 4 for weights within a factor of 256 (rounded by 3 % at
// most), 3 for all wider ranges, whose smallest weights become 1/65,536 of the largest. So a kernel unpacks codes by
// shifting, many at once.
//
// A query finds everything about a feature in one place. `block_starts` holds the start of each block, in units of 4
// bytes. All of it is read from files that may be damaged: the search checks what it follows.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/csr.h"

namespace ramify {

constexpr std::int64_t chunk_width = 256;
constexpr std::int64_t block_unit = 4;
constexpr std::int64_t block_header = 4;
constexpr std::int64_t bitmap_group_size = 16;  // bytes for 64 chunks
constexpr std::int64_t max_row_size = 1 + 2 * chunk_width;
// Readable bytes behind the last block; their values do not matter. A row that starts anywhere in the table can be
// read.
constexpr std::int64_t table_padding = max_row_size + 64;
constexpr int min_mantissa_bits = 3, max_mantissa_bits = 5;

struct PackedView {
    std::int64_t n_features = 0;
    const std::uint32_t* block_starts = nullptr;  // (n_features + 1)
    const std::uint8_t* table = nullptr;          // (table_size), padding included
    std::int64_t table_size = 0;
    float scale = 1.0f;  // smallest weight
    int mantissa_bits = 4;
    std::int64_t n_nodes = 0;
    std::int64_t n_chunks = 0;
};

// Internal linkage: these are compiled into the variants of the kernels too (core/isa.h).
static inline int node_id_bytes(std::int64_t n_nodes) {
    return n_nodes <= 1 << 8 ? 1 : n_nodes <= 1 << 16 ? 2 : n_nodes <= 1 << 24 ? 3 : 4;
}
static inline std::int64_t mask_bytes(std::int64_t width) { return (width + 7) / 8; }
// A search reads lists as a whole: longer ones would take longer than bitmaps.
constexpr std::int64_t max_list_size = 512;

// A weight in units of the level's scale: from 1 on, and negative from code 128 on.
static inline float decode(std::uint32_t code, int mantissa_bits) {
    const std::uint32_t bits = ((code & 127) << (23 - mantissa_bits)) + (127u << 23) + ((code & 128) << 24);
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// The block of one feature.
struct FeatureBlock {
    std::int64_t size = 0;  // weights of a list, rows of a bitmap
    bool is_list = true;
    const std::uint8_t* index = nullptr;    // node ids, or bitmap
    const std::uint8_t* offsets = nullptr;  // codes, or starts of rows
    const std::uint8_t* rows = nullptr;
};

// Returns false if the file is damaged. A feature without weights has size 0.
static inline bool read_block(const PackedView& level, std::int64_t feature, FeatureBlock& block) {
    const std::int64_t begin = level.block_starts[feature] * block_unit,
                       end = level.block_starts[feature + 1] * block_unit;
    block.size = 0;
    if (begin == end) return true;
    if (begin > end || end + table_padding > level.table_size) return false;
    std::uint32_t header;
    __builtin_memcpy(&header, level.table + begin, sizeof header);
    block.size = header / 2;
    block.is_list = header % 2 == 0;
    const std::int64_t index_size =
        block.is_list ? block.size * node_id_bytes(level.n_nodes) : bitmap_group_size * ((level.n_chunks + 63) / 64);
    block.index = level.table + begin + block_header;
    block.offsets = block.index + index_size;
    block.rows = block.offsets + (block.is_list ? 1 : 2) * block.size;
    return block.rows <= level.table + end;
}

struct DamagedTable : std::runtime_error {
    DamagedTable() : std::runtime_error("the model is damaged: its weight tables do not fit together") {}
};

struct PackedWeights {
    std::vector<std::uint32_t> block_starts;
    std::vector<std::uint8_t> table;
    std::vector<float> codebook;  // (256) the weight of each code
};

// Smallest and largest magnitude of the weights other than 0 of a level; largest 0: there are none.
struct Magnitudes {
    float smallest = 0.0f, largest = 0.0f;
};

// Packs weights (K × n_features); chunk p has the nodes [chunks[p], chunks[p + 1]). The codes depend on the magnitudes
// of all weights of the level; where `weights` are those of some features only, they have to be given.
template <class Index>
PackedWeights pack_weights(const CsrView<Index>& weights, std::int64_t n_features, const std::int64_t* chunks,
                           std::int64_t n_chunks, int threads, const Magnitudes* given = nullptr);

// Finds scale and mantissa bits of a codebook (256). Throws std::invalid_argument if it is none.
void read_codebook(const float* codebook, float& scale, int& mantissa_bits);

}  // namespace ramify
