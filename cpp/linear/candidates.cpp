#include "linear/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "core/topk.h"
#include "core/vector_ops.h"
#include "linear/packed.h"

namespace ramify {

namespace {

constexpr std::int64_t features_per_block = 4096;
constexpr std::int64_t queries_at_once = 16;
constexpr std::int64_t rows_ahead = 4;       // whose dense weights are prefetched
constexpr float min_log_score = -87.49823f;  // of the smallest normal float, nearly: its exponential is not 0

// The upper half of a float, rounded to nearest, ties to even; finite weights stay finite.
std::uint16_t upper_half(float weight) {
    const auto bits = std::bit_cast<std::uint32_t>(weight);
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<std::uint16_t>((rounded & 0x7f80) == 0x7f80 ? bits >> 16 : rounded);
}

// The form of a block. Bitmaps are faster to search than lists, and may take up to twice as much room.
struct BlockForm {
    std::int64_t id_bytes, n_words;

    bool is_list(std::int64_t n) const { return 2 * n * id_bytes <= bitmap_word_size * n_words; }
    std::int64_t units(std::int64_t n) const {
        if (n == 0) return 0;
        const std::int64_t ids = is_list(n) ? n * id_bytes : bitmap_word_size * n_words;
        return (feature_block_header + ids + 2 * n + feature_block_unit - 1) / feature_block_unit;
    }
};

template <class T, class Value>
void put(std::uint8_t* at, Value value) {
    const auto converted = static_cast<T>(value);
    std::memcpy(at, &converted, sizeof converted);
}

// Fills the block of a feature, which is zero.
template <class Index>
void write_block(const Index* positions, const float* weights, std::int64_t n, const BlockForm& form,
                 std::uint8_t* block) {
    const bool list = form.is_list(n);
    put<std::uint32_t>(block, 2 * n + (list ? 0 : 1));
    std::uint8_t* ids = block + feature_block_header;
    if (list) {
        for (std::int64_t i = 0; i < n; ++i) {
            if (form.id_bytes == 2) put<std::uint16_t>(ids + 2 * i, positions[i]);
            else put<std::uint32_t>(ids + 4 * i, positions[i]);
        }
    } else {
        std::int64_t i = 0;
        for (std::int64_t word = 0; word < form.n_words; ++word) {
            std::uint64_t bits = 0;
            put<std::uint32_t>(ids + bitmap_word_size * word + 8, i);
            for (; i < n && positions[i] / 64 == word; ++i) bits |= std::uint64_t{1} << (positions[i] % 64);
            put<std::uint64_t>(ids + bitmap_word_size * word, bits);
        }
    }
    ids += list ? n * form.id_bytes : bitmap_word_size * form.n_words;
    for (std::int64_t i = 0; i < n; ++i) put<std::uint16_t>(ids + 2 * i, upper_half(weights[i]));
}

// What scoring a query needs; every slot is -1 between queries.
struct CandidateScratch {
    std::vector<std::int32_t> slot_of;  // (groups of all positions)
    std::vector<CandidateGroup> active;
    std::vector<std::int32_t> features;
    std::vector<float> values, dense, sums, margins;
    std::vector<Scored> ranked;

    // Finds the groups of the candidates and sets their sums to zero.
    void activate(const std::int32_t* candidates, std::int64_t width, const LinearClassifiers& classifiers) {
        const std::int64_t n_groups = 4 * bitmap_words(classifiers.sparse.n_positions);
        if (static_cast<std::int64_t>(slot_of.size()) < n_groups)
            slot_of.resize(static_cast<std::size_t>(n_groups), -1);
        for (std::int64_t j = 0; j < width; ++j) {
            if (candidates[j] < 0) continue;
            const auto group = static_cast<std::uint32_t>(classifiers.positions[candidates[j]] / position_group);
            std::int32_t& slot = slot_of[group];
            if (slot < 0) active.push_back({group, 0});
            slot = 0;
        }
        std::sort(active.begin(), active.end(),
                  [](const CandidateGroup& a, const CandidateGroup& b) { return a.group < b.group; });
        for (std::size_t i = 0; i < active.size(); ++i) slot_of[active[i].group] = static_cast<std::int32_t>(i);
        for (std::int64_t j = 0; j < width; ++j)
            if (candidates[j] >= 0) {
                const std::int64_t at = index_of(classifiers.positions[candidates[j]]);
                active[static_cast<std::size_t>(at / position_group)].candidates |=
                    static_cast<std::uint16_t>(1u << (at % position_group));
            }
        sums.assign(active.size() * position_group, 0.0f);
    }
    // Index of the sum of a position in an active group.
    std::int64_t index_of(std::int32_t position) const {
        return position_group * slot_of[static_cast<std::size_t>(position / position_group)] +
               position % position_group;
    }
    void clear() {
        for (const CandidateGroup& group : active) slot_of[group.group] = -1;
        active.clear();
    }
};

ScratchPool<CandidateScratch> candidate_scratch;

// What a vector is divided by to have norm 1; zeros stay zeros.
double norm_of(const float* values, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
    return sum > 0 ? std::sqrt(sum) : 1.0;
}

// Margins of the candidates of query q.
template <class Index>
void score_query(const LinearClassifiers& classifiers, const CandidateQueries<Index>& queries, std::int64_t q,
                 CandidateScratch& s, float* out) {
    const CsrView<Index>& sparse = queries.sparse;
    const std::int64_t begin = sparse.indptr[q], n = sparse.indptr[q + 1] - begin, n_dense = classifiers.n_dense;
    const std::int32_t* rows = queries.candidates + q * queries.width;
    const auto scaled = [](const float* from, std::int64_t count, std::vector<float>& to) {
        const double norm = norm_of(from, count);
        to.resize(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) to[static_cast<std::size_t>(i)] = static_cast<float>(from[i] / norm);
    };
    s.features.assign(sparse.indices + begin, sparse.indices + begin + n);
    scaled(sparse.data + begin, n, s.values);
    scaled(queries.dense + q * n_dense, n_dense, s.dense);
    for (float& x : s.dense) x *= queries.dense_norm;

    s.activate(rows, queries.width, classifiers);
    const CandidateGroups active{s.active.data(), static_cast<std::int64_t>(s.active.size()), s.slot_of.data()};
    if (!hot().score_features(classifiers.sparse, active, s.features.data(), s.values.data(), n, s.sums.data()))
        throw DamagedTable();
    const auto dot = hot().dot;
    for (std::int64_t j = 0; j < queries.width; ++j) {
        if (j + rows_ahead < queries.width && rows[j + rows_ahead] >= 0)
            prefetch_row(classifiers.dense + rows[j + rows_ahead] * n_dense, n_dense);
        out[j] = 0;
        if (rows[j] < 0) continue;
        out[j] = s.sums[static_cast<std::size_t>(s.index_of(classifiers.positions[rows[j]]))] +
                 dot(classifiers.dense + rows[j] * n_dense, s.dense.data(), n_dense);
        out[j] += classifiers.bias[rows[j]];
    }
    s.clear();
}

// Calls body(query, scratch) for all queries.
template <class Body>
void for_each_query(std::int64_t n, int threads, Body&& body) {
    parallel_for((n + queries_at_once - 1) / queries_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<CandidateScratch>::Lease lease(candidate_scratch);
        for (std::int64_t q = block * queries_at_once; q < std::min(n, (block + 1) * queries_at_once); ++q)
            body(q, *lease);
    });
}

float log_score_of(const CandidateBlend& blend, float margin) {
    switch (blend.transform) {
        case Transform::noop: return margin;
        case Transform::sigmoid: return std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin)));
        case Transform::hinge: break;
    }
    return bonus_of(margin, true) - std::pow(std::max(0.0f, 1.0f - margin), blend.transform_power);
}

float value_of(const ScoreTree& tree, const float* features) {
    std::int32_t node = 0;
    for (int i = 0; i < tree.depth; ++i)
        node = (features[tree.feature[node]] <= tree.threshold[node] ? tree.left : tree.right)[node];
    return tree.value[node];
}

// Logarithm of the score of a classifier with the given margin, proposed with log score log_p.
float blended_log_score(const CandidateBlend& blend, std::int32_t row, float log_p, float margin) {
    const float log_q = log_score_of(blend, margin);
    const float log_product = blend.power > 0 ? blend.power * log_p + log_q : log_q;
    if (!blend.tree) return std::max(log_product, min_log_score);
    const float product = std::exp(log_product);
    const float features[ScoreTree::n_features] = {product, std::exp(log_p), std::exp(log_q),
                                                   static_cast<float>(blend.counts[row])};
    const float w = blend.tree_weight;
    return std::max(std::log((1.0f - w) * product + w * value_of(*blend.tree, features)), min_log_score);
}

}  // namespace

template <class Index>
PackedFeatures pack_features(const CsrView<Index>& weights, int threads) {
    const BlockForm form{position_bytes(weights.cols), bitmap_words(weights.cols)};
    const auto count = [&](std::int64_t f) {
        return static_cast<std::int64_t>(weights.indptr[f + 1] - weights.indptr[f]);
    };
    std::vector<std::int64_t> starts(static_cast<std::size_t>(weights.rows) + 1);
    for (std::int64_t f = 0; f < weights.rows; ++f) starts[static_cast<std::size_t>(f) + 1] = form.units(count(f));
    accumulate(starts);
    if (starts.back() > static_cast<std::int64_t>(UINT32_MAX))
        throw std::length_error("the weights of the classifiers exceed 16 GB");
    PackedFeatures packed;
    packed.block_starts.assign(starts.begin(), starts.end());
    packed.blocks.resize(static_cast<std::size_t>(starts.back() * feature_block_unit + feature_block_padding));
    parallel_for((weights.rows + features_per_block - 1) / features_per_block, threads, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(weights.rows, (block + 1) * features_per_block);
        for (std::int64_t f = block * features_per_block; f < end; ++f)
            if (count(f) > 0)
                write_block(weights.indices + weights.indptr[f], weights.data + weights.indptr[f], count(f), form,
                            packed.blocks.data() + starts[static_cast<std::size_t>(f)] * feature_block_unit);
    });
    return packed;
}

template <class Index>
void score_candidates(const LinearClassifiers& classifiers, const CandidateQueries<Index>& queries, float* out,
                      int threads) {
    for_each_query(queries.sparse.rows, threads, [&](std::int64_t q, CandidateScratch& scratch) {
        score_query(classifiers, queries, q, scratch, out + q * queries.width);
    });
}

template <class Index>
void rank_candidates(const LinearClassifiers& classifiers, const CandidateBlend& blend,
                     const CandidateQueries<Index>& queries, const float* log_scores, std::int64_t k, std::int32_t* ids,
                     float* scores, int threads) {
    const std::int64_t width = queries.width;
    for_each_query(queries.sparse.rows, threads, [&](std::int64_t q, CandidateScratch& scratch) {
        scratch.margins.resize(static_cast<std::size_t>(width));
        score_query(classifiers, queries, q, scratch, scratch.margins.data());
        scratch.ranked.clear();
        for (std::int64_t j = 0; j < width; ++j) {
            const std::int32_t row = queries.candidates[q * width + j];
            if (row < 0) continue;
            const float margin = scratch.margins[static_cast<std::size_t>(j)];
            scratch.ranked.push_back({blended_log_score(blend, row, log_scores[q * width + j], margin), row});
        }
        write_topk(scratch.ranked, k, ids + q * k, scores + q * k);
    });
}

template PackedFeatures pack_features(const CsrView<std::int32_t>&, int);
template PackedFeatures pack_features(const CsrView<std::int64_t>&, int);
template void score_candidates(const LinearClassifiers&, const CandidateQueries<std::int32_t>&, float*, int);
template void score_candidates(const LinearClassifiers&, const CandidateQueries<std::int64_t>&, float*, int);
template void rank_candidates(const LinearClassifiers&, const CandidateBlend&, const CandidateQueries<std::int32_t>&,
                              const float*, std::int64_t, std::int32_t*, float*, int);
template void rank_candidates(const LinearClassifiers&, const CandidateBlend&, const CandidateQueries<std::int64_t>&,
                              const float*, std::int64_t, std::int32_t*, float*, int);

}  // namespace ramify
