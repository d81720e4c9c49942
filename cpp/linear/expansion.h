// The beam of one row at one level, expanded by branch and bound.
//
// A child never scores above its parent, apart from the small bonus of wide margins. So the nodes of the beam are
// expanded best first, until the next one cannot contribute any more: a search for 10 labels opens about two thirds of
// the leaf clusters of its beam, and the levels above need far fewer. The result has the same bits as that of expanding
// every node.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/topk.h"
#include "linear/beam.h"

namespace ramify {

class Expansion {
public:
    std::vector<Scored> nodes;  // the beam, best first
    TopK best;                  // the best children so far

    // The beam becomes the root of the tree.
    void reset() { nodes.assign(1, {0.0f, 0}); }

    // Prepares to expand the beam at level t, for a query with n sparse features.
    void start(const BeamModel& model, std::int64_t t, const BeamOptions& options, const float* values,
               std::int64_t n) {
        model_ = &model;
        level_ = &model.levels[static_cast<std::size_t>(t)];
        to_labels_ = t + 1 == static_cast<std::int64_t>(model.levels.size());
        wanted_ = t + 1 == options.depth ? options.k : options.beam_size;
        if (t > 0) drop_distant_nodes(model.levels[static_cast<std::size_t>(t - 1)], options);
        mask_ = options.mask;
        for (std::int64_t above = 0; mask_ != nullptr && above < t; ++above)
            mask_ += model.levels[static_cast<std::size_t>(above)].n_nodes;
        // The best leaf of each label counts: the best leaves may be fewer labels.
        best.start(has_repeats() ? std::numeric_limits<std::int64_t>::max() / 4 : wanted_);
        is_bounded_ = level_->transform != Transform::noop && !has_repeats() && (level_->n_dense == 0 || !to_labels_);
        size_ = is_bounded_ && !to_labels_ ? first_size : max_size;
        block_end_ = next_ = 0;
        slack_ = is_bounded_ ? max_bonus(values, n) : 0.0f;
    }

    // Selects the nodes to expand next; they ascend by id. Returns false if no other node can contribute.
    bool next_block(std::vector<Scored>& block) {
        if (is_done()) return false;
        const auto n = static_cast<std::int64_t>(nodes.size());
        block_end_ = std::min(n, next_ + size_);
        block.assign(nodes.begin() + next_, nodes.begin() + block_end_);
        std::sort(block.begin(), block.end(), [](const Scored& a, const Scored& b) { return a.id < b.id; });
        size_ = std::min(2 * size_, max_size);
        return true;
    }

    // Calls body(node) for the nodes of the block that are still to be expanded, best first.
    template <class Body>
    void for_each_selected(Body&& body) const {
        for (std::int64_t i = next_; i < block_end_; ++i) body(nodes[static_cast<std::size_t>(i)]);
    }

    // The next node of the block, best first; null if the block is finished or no other node can contribute.
    const Scored* next() {
        if (next_ >= block_end_ || is_done()) return nullptr;
        return &nodes[static_cast<std::size_t>(next_++)];
    }
    const Scored* peek() const { return next_ < block_end_ ? &nodes[static_cast<std::size_t>(next_)] : nullptr; }

    // The children become the beam.
    void finish() {
        if (has_repeats()) keep_best_leaves();
        nodes = best.finish();
    }

    const BeamLevel& level() const { return *level_; }
    bool to_labels() const { return to_labels_; }
    // Which nodes of the level may enter the beam, or null if all may.
    const std::uint8_t* mask() const { return mask_; }
    // Label of each leaf, or null if children have their own ids.
    const std::int32_t* labels() const { return to_labels_ ? model_->labels : nullptr; }

private:
    // Nodes of a block. Most beams are settled by their first eight nodes. Those of leaf clusters rarely are, and
    // collecting the weights of all of them at once costs less than doing so in parts.
    static constexpr std::int64_t first_size = 8, max_size = 256;

    bool is_done() {
        if (next_ >= static_cast<std::int64_t>(nodes.size())) return true;
        if (!is_bounded_ || next_ == 0) return false;
        best.settle_if_cheap();
        const float bound = nodes[static_cast<std::size_t>(next_)].score;
        return bound + slack_ + 1e-6f * std::abs(bound) < best.cutoff();
    }

    // Most samples have a few good nodes, and the rest of the beam is far below them. The nodes that stay have as many
    // children as are wanted.
    void drop_distant_nodes(const BeamLevel& scored, const BeamOptions& options) {
        if (!std::isfinite(options.max_gap) || scored.transform == Transform::noop || has_repeats()) return;
        if (options.mask != nullptr) return;  // few children may be allowed
        const float top = nodes.empty() ? 0.0f : nodes.front().score;
        float cutoff = top - options.max_gap;
        if (scored.is_norm)
            cutoff = -std::pow(std::pow(std::max(0.0f, -top), 1.0f / scored.power) + options.max_gap, scored.power);
        std::int64_t n_children = 0;
        std::size_t kept = 0;
        for (; kept < nodes.size() && (n_children < wanted_ || nodes[kept].score >= cutoff); ++kept) {
            const auto id = static_cast<std::size_t>(nodes[kept].id);
            n_children += level_->children[id + 1] - level_->children[id];
        }
        nodes.resize(kept);
    }

    bool has_repeats() const { return to_labels_ && model_->repeats; }

    void keep_best_leaves() {
        std::vector<Scored> all;
        std::swap(all, best.finish());
        std::stable_sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) { return a.id < b.id; });
        all.erase(std::unique(all.begin(), all.end(), [](const Scored& a, const Scored& b) { return a.id == b.id; }),
                  all.end());
        best.start(wanted_);
        for (const Scored& item : all) best.add(item);
    }

    // Upper bound of a child's bonus: no margin exceeds the largest bias plus |x|_1 times the largest weight.
    float max_bonus(const float* values, std::int64_t n) const {
        if (!to_labels_) return static_cast<float>(margin_bonus);
        float norm = 0.0f;
        for (std::int64_t i = 0; i < n; ++i) norm += std::abs(values[i]);
        return static_cast<float>(margin_bonus) * 1.001f * (level_->max_bias + norm * level_->max_weight + 1.0f);
    }

    const BeamModel* model_ = nullptr;
    const BeamLevel* level_ = nullptr;
    const std::uint8_t* mask_ = nullptr;
    bool to_labels_ = false, is_bounded_ = false;
    std::int64_t wanted_ = 1, size_ = 1, next_ = 0, block_end_ = 0;
    float slack_ = 0.0f;
};

}  // namespace ramify
