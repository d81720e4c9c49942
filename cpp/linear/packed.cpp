#include "linear/packed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/parallel.h"

namespace ramify {

namespace {

// Weights are binned by the upper half of their bits; a bin spans less than 1 %.
constexpr std::size_t n_bins = 65536;
std::size_t bin_of(float w) { return std::bit_cast<std::uint32_t>(w) >> 16; }

// The bins in the order of their values: negative ones from the largest magnitude, then positive ones.
std::size_t bin_at(std::size_t i) { return i < n_bins / 2 ? n_bins - 1 - i : i - n_bins / 2; }

struct Quantizer {
    std::vector<std::uint8_t> code;  // (n_bins)
    std::vector<float> value;        // (256)
};

template <class Index>
Quantizer make_quantizer(const CsrView<Index>& weights, std::int64_t n_features) {
    std::vector<double> count(n_bins), sum(n_bins);
    for (std::int64_t i = 0; i < weights.indptr[weights.rows]; ++i)
        if (weights.indices[i] < n_features) {
            count[bin_of(weights.data[i])] += 1;
            sum[bin_of(weights.data[i])] += weights.data[i];
        }
    // The best spacing for a density p is proportional to p^(-1/3).
    std::vector<double> fraction(n_bins);
    std::size_t n_used = 0;
    double total = 0;
    for (std::size_t i = 0; i < n_bins; ++i) {
        const std::size_t b = bin_at(i);
        if (count[b] == 0) continue;
        const double width = std::max(std::abs(sum[b] / count[b]) / 128, 1e-30);
        fraction[i] = std::cbrt(count[b] / width) * width;
        total += fraction[i];
        ++n_used;
    }
    Quantizer q{std::vector<std::uint8_t>(n_bins), std::vector<float>(256)};
    std::vector<double> code_count(256), code_sum(256);
    double before = 0;
    std::size_t used_before = 0;
    for (std::size_t i = 0; i < n_bins; ++i) {
        const std::size_t b = bin_at(i);
        if (count[b] == 0) continue;
        const double at = n_used <= 256 ? static_cast<double>(used_before) : 256 * (before + fraction[i] / 2) / total;
        const auto code = static_cast<std::uint8_t>(std::min(255.0, at));
        q.code[b] = code;
        code_count[code] += count[b];
        code_sum[code] += sum[b];
        before += fraction[i];
        ++used_before;
    }
    for (std::size_t c = 0; c < 256; ++c)
        if (code_count[c] > 0) q.value[c] = static_cast<float>(code_sum[c] / code_count[c]);
    return q;
}

struct Entry {
    std::int32_t column;
    std::uint8_t code;
};

// Calls body(chunk, first entry, end) for each chunk of a feature's entries.
template <class Body>
void for_each_row(const Entry* entries, std::int64_t n, const std::vector<std::int32_t>& chunk_of, Body&& body) {
    for (std::int64_t i = 0; i < n;) {
        const std::int32_t chunk = chunk_of[static_cast<std::size_t>(entries[i].column)];
        std::int64_t end = i + 1;
        while (end < n && chunk_of[static_cast<std::size_t>(entries[end].column)] == chunk) ++end;
        body(chunk, i, end);
        i = end;
    }
}

template <class T>
void put(std::uint8_t*& at, T value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
}

}  // namespace

template <class Index>
PackedWeights pack_weights(const CsrView<Index>& weights, std::int64_t n_features, const std::int64_t* chunks,
                           std::int64_t n_chunks, int threads) {
    const Quantizer quantizer = make_quantizer(weights, n_features);
    std::vector<std::int32_t> chunk_of(static_cast<std::size_t>(weights.rows));
    for (std::int64_t p = 0; p < n_chunks; ++p)
        for (std::int64_t c = chunks[p]; c < chunks[p + 1]; ++c)
            chunk_of[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(p);

    // Transpose: the entries of each feature, columns ascending.
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_features) + 1);
    for (std::int64_t i = 0; i < weights.indptr[weights.rows]; ++i)
        if (weights.indices[i] < n_features) ++indptr[static_cast<std::size_t>(weights.indices[i]) + 1];
    accumulate(indptr);
    std::vector<Entry> entries(static_cast<std::size_t>(indptr.back()));
    {
        std::vector<std::int64_t> next(indptr.begin(), indptr.end() - 1);
        for (std::int64_t column = 0; column < weights.rows; ++column)
            for (std::int64_t i = weights.indptr[column]; i < weights.indptr[column + 1]; ++i)
                if (weights.indices[i] < n_features)
                    entries[static_cast<std::size_t>(next[static_cast<std::size_t>(weights.indices[i])]++)] = {
                        static_cast<std::int32_t>(column), quantizer.code[bin_of(weights.data[i])]};
    }

    const std::int64_t n_groups = (n_chunks + 63) / 64;
    const int id_bytes = chunk_id_bytes(n_chunks);
    auto is_list = [&](std::int64_t n_rows) { return n_rows * id_bytes <= 16 * n_groups; };
    auto entries_of = [&](std::int64_t f) { return entries.data() + indptr[static_cast<std::size_t>(f)]; };
    auto count_of = [&](std::int64_t f) {
        return indptr[static_cast<std::size_t>(f) + 1] - indptr[static_cast<std::size_t>(f)];
    };

    constexpr std::int64_t block = 4096;
    const std::int64_t n_blocks = (n_features + block - 1) / block;
    std::vector<std::int64_t> size(static_cast<std::size_t>(n_features) + 1);
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        for (std::int64_t f = b * block; f < std::min(n_features, (b + 1) * block); ++f) {
            if (count_of(f) == 0) continue;
            std::int64_t n_rows = 0;
            for_each_row(entries_of(f), count_of(f), chunk_of,
                         [&](std::int32_t, std::int64_t, std::int64_t) { ++n_rows; });
            const std::int64_t bytes =
                block_header + (is_list(n_rows) ? n_rows * id_bytes : 16 * n_groups) + n_rows + 2 * count_of(f);
            size[static_cast<std::size_t>(f) + 1] = (bytes + block_unit - 1) / block_unit;
        }
    });
    accumulate(size);
    if (size.back() > static_cast<std::int64_t>(UINT32_MAX))
        throw std::length_error("the weights of one level exceed 16 GB");

    PackedWeights packed;
    packed.codebook = quantizer.value;
    packed.block_starts.assign(size.begin(), size.end());
    packed.table.resize(static_cast<std::size_t>(size.back() * block_unit + table_padding));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        for (std::int64_t f = b * block; f < std::min(n_features, (b + 1) * block); ++f) {
            const Entry* items = entries_of(f);
            const std::int64_t n = count_of(f);
            if (n == 0) continue;
            std::int64_t n_rows = 0;
            for_each_row(items, n, chunk_of, [&](std::int32_t, std::int64_t, std::int64_t) { ++n_rows; });
            std::uint8_t* at = packed.table.data() + size[static_cast<std::size_t>(f)] * block_unit;
            put(at, static_cast<std::uint32_t>(2 * n_rows + (is_list(n_rows) ? 0 : 1)));
            if (is_list(n_rows)) {
                for_each_row(items, n, chunk_of, [&](std::int32_t chunk, std::int64_t, std::int64_t) {
                    if (id_bytes == 1) put(at, static_cast<std::uint8_t>(chunk));
                    else if (id_bytes == 2) put(at, static_cast<std::uint16_t>(chunk));
                    else put(at, static_cast<std::uint32_t>(chunk));
                });
            } else {
                std::uint8_t* groups = at;
                std::uint32_t rows_before = 0;
                std::int64_t group = 0;
                auto open = [&](std::int64_t upto, std::int64_t entries_before) {
                    for (; group <= upto; ++group) {
                        std::uint8_t* head = groups + 16 * group + 8;
                        put(head, rows_before);
                        put(head, static_cast<std::uint32_t>(entries_before));
                    }
                };
                for_each_row(items, n, chunk_of, [&](std::int32_t chunk, std::int64_t first, std::int64_t) {
                    open(chunk / 64, first);
                    std::uint64_t bits;
                    std::uint8_t* group_bits = groups + 16 * (chunk / 64);
                    std::memcpy(&bits, group_bits, sizeof bits);
                    bits |= std::uint64_t{1} << (chunk % 64);
                    std::memcpy(group_bits, &bits, sizeof bits);
                    ++rows_before;
                });
                open(n_groups - 1, n);
                at = groups + 16 * n_groups;
            }
            for_each_row(items, n, chunk_of, [&](std::int32_t, std::int64_t first, std::int64_t end) {
                put(at, static_cast<std::uint8_t>(end - first - 1));
            });
            for_each_row(items, n, chunk_of, [&](std::int32_t chunk, std::int64_t first, std::int64_t end) {
                for (std::int64_t i = first; i < end; ++i) put(at, items[i].code);
                for (std::int64_t i = first; i < end; ++i)
                    put(at, static_cast<std::uint8_t>(items[i].column - chunks[chunk]));
            });
        }
    });
    return packed;
}

template PackedWeights pack_weights(const CsrView<std::int32_t>&, std::int64_t, const std::int64_t*, std::int64_t, int);
template PackedWeights pack_weights(const CsrView<std::int64_t>&, std::int64_t, const std::int64_t*, std::int64_t, int);

}  // namespace ramify
