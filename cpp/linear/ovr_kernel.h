// The inner loop of the one-vs-rest solver: the labels of one cluster, 8 or 16 of them at a time. It is compiled for
// several instruction sets (core/isa.h), so it takes plain arrays and owns nothing; ovr_solver.cpp prepares them.
//
// For each label with y_i = ±1 it minimizes  ½ |w|² + Σ C_i loss(y_i w·x_i)  by dual coordinate descent (Hsieh et al.
// 2008; Yu et al. 2011 for the logistic loss), with w = Σ α_i y_i x_i. A visit of row i solves for α_i with all others
// fixed:
//
//   squared hinge:  G = y_i w·x_i - 1 + α_i / (2 C_i),   α_i ← max(0, α_i - G / (|x_i|² + 1 / (2 C_i)))
//   hinge:          G = y_i w·x_i - 1,                   α_i ← min(C_i, max(0, α_i - G / |x_i|²))
//   logistic:       α_i = C_i σ(t) with the root t of    |x_i|² (C_i σ(t) - α_i) + y_i w·x_i + t = 0
//
// The dead-zone logistic loss is the logistic one for positives. A negative with m = -w·x_i costs nothing beyond a
// margin δ:  loss(m) = max(0, log(1 + e^-m) - log(1 + e^-δ)). It is convex with a kink at δ, where its slope jumps from
// -σ(-δ) to 0. So in the dual an α_i between 0 and C_i σ(-δ) belongs to m = δ exactly, and the gradient there is
// linear:
//
//   α_i ≤ C_i σ(-δ):  G = m - δ,  α_i ← max(0, α_i - G / |x_i|²);   above it the root t ≥ -δ as for the logistic loss
//
// α_i = 0 is reached exactly: easy negatives neither pull the weights nor need another visit, where the logistic loss
// revisits all of them for ever.
//
// and then w += (α_i - α_i_before) y_i x_i. A lane is one label. The weights of all lanes lie side by side,
// [feature][lane], so that one visit of a row serves every lane. All lanes share the order in which rows are visited;
// each has its own dual variables and stops by itself.
#pragma once

#include <cstdint>

namespace ramify {

enum class Loss : int { squared_hinge = 0, hinge = 1, logistic = 2, dead_zone_logistic = 3 };

// A cluster with so many rows has more negatives than its labels need. Of the rows that no label of a lane group has, a
// random fraction, SolverOptions::negative_fraction, trains the group, and counts by its inverse.
constexpr std::int64_t min_sampled_rows = 5000;

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    float negative_cost = 1.0f;      // C of a negative
    float bias = 1.0f;               // value of the constant feature; 0: none
    float dead_zone = 5.0f;          // δ of the dead-zone logistic loss
    bool positive_features = false;  // only features of a cluster's positives get weights; applied by fit_ovr
    float tolerance = 0.1f;          // on the projected gradients of an epoch
    int max_epochs = 100;
    int max_full_epochs = 100;       // over all rows of a cluster; the others visit active rows only. See many_active
    float negative_fraction = 1.0f;  // see min_sampled_rows
    float threshold = 0.0f;          // weights of smaller magnitude are dropped
    std::int64_t max_weights = 0;    // of a label, the bias apart; 0: no limit. Applied by fit_ovr, not by the kernel
    std::uint64_t seed = 0;
};

// The rows of a cluster. Weights are numbered: sparse features, then dense ones, then the bias.
//
// A feature that occurs in a single row needs no weight while training: it is α y times its value in that row. Such
// singleton features are taken out of the rows, which keeps the weights small enough for the cache; results have them
// again.
struct SolverRows {
    std::int64_t n = 0;
    const std::int64_t* start = nullptr;   // (n) first entry of each row in indices and values
    const std::int32_t* length = nullptr;  // (n)
    const std::int32_t* indices = nullptr;
    const float* values = nullptr;
    std::int64_t n_sparse = 0;
    const float* dense = nullptr;             // (any, n_dense)
    const std::int32_t* dense_row = nullptr;  // (n) row of `dense`
    std::int64_t n_dense = 0;
    const float* squares = nullptr;  // (n) |x|², bias included
    const float* negative =
        nullptr;  // (n) weight of the row as a negative; 0: a training sample only of its own labels
    const float* singleton_values = nullptr;
    const float* singleton_squares =
        nullptr;  // (n) squared norm of a row's singleton features; null: none are taken out
    const std::int32_t* singleton_rows = nullptr;  // row of each singleton feature
    std::int64_t n_columns = 0;                    // sparse features, singletons included
    const std::int32_t* columns = nullptr;         // (n_columns) weight of each, or -1 - singleton; null: its own index
};

// The labels of a job, as CSR over local rows.
struct SolverLabels {
    std::int64_t n = 0;
    const std::int64_t* indptr = nullptr;  // (n + 1)
    const std::int32_t* rows = nullptr;    // positives
    const float* cost = nullptr;           // (n) C of a label's positives, times their relevance where that is given
    const float* relevance = nullptr;      // of each positive, or null for 1
};

// Scratch memory for up to 16 lanes.
struct SolverScratch {
    float* weights = nullptr;           // (n_weights, lanes) zeros; left as zeros
    float* dual = nullptr;              // (n, lanes) α, or t for the logistic losses
    float* cost = nullptr;              // (n, lanes), only with relevance
    std::uint16_t* positive = nullptr;  // (n) bit l: positive for lane l
    std::int32_t* order = nullptr;      // (n)
    std::int32_t* active = nullptr;     // (n)
    float* init = nullptr;              // (n_weights) initial weights of every label
};

// Called for every weight that is kept, in the order of columns, dense features and bias for a label.
struct WeightSink {
    void* context = nullptr;
    void (*add)(void* context, std::int64_t label, std::int64_t weight, float value) = nullptr;
};

using SolveLabels = void (*)(const SolverRows&, const SolverLabels&, const SolverOptions&, const SolverScratch&,
                             const WeightSink&);

}  // namespace ramify
