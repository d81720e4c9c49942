// One step of a beam search: from the nodes in the beam to their best children.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "core/scratch.h"
#include "core/topk.h"
#include "core/vector_ops.h"
#include "linear/beam.h"
#include "linear/expansion.h"

namespace ramify {

// Scores and selects nodes for one row at a time; its memory is reused from row to row and from call to call.
class BeamScorer {
public:
    // Finds the weights that a query has for the children of the given nodes, which ascend by id. `score_children` then
    // scores them, node by node.
    void collect(const BeamLevel& level, const std::vector<Scored>& parents, const std::int32_t* columns,
                 const float* values, std::int64_t n) {
        deactivate();
        level_ = &level;
        const PackedView& weights = level.weights;
        if (static_cast<std::int64_t>(position_of_.size()) < weights.n_nodes)
            position_of_.resize(static_cast<std::size_t>(weights.n_nodes));
        nodes_.resize(std::max(nodes_.size(), static_cast<std::size_t>(weights.n_nodes) / 64 + 1));
        for (const Scored& parent : parents)
            for (std::int32_t p = level.first_chunk[static_cast<std::size_t>(parent.id)];
                 p < level.first_chunk[static_cast<std::size_t>(parent.id) + 1]; ++p) {
                const auto slot = static_cast<std::int32_t>(active_.size());
                if (groups_.empty() || groups_.back().group != p / 64) groups_.push_back({0, p / 64, slot});
                groups_.back().bits |= std::uint64_t{1} << (p % 64);
                active_.push_back(p);
            }
        if (sums_.size() < active_.size() * chunk_width) sums_.resize(active_.size() * chunk_width);
        for (std::size_t s = 0; s < active_.size(); ++s) {
            const auto p = static_cast<std::size_t>(active_[s]);
            const std::int64_t first = level.chunks[p], end = level.chunks[p + 1];
            std::copy(level.bias + first, level.bias + end, sums_.data() + s * chunk_width);
            std::iota(position_of_.begin() + first, position_of_.begin() + end,
                      static_cast<std::int32_t>(s * chunk_width));
            for (std::int64_t node = first; node < end; ++node)
                nodes_[static_cast<std::size_t>(node) / 64] |= std::uint64_t{1} << (node % 64);
        }
        room_ = std::min(n, max_room);
        if (hits_.size() < active_.size() * static_cast<std::size_t>(room_))
            hits_.resize(active_.size() * static_cast<std::size_t>(room_));
        counts_.assign(active_.size(), 0);
        const ActiveChunks active{groups_.data(), static_cast<std::int64_t>(groups_.size()), nodes_.data(),
                                  position_of_.data()};
        const FoundWeights found{sums_.data(), hits_.data(), counts_.data(), room_};
        for (std::int64_t from = 0; from < n; from += room_) {
            if (!hot().collect_hits(weights, active, columns + from, values + from, std::min(room_, n - from), found))
                throw DamagedTable();
            if (from + room_ < n)  // makes room for further features
                for (std::size_t s = 0; s < active_.size(); ++s) add_hits(s);
        }
    }

    // Log scores of the children of a node: calls found(first child, scores, n) chunk by chunk.
    template <class Found>
    void score_children(const BeamLevel& level, bool are_labels, const Scored& parent, const float* dense,
                        Found&& found) {
        const auto p = static_cast<std::size_t>(parent.id);
        for (std::int32_t chunk = level.first_chunk[p]; chunk < level.first_chunk[p + 1]; ++chunk) {
            const std::int64_t first = level.chunks[static_cast<std::size_t>(chunk)];
            const auto slot = static_cast<std::size_t>(position_of_[static_cast<std::size_t>(first)]) / chunk_width;
            float* sums = add_hits(slot);
            const std::int64_t n = level.chunks[static_cast<std::size_t>(chunk) + 1] - first;
            finish_scores(level, are_labels, parent.score, first, dense, sums, n);
            found(first, sums, n);
        }
    }

    // Sums by the sparse features become log scores of n children, from the node `first` on.
    static void finish_scores(const BeamLevel& level, bool are_labels, float parent, std::int64_t first,
                              const float* dense, float* sums, std::int64_t n) {
        for (std::int64_t j = 0; level.n_dense > 0 && j < n; j += 4) {
            float products[4];
            const std::int64_t count = std::min<std::int64_t>(4, n - j);
            dots(
                dense, level.n_dense, count,
                [&](std::int64_t i) { return level.dense + (first + j + i) * level.n_dense; }, products);
            for (std::int64_t i = 0; i < count; ++i) sums[j + i] += products[i];
        }
        combine(level, are_labels, parent, sums, n);
    }

    // Adds n children with log scores to the best of a row, from the node `first` on.
    static void add_children(Expansion& row, std::int64_t first, const float* scores, std::int64_t n) {
        const std::int32_t* labels = row.labels();
        const std::uint8_t* mask = row.mask();
        for_each_over(scores, n, row.best, [&](std::int64_t j) {
            if (mask != nullptr && mask[first + j] == 0) return;
            row.best.add({scores[j], labels != nullptr ? labels[first + j] : static_cast<std::int32_t>(first + j)});
        });
    }

    // The best children of a row's beam become its beam.
    void expand(Expansion& row, const std::int32_t* columns, const float* values, std::int64_t n, const float* dense) {
        const BeamLevel& level = row.level();
        auto add = [&](std::int64_t first, const float* scores, std::int64_t n_scores) {
            add_children(row, first, scores, n_scores);
        };
        while (row.next_block(block_)) {
            collect(level, block_, columns, values, n);
            while (const Scored* parent = row.next()) {
                if (const Scored* after = row.peek()) prefetch(*after);
                score_children(level, row.to_labels(), *parent, dense, add);
            }
        }
        row.finish();
        deactivate();
    }

    // Forgets what `collect` found. A scorer outlives the models that it searches.
    void deactivate() {
        for (const std::int32_t p : active_)
            std::fill(nodes_.begin() + level_->chunks[static_cast<std::size_t>(p)] / 64,
                      nodes_.begin() + level_->chunks[static_cast<std::size_t>(p) + 1] / 64 + 1, 0);
        active_.clear();
        groups_.clear();
    }

    std::vector<Scored>& block() { return block_; }

    Expansion beam;                      // of the row that is searched for
    std::vector<std::int32_t> features;  // a row with 64-bit indices, narrowed

private:
    // Adds the hits of the chunk in a slot; its sums are then the margins by the sparse features.
    float* add_hits(std::size_t slot) {
        const auto chunk = static_cast<std::size_t>(active_[slot]);
        float* sums = sums_.data() + slot * chunk_width;
        hot().add_hits(hits_.data() + slot * static_cast<std::size_t>(room_), counts_[slot],
                       level_->chunks[chunk + 1] - level_->chunks[chunk], level_->weights.mantissa_bits, sums);
        counts_[slot] = 0;
        return sums;
    }

    // Prefetches the weights for the children of a node, which lie all over the table.
    void prefetch(const Scored& parent) const {
        const auto p = static_cast<std::size_t>(parent.id);
        if (level_->children[p] == level_->children[p + 1]) return;
        const auto slot =
            static_cast<std::size_t>(position_of_[static_cast<std::size_t>(level_->children[p])]) / chunk_width;
        const Hit* hits = hits_.data() + slot * static_cast<std::size_t>(room_);
        for (std::int32_t h = 0; h < counts_[slot]; ++h) __builtin_prefetch(hits[h].row);
    }

    // Calls body(j) for scores that may still be among the best, which most are not.
    template <class Body>
    static void for_each_over(const float* scores, std::int64_t n, const TopK& best_so_far, Body&& body) {
        std::uint64_t over[chunk_width / 64];
        hot().find_over(scores, n, best_so_far.cutoff(), over);
        for (std::int64_t from = 0; from < n; from += 64)
            for (std::uint64_t bits = over[from / 64]; bits != 0; bits &= bits - 1) body(from + std::countr_zero(bits));
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
        const int power = static_cast<int>(level.power);
        if (power >= 1 && power <= 4 && static_cast<float>(power) == level.power) {
            hot().hinge_scores(sums, n, parent, power, are_labels);
            return;
        }
        for (std::int64_t j = 0; j < n; ++j) {
            const float shortfall = std::max(0.0f, 1.0f - sums[j]);
            const float loss = shortfall > 0 ? std::pow(shortfall, level.power) : 0.0f;
            sums[j] = parent - loss + bonus_of(sums[j], are_labels);
        }
    }

    std::vector<Scored> block_;
    const BeamLevel* level_ = nullptr;  // of the last `collect`
    std::vector<std::int32_t> active_;  // chunks, ascending: one slot each
    std::vector<ActiveGroup> groups_;
    std::vector<std::uint64_t> nodes_;       // bit i: node i is active
    std::vector<std::int32_t> position_of_;  // of each active node in sums_
    std::vector<float> sums_;                // chunk_width for each slot
    std::vector<Hit> hits_;                  // room_ for each slot
    std::int64_t room_ = 0;
    std::vector<std::int32_t> counts_;
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

}  // namespace ramify
