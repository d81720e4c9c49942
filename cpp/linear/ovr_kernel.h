// The inner loop of the one-vs-rest solver: the labels of one cluster, 8 or 16 of them at a time. It is compiled for
// several instruction sets (isa.h), so it takes plain arrays and owns nothing; ovr_solver.cpp prepares them.
//
// Dual coordinate descent (Hsieh et al. 2008; Yu et al. 2011 for the logistic loss). A lane is one label. The weights of
// all lanes lie side by side, [feature][lane], so that one visit of a row serves every lane. All lanes share the order
// in which rows are visited; each has its own dual variables and its own end.
#pragma once

#include <cstdint>

namespace ramify {

enum class Loss : int { squared_hinge = 0, hinge = 1, logistic = 2 };

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    float negative_cost = 1.0f;  // C of a negative
    float bias = 1.0f;  // value of the constant feature; 0: none
    float tolerance = 0.1f;
    int max_passes = 100;
    float threshold = 0.0f;  // smaller weights are dropped
    std::uint64_t seed = 0;
};

// The rows of a cluster. Weights are numbered: sparse features, then dense ones, then the bias.
//
// A feature that only one row has needs no weight while training: it is alpha · y · value of that row. Such features are
// taken out of the rows (`own`), which keeps the weights small enough for the cache; results have them again.
struct SolverRows {
    std::int64_t n = 0;
    const std::int64_t* begin = nullptr;        // (n) where a row starts in indices and values
    const std::int32_t* length = nullptr;       // (n)
    const std::int32_t* indices = nullptr;
    const float* values = nullptr;
    std::int64_t n_sparse = 0;
    const float* dense = nullptr;               // (any, n_dense)
    const std::int32_t* dense_row = nullptr;    // (n) row of `dense`
    std::int64_t n_dense = 0;
    const float* squares = nullptr;             // (n) squared length, bias included
    const std::uint8_t* negative = nullptr;     // (n) 0: the row serves only the labels that it has
    const std::int64_t* own_begin = nullptr;    // (n + 1) own features of each row; null: none are taken out
    const float* own_values = nullptr;
    const float* own_squares = nullptr;         // (n) their squared length
    const std::int32_t* own_rows = nullptr;     // row of each own feature
    std::int64_t n_columns = 0;                 // sparse features, own ones included
    const std::int32_t* columns = nullptr;      // (n_columns) weight of each, or -1 - own feature; null: its number
};

// The labels of a job, as CSR over local rows.
struct SolverLabels {
    std::int64_t n = 0;
    const std::int64_t* begin = nullptr;  // (n + 1)
    const std::int32_t* rows = nullptr;   // positives
    const float* cost = nullptr;          // (n) C of a label's positives, times their relevance where that is given
    const float* relevance = nullptr;     // of each positive, or null for 1
    const float* start = nullptr;         // (n, n_weights + own features) weights to start from, or null
};

// Room to work in, for up to 16 lanes.
struct SolverScratch {
    float* weights = nullptr;            // (n_weights, lanes) zeros; left as zeros
    float* dual = nullptr;               // (n, lanes)
    float* cost = nullptr;               // (n, lanes), only with relevance
    std::uint16_t* positive = nullptr;   // (n) bit l: positive for lane l
    std::int32_t* order = nullptr;       // (n)
    std::int32_t* loud = nullptr;        // (n)
    float* common = nullptr;             // (n_weights) where every label starts
};

// Called for every weight that is kept, in the order of columns, dense features and bias for a label.
struct WeightSink {
    void* context = nullptr;
    void (*add)(void* context, std::int64_t label, std::int64_t weight, float value) = nullptr;
};

struct SolverCounts {
    std::int64_t visits = 0;  // rows visited, each for all lanes
    std::int64_t passes = 0;
    std::int64_t unfinished = 0;  // labels that reached max_passes
};

using SolveLabels = SolverCounts (*)(const SolverRows&, const SolverLabels&, const SolverOptions&, const SolverScratch&, const WeightSink&);

}  // namespace ramify
