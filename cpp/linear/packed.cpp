#include "linear/packed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/parallel.h"

namespace ramify {

namespace {

std::vector<float> make_codebook(float scale, int mantissa_bits) {
    std::vector<float> codebook(256);
    for (std::uint32_t c = 0; c < 256; ++c) codebook[c] = scale * decode(c, mantissa_bits);
    return codebook;
}

struct Quantizer {
    float scale = 1.0f;
    int mantissa_bits = max_mantissa_bits;

    explicit Quantizer(const Magnitudes& magnitudes) {
        const auto [smallest, largest] = magnitudes;
        if (!(largest > 0.0f)) return;
        // Far from the limits of float32, so that every code is a normal number.
        const int top = std::clamp(std::ilogb(largest), -60, 100);
        while (mantissa_bits > min_mantissa_bits && std::ilogb(smallest) < lowest(top)) --mantissa_bits;
        scale = std::ldexp(1.0f, lowest(top));
    }
    // Weights are rounded to the nearest code, those outside of the range to its ends.
    std::uint8_t code_of(float w) const {
        const float magnitude = std::clamp(std::abs(w) / scale, 1.0f, decode(127, mantissa_bits));
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude) - (127u << 23);
        const int shift = 23 - mantissa_bits;
        const std::uint32_t rounded = (bits + (1u << (shift - 1))) >> shift;
        return static_cast<std::uint8_t>(std::min(rounded, 127u) | (w < 0.0f ? 128u : 0u));
    }

private:
    int lowest(int top) const { return top + 1 - (1 << (7 - mantissa_bits)); }
};

template <class Index>
Magnitudes find_magnitudes(const CsrView<Index>& weights, std::int64_t n_features) {
    Magnitudes found{INFINITY, 0.0f};
    for (std::int64_t i = 0; i < weights.indptr[weights.rows]; ++i)
        if (weights.indices[i] < n_features && weights.data[i] != 0.0f) {
            found.smallest = std::min(found.smallest, std::abs(weights.data[i]));
            found.largest = std::max(found.largest, std::abs(weights.data[i]));
        }
    return found;
}

struct Entry {
    std::int32_t node;
    std::uint8_t code;
};

template <class T>
void put(std::uint8_t*& at, T value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
}

// Writes the blocks of features.
struct BlockWriter {
    const std::int64_t* chunks;
    std::int64_t n_chunks;
    const std::vector<std::int32_t>& chunk_of;
    int id_bytes;

    std::int64_t n_groups() const { return (n_chunks + 63) / 64; }

    // Calls body(chunk, first entry, end) for each chunk of a feature's entries.
    template <class Body>
    void for_each_row(const Entry* entries, std::int64_t n, Body&& body) const {
        for (std::int64_t i = 0; i < n;) {
            const std::int32_t chunk = chunk_of[static_cast<std::size_t>(entries[i].node)];
            std::int64_t end = i + 1;
            while (end < n && chunk_of[static_cast<std::size_t>(entries[end].node)] == chunk) ++end;
            body(chunk, i, end);
            i = end;
        }
    }

    std::int64_t mask_size(std::int32_t chunk) const { return mask_bytes(chunks[chunk + 1] - chunks[chunk]); }

    bool has_mask(std::int32_t chunk, std::int64_t n) const { return mask_size(chunk) <= n; }
    std::int64_t row_size(std::int32_t chunk, std::int64_t n) const {
        return 1 + n + (has_mask(chunk, n) ? mask_size(chunk) : n);
    }

    std::int64_t list_size(std::int64_t n) const { return block_header + n * (id_bytes + 1); }
    std::int64_t bitmap_size(const Entry* entries, std::int64_t n) const {
        std::int64_t size = block_header + bitmap_group_size * n_groups();
        for_each_row(entries, n, [&](std::int32_t chunk, std::int64_t first, std::int64_t end) {
            size += 2 + row_size(chunk, end - first);
        });
        return size;
    }
    bool is_list(const Entry* entries, std::int64_t n) const {
        return n <= max_list_size && list_size(n) <= bitmap_size(entries, n);
    }
    std::int64_t size(const Entry* entries, std::int64_t n) const {
        return is_list(entries, n) ? list_size(n) : bitmap_size(entries, n);
    }

    void write(const Entry* entries, std::int64_t n, std::uint8_t* at) const {
        if (is_list(entries, n)) write_list(entries, n, at);
        else write_bitmap(entries, n, at);
    }

private:
    void write_list(const Entry* entries, std::int64_t n, std::uint8_t* at) const {
        put(at, static_cast<std::uint32_t>(2 * n));
        for (std::int64_t i = 0; i < n; ++i) {  // little-endian
            std::memcpy(at, &entries[i].node, static_cast<std::size_t>(id_bytes));
            at += id_bytes;
        }
        for (std::int64_t i = 0; i < n; ++i) put(at, entries[i].code);
    }

    void write_bitmap(const Entry* entries, std::int64_t n, std::uint8_t* at) const {
        std::int64_t n_rows = 0;
        for_each_row(entries, n, [&](std::int32_t, std::int64_t, std::int64_t) { ++n_rows; });
        put(at, static_cast<std::uint32_t>(2 * n_rows + 1));
        std::uint8_t* const groups = at;
        std::uint8_t* offset = groups + bitmap_group_size * n_groups();
        std::uint8_t* const rows = offset + 2 * n_rows;
        std::uint8_t* row = rows;
        std::uint32_t rows_before = 0, bytes_before = 0;
        std::int64_t group = -1;
        auto open = [&](std::int64_t upto) {
            for (; group < upto; ++group) {
                bytes_before = static_cast<std::uint32_t>(row - rows);
                std::uint8_t* head = groups + bitmap_group_size * (group + 1) + 8;
                put(head, rows_before);
                put(head, bytes_before);
            }
        };
        for_each_row(entries, n, [&](std::int32_t chunk, std::int64_t first, std::int64_t end) {
            open(chunk / 64);
            std::uint8_t* group_bits = groups + bitmap_group_size * (chunk / 64);
            std::uint64_t bits;
            std::memcpy(&bits, group_bits, sizeof bits);
            bits |= std::uint64_t{1} << (chunk % 64);
            std::memcpy(group_bits, &bits, sizeof bits);
            put(offset, static_cast<std::uint16_t>(static_cast<std::uint32_t>(row - rows) - bytes_before));
            ++rows_before;
            write_row(entries + first, end - first, chunk, row);
        });
        open(n_groups() - 1);
    }

    void write_row(const Entry* entries, std::int64_t n, std::int32_t chunk, std::uint8_t*& at) const {
        const std::int64_t first = chunks[chunk];
        put(at, static_cast<std::uint8_t>(n - 1));
        if (has_mask(chunk, n)) {
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t column = entries[i].node - first;
                at[column / 8] = static_cast<std::uint8_t>(at[column / 8] | 1 << (column % 8));
            }
            at += mask_size(chunk);
        }
        for (std::int64_t i = 0; i < n; ++i) put(at, entries[i].code);
        if (!has_mask(chunk, n))
            for (std::int64_t i = 0; i < n; ++i) put(at, static_cast<std::uint8_t>(entries[i].node - first));
    }
};

}  // namespace

template <class Index>
PackedWeights pack_weights(const CsrView<Index>& weights, std::int64_t n_features, const std::int64_t* chunks,
                           std::int64_t n_chunks, int threads, const Magnitudes* given) {
    const Quantizer quantizer(given != nullptr ? *given : find_magnitudes(weights, n_features));
    std::vector<std::int32_t> chunk_of(static_cast<std::size_t>(weights.rows));
    for (std::int64_t p = 0; p < n_chunks; ++p)
        for (std::int64_t c = chunks[p]; c < chunks[p + 1]; ++c)
            chunk_of[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(p);

    // Transpose: the entries of each feature, nodes ascending.
    auto is_kept = [&](std::int64_t i) { return weights.indices[i] < n_features && weights.data[i] != 0.0f; };
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_features) + 1);
    for (std::int64_t i = 0; i < weights.indptr[weights.rows]; ++i)
        if (is_kept(i)) ++indptr[static_cast<std::size_t>(weights.indices[i]) + 1];
    accumulate(indptr);
    std::vector<Entry> entries(static_cast<std::size_t>(indptr.back()));
    {
        std::vector<std::int64_t> next(indptr.begin(), indptr.end() - 1);
        for (std::int64_t node = 0; node < weights.rows; ++node)
            for (std::int64_t i = weights.indptr[node]; i < weights.indptr[node + 1]; ++i)
                if (is_kept(i))
                    entries[static_cast<std::size_t>(next[static_cast<std::size_t>(weights.indices[i])]++)] = {
                        static_cast<std::int32_t>(node), quantizer.code_of(weights.data[i])};
    }

    const BlockWriter writer{chunks, n_chunks, chunk_of, node_id_bytes(weights.rows)};
    auto entries_of = [&](std::int64_t f) { return entries.data() + indptr[static_cast<std::size_t>(f)]; };
    auto count_of = [&](std::int64_t f) {
        return indptr[static_cast<std::size_t>(f) + 1] - indptr[static_cast<std::size_t>(f)];
    };
    constexpr std::int64_t features_at_once = 4096;
    const std::int64_t n_blocks = (n_features + features_at_once - 1) / features_at_once;
    auto for_each_feature = [&](auto&& body) {
        parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
            for (std::int64_t f = b * features_at_once; f < std::min(n_features, (b + 1) * features_at_once); ++f)
                if (count_of(f) > 0) body(f);
        });
    };
    std::vector<std::int64_t> starts(static_cast<std::size_t>(n_features) + 1);
    for_each_feature([&](std::int64_t f) {
        const std::int64_t bytes = writer.size(entries_of(f), count_of(f));
        starts[static_cast<std::size_t>(f) + 1] = (bytes + block_unit - 1) / block_unit;
    });
    accumulate(starts);
    if (starts.back() > static_cast<std::int64_t>(UINT32_MAX))
        throw std::length_error("the weights of one level exceed 16 GB");

    PackedWeights packed;
    packed.codebook = make_codebook(quantizer.scale, quantizer.mantissa_bits);
    packed.block_starts.assign(starts.begin(), starts.end());
    packed.table.resize(static_cast<std::size_t>(starts.back() * block_unit + table_padding));
    for_each_feature([&](std::int64_t f) {
        writer.write(entries_of(f), count_of(f),
                     packed.table.data() + starts[static_cast<std::size_t>(f)] * block_unit);
    });
    return packed;
}

template PackedWeights pack_weights(const CsrView<std::int32_t>&, std::int64_t, const std::int64_t*, std::int64_t, int,
                                    const Magnitudes*);
template PackedWeights pack_weights(const CsrView<std::int64_t>&, std::int64_t, const std::int64_t*, std::int64_t, int,
                                    const Magnitudes*);

void read_codebook(const float* codebook, float& scale, int& mantissa_bits) {
    scale = codebook[0];
    // A power of two, so that products with the scale are exact.
    if (std::isnormal(scale) && scale > 0.0f && std::ldexp(1.0f, std::ilogb(scale)) == scale)
        for (mantissa_bits = min_mantissa_bits; mantissa_bits <= max_mantissa_bits; ++mantissa_bits) {
            const std::vector<float> expected = make_codebook(scale, mantissa_bits);
            if (std::equal(expected.begin(), expected.end(), codebook)) return;
        }
    throw std::invalid_argument("the codebook of the weights of a level is damaged");
}

}  // namespace ramify
