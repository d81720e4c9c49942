// See candidate_kernel.h. Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/candidate_kernel.h"

#include <string.h>

#include "core/avx512.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

constexpr std::int64_t blocks_ahead = 4;  // prefetched: they lie anywhere in memory

template <class T>
inline T read(const std::uint8_t* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

inline float read_weight(const std::uint8_t* p) {
    const std::uint32_t bits = std::uint32_t{read<std::uint16_t>(p)} << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Adds the weights of a group to its sums: those of the positions in `present`, one after the other in memory.
inline void add_group(const std::uint8_t* weights, std::uint32_t present, std::uint32_t candidates, float value,
                      float* sums) {
#if defined(__AVX512F__)
    (void)candidates;  // all positions of a group cost no more than one
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
    const __m512i dense = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    const auto mask = static_cast<__mmask16>(present);
    const __m512 spread = _mm512_castsi512_ps(_mm512_maskz_expand_epi32(mask, dense));
    const __m512 sum = _mm512_loadu_ps(sums);
    _mm512_storeu_ps(sums, _mm512_mask_add_ps(sum, mask, sum, _mm512_mul_ps(spread, _mm512_set1_ps(value))));
#else
    for (std::uint32_t found = present & candidates; found != 0; found &= found - 1) {
        const int at = __builtin_ctz(found);
        sums[at] += value * read_weight(weights + 2 * __builtin_popcount(present & ((1u << at) - 1)));
    }
#endif
}

struct FeatureScorer {
    const FeatureWeights& table;
    const CandidateGroups& active;
    float* sums;

    template <class Position>
    bool add_list(const std::uint8_t* positions, const std::uint8_t* weights, std::int64_t n, float value) {
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t at = read<Position>(positions + i * static_cast<std::int64_t>(sizeof(Position)));
            if (at >= table.n_positions) return false;
            const std::int64_t slot = active.slot_of[at / position_group];
            if (slot >= 0) sums[position_group * slot + at % position_group] += value * read_weight(weights + 2 * i);
        }
        return true;
    }

    bool add_bitmap(const std::uint8_t* bitmap, const std::uint8_t* weights, std::int64_t n, float value) {
        for (std::int64_t slot = 0; slot < active.n; ++slot) {
            const auto [group, candidates] = active.groups[slot];
            const std::uint8_t* word = bitmap + bitmap_word_size * (group / 4);
            const std::uint64_t bits = read<std::uint64_t>(word);
            const unsigned shift = group % 4 * 16;
            const auto present = static_cast<std::uint32_t>(bits >> shift & 0xffff);
            if ((present & candidates) == 0) continue;
            const std::int64_t before = read<std::uint32_t>(word + 8);
            if (before + __builtin_popcountll(bits) > n) return false;
            const std::int64_t first = before + __builtin_popcountll(bits & ((std::uint64_t{1} << shift) - 1));
            add_group(weights + 2 * first, present, candidates, value, sums + position_group * slot);
        }
        return true;
    }

    bool add_feature(std::int64_t feature, float value) {
        const std::int64_t begin = table.block_starts[feature] * feature_block_unit,
                           end = table.block_starts[feature + 1] * feature_block_unit;
        if (begin == end) return true;
        if (begin > end || end + feature_block_padding > table.size) return false;
        const std::uint8_t* block = table.blocks + begin;
        const std::uint32_t header = read<std::uint32_t>(block);
        const std::int64_t n = header / 2, id_bytes = position_bytes(table.n_positions);
        const bool list = header % 2 == 0;
        const std::int64_t room = list ? n * id_bytes : bitmap_word_size * bitmap_words(table.n_positions);
        if (feature_block_header + room + 2 * n > end - begin) return false;
        const std::uint8_t *ids = block + feature_block_header, *weights = ids + room;
        if (!list) return add_bitmap(ids, weights, n, value);
        if (id_bytes == 2) return add_list<std::uint16_t>(ids, weights, n, value);
        return add_list<std::uint32_t>(ids, weights, n, value);
    }
};

bool score(const FeatureWeights& weights, const CandidateGroups& active, const std::int32_t* features,
           const float* values, std::int64_t n, float* sums) {
    FeatureScorer scorer{weights, active, sums};
    for (std::int64_t i = 0; i < n; ++i) {
        if (i + blocks_ahead < n) {
            const std::uint8_t* block =
                weights.blocks + weights.block_starts[features[i + blocks_ahead]] * feature_block_unit;
            __builtin_prefetch(block);
            __builtin_prefetch(block + 64);
        }
        if (!scorer.add_feature(features[i], values[i])) return false;
    }
    return true;
}

}  // namespace

extern const ScoreFeatures score_features;
const ScoreFeatures score_features = score;

}  // namespace ramify::RAMIFY_VARIANT
