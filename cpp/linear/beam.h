// Beam search down a tree of linear classifiers (XR-Linear; PECOS, Yu et al. 2022).
//
// A level scores the children of the nodes in the beam, turns margins into log scores, adds those of the parents and
// keeps the best `beam_size`. All in log space: products of small probabilities would underflow and tie.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/csr.h"
#include "linear/beam_kernel.h"
#include "linear/packed.h"

namespace ramify {

// Log score of a node with margin v and a parent with log score g. noop: v; sigmoid: g + log σ(v); hinge: g - max(0, 1
// - v)^p.
enum class Transform : int { noop = 0, sigmoid = 1, hinge = 2 };

struct BeamLevel {
    std::int64_t n_parents = 0, n_nodes = 0;
    const std::int64_t* children = nullptr;  // (n_parents + 1) children of p: nodes [children[p], children[p + 1])
    PackedView weights;
    std::vector<std::int32_t> first_chunk;  // (n_parents + 1)
    std::vector<std::int64_t> chunks;       // (n_chunks + 1) first node of each chunk
    const float* bias = nullptr;            // (n_nodes), times the value of the constant feature
    const float* dense = nullptr;           // (n_nodes, n_dense)
    std::int64_t n_dense = 0;
    Transform transform = Transform::hinge;
    float power = 3.0f;
    bool is_norm = false;                      // hinge: gaps between scores are those of norms, the roots of log scores
    float max_bias = 0.0f, max_weight = 0.0f;  // upper bounds, for the bound on a child's bonus
};

// The chunks of a level: children of one parent, at most chunk_width of them.
void make_chunks(const std::int64_t* children, std::int64_t n_parents, std::vector<std::int32_t>& first_chunk,
                 std::vector<std::int64_t>& chunks);

template <class Index>
struct QueryRows {
    CsrView<Index> sparse;
    const float* dense = nullptr;  // (rows, n_dense)
};

struct BeamModel {
    std::vector<BeamLevel> levels;
    const std::int32_t* labels = nullptr;  // (nodes of the last level) label of each leaf; null: its own id
    std::int64_t n_labels = 0;
    bool repeats = false;  // a label may have several leaves: the best one counts
};

struct BeamOptions {
    std::int64_t depth, beam_size, k;
    float max_gap = std::numeric_limits<float>::infinity();  // of a node of the beam below the best one
    const std::uint8_t* mask = nullptr;  // (nodes of all levels) which ones may enter a beam; null: all
};

// The k best labels of each row: ids (rows, k), padded with -1, and log scores (rows, k), padded with -inf. A depth
// below the number of levels gives the best nodes of that level instead.
class BatchWeights;  // beam_batch.h
template <class Index>
void beam_search(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads,
                 BatchWeights& batch_weights, std::int32_t* ids, float* scores);

// Log scores of given labels, without a beam: those of row i are labels[indptr[i]] ... labels[indptr[i + 1] - 1]. The
// leaves of label l are leaves[leaf_indptr[l]] ... leaves[leaf_indptr[l + 1] - 1].
template <class Index>
void score_selected(const BeamModel& model, const QueryRows<Index>& queries, const std::int64_t* indptr,
                    const std::int32_t* labels, const std::int64_t* leaf_indptr, const std::int32_t* leaves,
                    int threads, float* scores);

}  // namespace ramify
