// One step of a beam search: from the nodes in the beam to their best children.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/scratch.h"
#include "core/topk.h"
#include "core/vector_ops.h"
#include "linear/beam.h"

namespace ramify {

struct Node {
    std::int32_t id;
    float score;
};

// Distance between the chunks that BeamScorer::score writes.
inline std::int64_t full_stride(std::int64_t) { return chunk_width; }

// Scores and selects nodes for one row at a time; its memory is reused from row to row and from call to call.
class BeamScorer {
public:
    // Margins by the sparse features of the children of the given nodes: chunk by chunk, chunk_width floats apart.
    float* score(const BeamLevel& level, const std::vector<Node>& parents, const std::int32_t* columns,
                 const float* values, std::int64_t n) {
        if (static_cast<std::int64_t>(slot_of_.size()) < level.weights.n_chunks)
            slot_of_.resize(static_cast<std::size_t>(level.weights.n_chunks), -1);
        active_.clear();
        for (const Node& parent : parents)
            for (std::int32_t p = level.first_chunk[static_cast<std::size_t>(parent.id)];
                 p < level.first_chunk[static_cast<std::size_t>(parent.id) + 1]; ++p)
                active_.push_back(p);
        if (sums_.size() < active_.size() * chunk_width) sums_.resize(active_.size() * chunk_width);
        if (hits_.size() < active_.size() * features_at_once) hits_.resize(active_.size() * features_at_once);
        for (std::size_t s = 0; s < active_.size(); ++s) {
            const auto p = static_cast<std::size_t>(active_[s]);
            slot_of_[p] = static_cast<std::int32_t>(s);
            std::copy(level.bias + level.chunks[p], level.bias + level.chunks[p + 1], sums_.data() + s * chunk_width);
        }
        const ActiveChunks active{active_.data(), static_cast<std::int64_t>(active_.size()), slot_of_.data()};
        const bool intact = hot().score_chunks(level.weights, active, columns, values, n, hits_.data(), sums_.data());
        for (const std::int32_t p : active_) slot_of_[static_cast<std::size_t>(p)] = -1;
        if (!intact) throw DamagedTable();
        return sums_.data();
    }

    // Adds the dense features to the margins, turns them into log scores and calls found(first node, log scores, n) for
    // the children in each chunk. stride(width) is the distance from the scores of one chunk to those of the next.
    template <class Stride, class Found>
    static void finish(const BeamLevel& level, bool are_labels, const std::vector<Node>& parents, float* sums,
                       const float* dense, Stride&& stride, Found&& found) {
        for (const Node& parent : parents) {
            const auto p = static_cast<std::size_t>(parent.id);
            for (std::int32_t chunk = level.first_chunk[p]; chunk < level.first_chunk[p + 1]; ++chunk) {
                const std::int64_t first = level.chunks[static_cast<std::size_t>(chunk)];
                const std::int64_t n = level.chunks[static_cast<std::size_t>(chunk) + 1] - first;
                for (std::int64_t j = 0; level.n_dense > 0 && j < n; j += 4) {
                    float products[4];
                    const std::int64_t count = std::min<std::int64_t>(4, n - j);
                    dots(
                        dense, level.n_dense, count,
                        [&](std::int64_t i) { return level.dense + (first + j + i) * level.n_dense; }, products);
                    for (std::int64_t i = 0; i < count; ++i) sums[j + i] += products[i];
                }
                combine(level, are_labels, parent.score, sums, n);
                found(first, sums, n);
                sums += stride(n);
            }
        }
    }

    // The best children of the nodes, in order: labels if this is the last level of all, else nodes.
    template <class Stride>
    const std::vector<Scored>& select(const BeamModel& model, std::int64_t t, const BeamOptions& options,
                                      const std::vector<Node>& parents, float* sums, const float* dense,
                                      Stride&& stride) {
        const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
        const bool last = t + 1 == options.depth, to_labels = t + 1 == static_cast<std::int64_t>(model.levels.size());
        best_.start(last ? options.k : options.beam_size);
        if (to_labels && model.repeats) {
            all_.clear();
            finish(level, to_labels, parents, sums, dense, stride,
                   [&](std::int64_t first, const float* scores, std::int64_t n) {
                       for (std::int64_t j = 0; j < n; ++j) all_.push_back({scores[j], model.labels[first + j]});
                   });
            // The best leaf of each label, then the best labels.
            std::sort(all_.begin(), all_.end(),
                      [](const Scored& a, const Scored& b) { return a.id != b.id ? a.id < b.id : better(a, b); });
            all_.erase(
                std::unique(all_.begin(), all_.end(), [](const Scored& a, const Scored& b) { return a.id == b.id; }),
                all_.end());
            for (const Scored& item : all_) best_.add(item);
        } else {
            add_children(model, level, to_labels, parents, sums, dense, stride);
        }
        return best_.finish();
    }

    // The best children of the nodes of a single query, as `select` finds them, by branch and bound: a child never
    // scores above its parent, apart from the bonus of wide margins, so nodes are expanded best first, some at a time,
    // until the next one cannot contribute. The result has the same bits as that of expanding all of them.
    const std::vector<Scored>& expand(const BeamModel& model, std::int64_t t, const BeamOptions& options,
                                      const std::int32_t* columns, const float* values, std::int64_t n,
                                      const float* dense) {
        const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
        const bool last = t + 1 == options.depth, to_labels = t + 1 == static_cast<std::int64_t>(model.levels.size());
        const std::int64_t wanted = last ? options.k : options.beam_size;
        const auto n_nodes = static_cast<std::int64_t>(nodes.size());
        // Enough nodes for twice as many children as wanted, on average; then as many again and again.
        std::int64_t size = 2 * wanted * level.n_parents / std::max<std::int64_t>(1, level.n_nodes) + 4;
        if (level.n_dense > 0 || level.transform == Transform::noop || (to_labels && model.repeats) ||
            2 * size >= n_nodes)
            return select(model, t, options, nodes, score(level, nodes, columns, values, n), dense, full_stride);
        const float slack = max_bonus(level, to_labels, values, n);
        by_score_ = nodes;
        std::sort(by_score_.begin(), by_score_.end(),
                  [](const Node& a, const Node& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; });
        best_.start(wanted);
        for (std::int64_t from = 0; from < n_nodes; from += size) {
            best_.settle();
            const float bound = by_score_[static_cast<std::size_t>(from)].score;
            if (bound + slack + 1e-6f * std::abs(bound) < best_.cutoff()) break;
            if (from > 0) size = std::min(2 * size, n_nodes - from);
            block_.assign(by_score_.begin() + from, by_score_.begin() + std::min(from + size, n_nodes));
            std::sort(block_.begin(), block_.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
            add_children(model, level, to_labels, block_, score(level, block_, columns, values, n), dense, full_stride);
        }
        return best_.finish();
    }

    std::vector<Node> nodes;
    std::vector<std::int32_t> features;  // a row with 64-bit indices, narrowed

private:
    // Upper bound of a child's bonus: no margin exceeds the largest bias plus |x|_1 times the largest weight.
    static float max_bonus(const BeamLevel& level, bool are_labels, const float* values, std::int64_t n) {
        if (!are_labels) return static_cast<float>(margin_bonus);
        float norm = 0.0f;
        for (std::int64_t i = 0; i < n; ++i) norm += std::abs(values[i]);
        return static_cast<float>(margin_bonus) * 1.001f * (level.max_bias + norm * level.max_weight + 1.0f);
    }

    template <class Stride>
    void add_children(const BeamModel& model, const BeamLevel& level, bool to_labels, const std::vector<Node>& parents,
                      float* sums, const float* dense, Stride&& stride) {
        const bool has_labels = to_labels && model.labels != nullptr;
        finish(
            level, to_labels, parents, sums, dense, stride,
            [&](std::int64_t first, const float* scores, std::int64_t n) {
                for_each_over(scores, n, [&](std::int64_t j) {
                    best_.add({scores[j], has_labels ? model.labels[first + j] : static_cast<std::int32_t>(first + j)});
                });
            });
    }

    // Calls body(j) for scores that may still be among the best; most groups of 16 are skipped at once.
    template <class Body>
    void for_each_over(const float* scores, std::int64_t n, Body&& body) const {
        for (std::int64_t from = 0; from < n; from += 16) {
            const std::int64_t to = std::min(n, from + 16);
            float best = -std::numeric_limits<float>::infinity();
            if (to - from == 16) {
                float parts[4] = {best, best, best, best};
                for (int i = 0; i < 16; ++i)
                    parts[i % 4] = scores[from + i] > parts[i % 4] ? scores[from + i] : parts[i % 4];
                for (const float part : parts) best = part > best ? part : best;
                if (best < best_.cutoff()) continue;
            }
            for (std::int64_t j = from; j < to; ++j)
                if (!(scores[j] < best_.cutoff())) body(j);
        }
    }

    static void combine(const BeamLevel& level, bool are_labels, float parent, float* sums, std::int64_t n) {
        if (level.transform == Transform::noop) return;
        if (level.transform == Transform::sigmoid) {
            for (std::int64_t j = 0; j < n; ++j) {
                const float v = sums[j];
                sums[j] = parent + (v < 0 ? v - std::log1p(std::exp(v)) : -std::log1p(std::exp(-v)));
            }
            return;
        }
        auto hinge = [&](auto power) {
            for (std::int64_t j = 0; j < n; ++j) {
                const float shortfall = std::max(0.0f, 1.0f - sums[j]);
                sums[j] = parent - power(shortfall) + bonus_of(sums[j], are_labels);
            }
        };
        if (level.power == 1.0f) hinge([](float x) { return x; });
        else if (level.power == 2.0f) hinge([](float x) { return x * x; });
        else if (level.power == 3.0f) hinge([](float x) { return x * x * x; });
        else hinge([&](float x) { return x > 0 ? std::pow(x, level.power) : 0.0f; });
    }

    TopK best_;
    std::vector<Node> by_score_, block_;
    std::vector<Scored> all_;
    std::vector<std::int32_t> active_, slot_of_;
    std::vector<float> sums_;
    std::vector<Hit> hits_;
};

inline ScratchPool<BeamScorer> beam_scorers;

constexpr std::int64_t beam_block_size = 32;  // rows

// The features of a row as 32-bit indices.
template <class Index>
const std::int32_t* narrow(const CsrView<Index>& rows, std::int64_t row, BeamScorer& scorer) {
    if constexpr (std::is_same_v<Index, std::int32_t>) {
        return rows.indices + rows.indptr[row];
    } else {
        scorer.features.assign(rows.indices + rows.indptr[row], rows.indices + rows.indptr[row + 1]);
        return scorer.features.data();
    }
}

// The beam for the next level, by node id.
inline void set_beam(const std::vector<Scored>& found, std::vector<Node>& nodes) {
    nodes.clear();
    for (const Scored& item : found) nodes.push_back({item.id, item.score});
    std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
}

}  // namespace ramify
