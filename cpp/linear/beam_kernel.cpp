// See beam_kernel.h and packed.h. Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/beam_kernel.h"

#include <string.h>

#include "core/avx512.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

template <class T>
inline T read(const std::uint8_t* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

template <int bytes>
inline std::uint32_t read_id(const std::uint8_t* p) {
    if constexpr (bytes == 1) return *p;
    if constexpr (bytes == 2) return read<std::uint16_t>(p);
    const auto x = read<std::uint32_t>(p);
    return bytes == 3 ? x & 0xffffff : x;
}

struct Collector {
    const PackedView& level;
    const ActiveChunks& active;
    const FoundWeights& found;
    std::uint32_t n_nodes = static_cast<std::uint32_t>(level.n_nodes);
    int id_bytes = node_id_bytes(level.n_nodes);
    const std::uint8_t* last_row = level.table + level.table_size - max_row_size;

    // In two steps, since a branch for each weight would be mispredicted too often: the weights of active nodes, then
    // their sums.
    template <int bytes>
    bool scan_list(const FeatureBlock& block, float value) {
        constexpr std::int64_t at_once = 256;
        std::int32_t hits[at_once];
        const std::uint64_t* const nodes = active.nodes;  // small enough for the first-level cache
        for (std::int64_t from = 0; from < block.size; from += at_once) {
            const std::int64_t count = from + at_once < block.size ? at_once : block.size - from;
            const std::uint8_t* ids = block.index + from * bytes;
            std::int64_t n_hits = 0;
            std::uint32_t largest = 0;
            for (std::int64_t i = 0; i < count; ++i) {
                const std::uint32_t node = read_id<bytes>(ids + i * bytes), known = node < n_nodes ? node : 0;
                largest = node > largest ? node : largest;
                hits[n_hits] = static_cast<std::int32_t>(i);
                n_hits += static_cast<std::int64_t>(nodes[known / 64] >> (known % 64) & 1);
            }
            if (largest >= n_nodes) return false;
            for (std::int64_t h = 0; h < n_hits; ++h)
                found.sums[active.position_of[read_id<bytes>(ids + hits[h] * bytes)]] +=
                    value * decode(block.offsets[from + hits[h]], level.mantissa_bits);
        }
        return true;
    }

    bool scan_bitmap(const FeatureBlock& block, float value) {
        for (std::int64_t g = 0; g < active.n_groups; ++g) {
            const ActiveGroup& group = active.groups[g];
            const std::uint8_t* head = block.index + bitmap_group_size * group.group;
            const auto bits = read<std::uint64_t>(head);
            std::uint64_t common = bits & group.bits;
            if (common == 0) continue;
            const std::int64_t first_row = read<std::uint32_t>(head + 8);
            const std::uint8_t* const rows = block.rows + read<std::uint32_t>(head + 12);
            for (; common != 0; common &= common - 1) {
                const std::uint64_t below = (common & -common) - 1;
                const std::int64_t row = first_row + __builtin_popcountll(bits & below);
                if (row >= block.size) return false;
                const std::uint8_t* const at = rows + read<std::uint16_t>(block.offsets + 2 * row);
                if (at > last_row) return false;
                const std::int32_t slot = group.first_slot + __builtin_popcountll(group.bits & below);
                __builtin_prefetch(at, 0, 2);  // `add` reads it much later
                found.hits[slot * found.room + found.counts[slot]++] = {at, value};
            }
        }
        return true;
    }

    bool add_feature(const FeatureBlock& block, float value) {
        if (block.size == 0) return true;
        if (!block.is_list) return scan_bitmap(block, value);
        if (id_bytes == 1) return scan_list<1>(block, value);
        if (id_bytes == 2) return scan_list<2>(block, value);
        if (id_bytes == 3) return scan_list<3>(block, value);
        return scan_list<4>(block, value);
    }
};

constexpr std::int64_t features_at_once = 128;

// Blocks lie anywhere in memory: each step prefetches what the next one reads.
bool collect(const PackedView& level, const ActiveChunks& active, const std::int32_t* features, const float* values,
             std::int64_t n, const FoundWeights& found) {
    FeatureBlock blocks[features_at_once];
    Collector collector{level, active, found};
    for (std::int64_t from = 0; from < n; from += features_at_once) {
        const std::int64_t count = from + features_at_once < n ? features_at_once : n - from;
        for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(level.block_starts + features[from + i]);
        for (std::int64_t i = 0; i < count; ++i)
            __builtin_prefetch(level.table + level.block_starts[features[from + i]] * block_unit);
        for (std::int64_t i = 0; i < count; ++i) {
            FeatureBlock& block = blocks[i];
            if (!read_block(level, features[from + i], block)) return false;
            if (block.size == 0) continue;
            if (block.is_list) {
                for (const std::uint8_t* line = block.index + 64; line < block.rows; line += 64)
                    __builtin_prefetch(line);
            } else {
                for (std::int64_t g = 0; g < active.n_groups; ++g)
                    __builtin_prefetch(block.index + bitmap_group_size * active.groups[g].group);
            }
        }
        for (std::int64_t i = 0; i < count; ++i)
            if (!collector.add_feature(blocks[i], values[from + i] * level.scale)) return false;
    }
    return true;
}

#if defined(__AVX512F__)
// The weights of the lanes of a mask, from their codes.
inline __m512 expand(const std::uint8_t* codes, __mmask16 lanes, int mantissa_bits) {
    const __m512i one = _mm512_set1_epi32(127 << 23), low = _mm512_set1_epi32(127), high = _mm512_set1_epi32(128);
    const __m512i code = _mm512_maskz_expand_epi32(
        lanes, _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
    const __m512i magnitude = _mm512_sll_epi32(_mm512_and_si512(code, low), _mm_cvtsi32_si128(23 - mantissa_bits));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, high), 24);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_or_si512(magnitude, sign), one));
}

// Adds rows with masks. The sums of 16 n columns stay in registers: through memory, each row would wait for the stores
// of the one before.
template <int n>
void add_rows_of(const Hit* hits, std::int64_t n_hits, std::int64_t n_bytes, int mantissa_bits, float* sums) {
    const std::uint32_t last_mask = n_bytes % 2 == 0 ? 0xffff : 0xff;  // an odd mask is followed by codes
    __m512 sum[n];
    for (int g = 0; g < n; ++g) sum[g] = _mm512_loadu_ps(sums + 16 * g);
    for (std::int64_t h = 0; h < n_hits; ++h) {
        const std::uint8_t* mask = hits[h].row + 1;
        const std::uint8_t* codes = mask + n_bytes;
        const __m512 by = _mm512_set1_ps(hits[h].value);
        for (int g = 0; g < n; ++g) {
            const std::uint32_t bits = read<std::uint16_t>(mask + 2 * g) & (g + 1 == n ? last_mask : 0xffffu);
            const auto lanes = static_cast<__mmask16>(bits);
            const __m512 weight = expand(codes, lanes, mantissa_bits);
            sum[g] = _mm512_mask_add_ps(sum[g], lanes, sum[g], _mm512_mul_ps(by, weight));
            codes += __builtin_popcount(bits);
        }
    }
    for (int g = 0; g < n; ++g) _mm512_storeu_ps(sums + 16 * g, sum[g]);
}
#endif

// First the rows with few weights, then those with masks.
void add(Hit* hits, std::int64_t n, std::int64_t width, int mantissa_bits, float* sums) {
    const std::int64_t n_bytes = mask_bytes(width);
    std::int64_t n_hits = 0;
    for (std::int64_t h = 0; h < n; ++h) {
        const Hit hit = hits[h];
        const std::int64_t count = *hit.row + 1;
        hits[n_hits] = hit;
        if (n_bytes <= count) {
            ++n_hits;
            continue;
        }
        const std::uint8_t* codes = hit.row + 1;
        for (std::int64_t i = 0; i < count; ++i) sums[codes[count + i]] += hit.value * decode(codes[i], mantissa_bits);
    }
#if defined(__AVX512F__)
    using Add = void (*)(const Hit*, std::int64_t, std::int64_t, int, float*);
    static constexpr Add by_width[] = {add_rows_of<1>,  add_rows_of<2>,  add_rows_of<3>,  add_rows_of<4>,
                                       add_rows_of<5>,  add_rows_of<6>,  add_rows_of<7>,  add_rows_of<8>,
                                       add_rows_of<9>,  add_rows_of<10>, add_rows_of<11>, add_rows_of<12>,
                                       add_rows_of<13>, add_rows_of<14>, add_rows_of<15>, add_rows_of<16>};
    by_width[(width - 1) / 16](hits, n_hits, n_bytes, mantissa_bits, sums);
#else
    for (std::int64_t h = 0; h < n_hits; ++h) {
        const std::uint8_t* mask = hits[h].row + 1;
        const std::uint8_t* codes = mask + n_bytes;
        for (std::int64_t b = 0; b < n_bytes; ++b)
            for (std::uint32_t bits = mask[b]; bits != 0; bits &= bits - 1)
                sums[8 * b + __builtin_ctz(bits)] += hits[h].value * decode(*codes++, mantissa_bits);
    }
#endif
}

// Finds the rows of a chunk that its visitors have features for, and sorts them: the visitors of row r are
// by_row[ends[r]] ... by_row[ends[r + 1] - 1].
void find_rows(const ChunkView& chunk, const Visitor* visitors, std::int64_t n_visitors, const ChunkScratch& scratch) {
    std::uint32_t* const counts = scratch.ends + 1;  // counts[r + 1]: of row r
    for (std::int64_t r = 0; r <= chunk.n_rows; ++r) scratch.ends[r] = 0;
    scratch.ends[chunk.n_rows + 1] = 0;
    FoundRow* found = scratch.found;
    for (std::int64_t v = 0; v < n_visitors; ++v) {
        const Visitor visitor = visitors[v];
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < visitor.n; ++i) {
            const auto f = static_cast<std::uint32_t>(visitor.features[i]);
            const ChunkWord word = chunk.words[f / 64];
            const std::uint64_t upto = word.bits << (63 - f % 64);  // the bit of f is the top one
            const std::uint32_t row = word.rows_before + static_cast<std::uint32_t>(__builtin_popcountll(upto));
            found[n] = {row, visitor.values[i]};  // one more than its id, for the feature that comes first
            n += static_cast<std::int64_t>(upto >> 63);
            counts[row] += static_cast<std::uint32_t>(upto >> 63);
        }
        scratch.n_found[v] = static_cast<std::uint32_t>(n);
        found += n;
    }
    for (std::int64_t r = 0; r < chunk.n_rows; ++r) counts[r + 1] += counts[r];
    found = scratch.found;
    for (std::int64_t v = 0; v < n_visitors; ++v)
        for (std::uint32_t i = 0; i < scratch.n_found[v]; ++i, ++found)
            scratch.by_row[counts[found->id - 1]++] = {static_cast<std::uint32_t>(v), found->value};
}

// Adds a row of n weights for all visitors that have its feature, column by column.
void add_columns(const FoundRow* visitors, const FoundRow* end, const std::uint8_t* codes, const std::uint8_t* columns,
                 std::int64_t n, int mantissa_bits, std::int64_t stride, float* sums) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float weight = decode(codes[i], mantissa_bits);
        float* const column = sums + columns[i];
        for (const FoundRow* v = visitors; v < end; ++v) column[v->id * stride] += v->value * weight;
    }
}

#if defined(__AVX512F__)
// The same for a row with a mask, unpacked to 16 n columns.
template <int n>
void add_masked(const FoundRow* visitors, const FoundRow* end, const std::uint8_t* mask, std::int64_t n_bytes,
                int mantissa_bits, float* sums) {
    const std::uint8_t* codes = mask + n_bytes;
    const std::uint32_t last_mask = n_bytes % 2 == 0 ? 0xffff : 0xff;  // an odd mask is followed by codes
    __m512 weight[n];
    __mmask16 lanes[n];
    for (int g = 0; g < n; ++g) {
        const std::uint32_t bits = read<std::uint16_t>(mask + 2 * g) & (g + 1 == n ? last_mask : 0xffffu);
        lanes[g] = static_cast<__mmask16>(bits);
        weight[g] = expand(codes, lanes[g], mantissa_bits);
        codes += __builtin_popcount(bits);
    }
    for (const FoundRow* v = visitors; v < end; ++v) {
        float* const row = sums + v->id * (16 * n);
        const __m512 by = _mm512_set1_ps(v->value);
        for (int g = 0; g < n; ++g) {
            const __m512 sum = _mm512_loadu_ps(row + 16 * g);
            _mm512_storeu_ps(row + 16 * g, _mm512_mask_add_ps(sum, lanes[g], sum, _mm512_mul_ps(by, weight[g])));
        }
    }
}

using AddMasked = void (*)(const FoundRow*, const FoundRow*, const std::uint8_t*, std::int64_t, int, float*);
constexpr AddMasked add_masked_of[] = {add_masked<1>,  add_masked<2>,  add_masked<3>,  add_masked<4>,
                                       add_masked<5>,  add_masked<6>,  add_masked<7>,  add_masked<8>,
                                       add_masked<9>,  add_masked<10>, add_masked<11>, add_masked<12>,
                                       add_masked<13>, add_masked<14>, add_masked<15>, add_masked<16>};
#endif

void score(const ChunkView& chunk, const Visitor* visitors, std::int64_t n_visitors, std::int64_t width,
           int mantissa_bits, const ChunkScratch& scratch, std::int64_t stride, float* sums) {
    find_rows(chunk, visitors, n_visitors, scratch);
    const std::int64_t n_bytes = mask_bytes(width);
    for (std::int64_t i = 0; i < chunk.n_rows; ++i) {
        const std::uint32_t r = chunk.order[i];
        const FoundRow *const from = scratch.by_row + scratch.ends[r], *const end =
                                                                           scratch.by_row + scratch.ends[r + 1];
        if (from == end) continue;
        const std::uint8_t* row = chunk.rows + chunk.starts[i];
        const std::int64_t n = *row++ + 1;
        if (n < n_bytes) {
            add_columns(from, end, row, row + n, n, mantissa_bits, stride, sums);
            continue;
        }
#if defined(__AVX512F__)
        add_masked_of[stride / 16 - 1](from, end, row, n_bytes, mantissa_bits, sums);
#else
        std::uint8_t columns[chunk_width];
        std::int64_t n_columns = 0;
        for (std::int64_t b = 0; b < n_bytes; ++b)
            for (std::uint32_t bits = row[b]; bits != 0; bits &= bits - 1)
                columns[n_columns++] = static_cast<std::uint8_t>(8 * b + __builtin_ctz(bits));
        add_columns(from, end, row + n_bytes, columns, n_columns, mantissa_bits, stride, sums);
#endif
    }
}

template <int power>
void hinge_of(float* margins, std::int64_t n, float parent, bool are_labels) {
    for (std::int64_t j = 0; j < n; ++j) {
        const float x = 1.0f - margins[j] > 0.0f ? 1.0f - margins[j] : 0.0f, square = x * x;
        const float shortfall = power == 1 ? x : power == 2 ? square : power == 3 ? square * x : square * square;
        margins[j] = parent - shortfall + bonus_of(margins[j], are_labels);
    }
}

void hinge(float* margins, std::int64_t n, float parent, int power, bool are_labels) {
    using Hinge = void (*)(float*, std::int64_t, float, bool);
    static constexpr Hinge by_power[] = {hinge_of<1>, hinge_of<2>, hinge_of<3>, hinge_of<4>};
    by_power[power - 1](margins, n, parent, are_labels);
}

void find(const float* scores, std::int64_t n, float cutoff, std::uint64_t* over) {
    for (std::int64_t from = 0; from < n; from += 64) {
        const std::int64_t to = from + 64 < n ? from + 64 : n;
        std::uint64_t bits = 0;
        std::int64_t j = from;
#if defined(__AVX512F__)
        const __m512 bound = _mm512_set1_ps(cutoff);
        for (; j < to; j += 16) {
            const auto lanes = static_cast<__mmask16>(to - j < 16 ? (1 << (to - j)) - 1 : 0xffff);
            const __m512 some = _mm512_maskz_loadu_ps(lanes, scores + j);
            bits |= std::uint64_t{_mm512_mask_cmp_ps_mask(lanes, some, bound, _CMP_NLT_UQ)} << (j - from);
        }
#endif
        for (; j < to; ++j) bits |= static_cast<std::uint64_t>(!(scores[j] < cutoff)) << (j - from);
        over[from / 64] = bits;
    }
}

}  // namespace

extern const CollectHits collect_hits;
const CollectHits collect_hits = collect;
extern const AddHits add_hits;
const AddHits add_hits = add;
extern const ScoreChunk score_chunk;
const ScoreChunk score_chunk = score;
extern const HingeScores hinge_scores;
const HingeScores hinge_scores = hinge;
extern const FindOver find_over;
const FindOver find_over = find;

}  // namespace ramify::RAMIFY_VARIANT
