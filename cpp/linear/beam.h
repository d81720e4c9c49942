// Beam search down a tree of linear classifiers.
//
// A level scores the children of the kept nodes, turns raw scores into log scores, adds those of the parents and keeps
// the best. All in log space: products of small numbers would run into zero and tie.
#pragma once

#include <cstdint>
#include <vector>

#include "core/csr.h"
#include "linear/packed.h"
#include "core/topk.h"

namespace ramify {

// A margin over 1 would tie with every other; a bonus too small to matter otherwise puts the wider one first. Inner nodes
// share theirs with everything below, where it would drown what the labels say: it ends at a margin of 2.
constexpr float margin_bonus = 1e-5f;
inline float bonus_of(float score, bool is_label) {
    const float over = score - 1.0f;
    return over <= 0.0f ? 0.0f : margin_bonus * (is_label || over < 1.0f ? over : 1.0f);
}

// What becomes of a raw score v. noop: v itself, whatever the parents said; sigmoid: log σ(v) plus the parent's; hinge:
// -max(0, 1 - v)^p plus the parent's.
enum class Transform : int { noop = 0, sigmoid = 1, hinge = 2 };

struct BeamLevel {
    std::int64_t n_parents = 0, n_nodes = 0;
    const std::int64_t* children = nullptr;  // (n_parents + 1) children of p: nodes [children[p], children[p + 1])
    PackedView weights;
    std::vector<std::int32_t> first_piece;   // (n_parents + 1)
    std::vector<std::int64_t> pieces;        // (n_pieces + 1) first node of each piece
    const float* bias = nullptr;             // (n_nodes), the constant feature's value multiplied in
    const float* dense = nullptr;            // (n_nodes, n_dense)
    std::int64_t n_dense = 0;
    Transform transform = Transform::hinge;
    float power = 3.0f;
};

// The pieces of a level: children of one parent, at most piece_width of them.
void make_pieces(const std::int64_t* children, std::int64_t n_parents, std::vector<std::int32_t>& first_piece,
                 std::vector<std::int64_t>& pieces);

template <class Index>
struct QueryRows {
    CsrView<Index> sparse;
    const float* dense = nullptr;  // (rows, n_dense)
};

struct BeamModel {
    std::vector<BeamLevel> levels;
    const std::int32_t* labels = nullptr;  // (nodes of the last level) label of each; null: its own number
    std::int64_t n_labels = 0;
    bool repeats = false;                  // a label may stand at several places: its best one counts
};

// The k best labels of each row: ids (rows, k) with -1, log scores (rows, k) with -inf where there are fewer. depth < all
// levels gives the best nodes of that level instead.
template <class Index>
void beam_search(const BeamModel& model, const QueryRows<Index>& queries, std::int64_t depth, std::int64_t beam_size,
                 std::int64_t k, int threads, std::int32_t* ids, float* scores);

// Log scores of given labels, without a beam: of row i those in [indptr[i], indptr[i + 1]). places (CSR over labels) are
// the last level's nodes of each label.
template <class Index>
void score_selected(const BeamModel& model, const QueryRows<Index>& queries, const std::int64_t* indptr,
                    const std::int32_t* labels, const std::int64_t* place_begin, const std::int32_t* places, int threads,
                    float* scores);

}  // namespace ramify
