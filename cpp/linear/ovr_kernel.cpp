// See ovr_kernel.h. Compiled once for each instruction set: no standard containers here, nothing that other files share.
#include "linear/ovr_kernel.h"

#include <string.h>

#include "core/hot_kernels.h"
#include "core/lanes.h"

namespace ramify::RAMIFY_VARIANT {

namespace {

inline I8 all8i(std::int32_t x) { return I8{x, x, x, x, x, x, x, x}; }
inline F8 min8(F8 a, F8 b) { return a < b ? a : b; }
inline F8 max8(F8 a, F8 b) { return a > b ? a : b; }
inline I8 bits8(std::uint32_t bits) {
    const I8 lane{1, 2, 4, 8, 16, 32, 64, 128};
    return (all8i(static_cast<std::int32_t>(bits)) & lane) != 0;
}
inline bool any8(I8 x) {
    std::uint64_t parts[4];
    memcpy(parts, &x, sizeof x);
    return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
}

// e^x for x <= 0, to about 2e-7: 2^n times a polynomial of what is left.
inline F8 exp8(F8 x) {
    x = max8(x, all8(-87.0f));
    const F8 scaled = x * 1.44269504f - 0.5f;  // x <= 0, so that truncation after -0.5 rounds to the nearest
    const I8 n = __builtin_convertvector(scaled, I8);
    const F8 whole = __builtin_convertvector(n, F8);
    const F8 r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    F8 p = all8(1.0f / 5040.0f);
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const I8 power = (n + 127) << 23;
    F8 two_n;
    memcpy(&two_n, &power, sizeof two_n);
    return p * two_n;
}
inline F8 sigmoid8(F8 x) {
    const F8 e = exp8(x < 0.0f ? x : -x);
    const F8 small = e / (1.0f + e);
    return x < 0.0f ? small : 1.0f - small;
}

// splitmix64: the same numbers with every standard library.
struct Random {
    std::uint64_t state;
    std::uint32_t below(std::uint32_t n) {
        state += 0x9e3779b97f4a7c15ull;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        return static_cast<std::uint32_t>(((z >> 32) * n) >> 32);
    }
};

// The logistic dual is kept as t with alpha = C sigmoid(t): Newton's method in t has a slope of at least 1 everywhere.
constexpr float logit_floor = -18.0f;

// Shares of the tolerance: a projected gradient below the first is not worth a step, a row whose lanes are all below the
// second is not worth a visit before the next look at all rows.
constexpr float quiet_share = 0.1f, calm_share = 0.5f;

template <int H>  // halves of eight lanes
struct Group {
    static constexpr int lanes = 8 * H;
    static constexpr std::uint32_t all_lanes = (1u << lanes) - 1;

    const SolverRows& rows;
    const SolverLabels& labels;
    const SolverOptions& options;
    const SolverScratch& scratch;
    const WeightSink& sink;
    const std::int64_t n_weights;
    SolverCounts counts;

    std::uint32_t alive = 0;  // lanes whose label is not finished
    std::int64_t first = 0;   // label of lane 0
    float positive_cost[lanes];
    float highest[lanes], lowest[lanes];  // projected gradients of the last pass

    float common_dual = 0.0f;  // dual variable of every negative at the start

    static constexpr float infinite = __builtin_inff();

    // Sums of the row for all lanes. Asks for the weights of the row to come while at it.
    void dot(std::int64_t row, std::int64_t ahead, F8 (&sum)[H]) const {
        const std::int32_t* next = rows.indices + rows.begin[ahead];
        const std::int64_t n_next = rows.length[ahead];
        const std::int32_t* index = rows.indices + rows.begin[row];
        const float* value = rows.values + rows.begin[row];
        const std::int64_t n = rows.length[row];
        const float* const weights = scratch.weights;
        F8 even[H], odd[H];
        for (int h = 0; h < H; ++h) even[h] = odd[h] = all8(0.0f);
        std::int64_t i = 0;
        for (; i + 1 < n; i += 2) {
            if (i + 1 < n_next) {
                __builtin_prefetch(weights + static_cast<std::int64_t>(next[i]) * lanes);
                __builtin_prefetch(weights + static_cast<std::int64_t>(next[i + 1]) * lanes);
            }
            const float* a = weights + static_cast<std::int64_t>(index[i]) * lanes;
            const float* b = weights + static_cast<std::int64_t>(index[i + 1]) * lanes;
            for (int h = 0; h < H; ++h) {
                even[h] += value[i] * load8(a + 8 * h);
                odd[h] += value[i + 1] * load8(b + 8 * h);
            }
        }
        if (i < n) {
            const float* a = scratch.weights + static_cast<std::int64_t>(index[i]) * lanes;
            for (int h = 0; h < H; ++h) even[h] += value[i] * load8(a + 8 * h);
        }
        if (rows.n_dense > 0) {
            const float* x = rows.dense + rows.dense_row[row] * rows.n_dense;
            const float* w = scratch.weights + rows.n_sparse * lanes;
            std::int64_t j = 0;
            for (; j + 1 < rows.n_dense; j += 2)
                for (int h = 0; h < H; ++h) {
                    even[h] += x[j] * load8(w + j * lanes + 8 * h);
                    odd[h] += x[j + 1] * load8(w + (j + 1) * lanes + 8 * h);
                }
            if (j < rows.n_dense)
                for (int h = 0; h < H; ++h) even[h] += x[j] * load8(w + j * lanes + 8 * h);
        }
        const float* bias = scratch.weights + (n_weights - 1) * lanes;
        for (int h = 0; h < H; ++h) sum[h] = even[h] + odd[h] + options.bias * load8(bias + 8 * h);
    }

    void add(std::int64_t row, const F8 (&step)[H]) const {
        const std::int32_t* index = rows.indices + rows.begin[row];
        const float* value = rows.values + rows.begin[row];
        // Copies, since the compiler must think that the stores below could change what they are copies of.
        float* const weights = scratch.weights;
        const std::int64_t n = rows.length[row];
        F8 by[H];
        for (int h = 0; h < H; ++h) by[h] = step[h];
        auto one = [&](float* w, float x) {
            for (int h = 0; h < H; ++h) store8(w + 8 * h, load8(w + 8 * h) + x * by[h]);
        };
        for (std::int64_t i = 0; i < n; ++i) one(weights + static_cast<std::int64_t>(index[i]) * lanes, value[i]);
        if (rows.n_dense > 0) {
            const float* x = rows.dense + rows.dense_row[row] * rows.n_dense;
            for (std::int64_t j = 0; j < rows.n_dense; ++j) one(scratch.weights + (rows.n_sparse + j) * lanes, x[j]);
        }
        one(scratch.weights + (n_weights - 1) * lanes, options.bias);
    }

    // Cost of each lane's example; 0 where the row does not serve the lane.
    F8 cost_of(std::int64_t row, int h, I8 positive) const {
        F8 cost = positive ? load8(positive_cost + 8 * h) : all8(rows.negative[row] ? options.negative_cost : 0.0f);
        if (scratch.cost != nullptr) cost = positive ? cost * load8(scratch.cost + row * lanes + 8 * h) : cost;
        return bits8(alive >> (8 * h)) ? cost : all8(0.0f);
    }

    // Visits a row. Returns whether it is still worth a visit to some lane.
    template <Loss loss>
    bool visit(std::int64_t row, std::int64_t ahead, F8 (&high)[H], F8 (&low)[H]) {
        F8 sum[H], step[H];
        dot(row, ahead, sum);
        const std::uint32_t positive_bits = scratch.positive[row];
        const F8 square = all8(rows.squares[row]);
        I8 changed = all8i(0), loud = all8i(0);
        const float quiet = quiet_share * options.tolerance, calm = calm_share * options.tolerance;
        for (int h = 0; h < H; ++h) {
            const I8 positive = bits8(positive_bits >> (8 * h));
            const F8 sign = positive ? all8(1.0f) : all8(-1.0f);
            const F8 cost = cost_of(row, h, positive);
            const I8 serves = cost > 0.0f;
            float* dual = scratch.dual + row * lanes + 8 * h;
            const F8 old = load8(dual);
            if (loss != Loss::logistic && rows.own_begin != nullptr) sum[h] += rows.own_squares[row] * (old * sign);
            if constexpr (loss == Loss::logistic) {
                const F8 margin = sign * sum[h];
                F8 t = old;
                const F8 old_alpha = cost * sigmoid8(old);
                const F8 gradient = serves ? margin + t : all8(0.0f);
                high[h] = max8(high[h], gradient);
                low[h] = min8(low[h], gradient);
                // The root lies where alpha is between 0 and C; Newton's steps that leave what is known of it halve it.
                F8 from = -margin - square * (cost - old_alpha), to = -margin + square * old_alpha;
                for (int i = 0; i < 40; ++i) {
                    const F8 share = sigmoid8(t);
                    const F8 value = square * (cost * share - old_alpha) + margin + t;
                    const F8 slope = square * cost * share * (1.0f - share) + 1.0f;
                    to = value > 0.0f ? min8(to, t) : to;
                    from = value < 0.0f ? max8(from, t) : from;
                    const F8 newton = t - value / slope;
                    const F8 next = (newton >= from) & (newton <= to) ? newton : 0.5f * (from + to);
                    const F8 move = next - t;
                    t = next;
                    const I8 far = serves & ((move > 1e-3f) | (move < -1e-3f));
                    if (!any8(far)) break;
                }
                t = serves ? t : old;
                store8(dual, t);
                step[h] = serves ? (cost * sigmoid8(t) - old_alpha) * sign : all8(0.0f);
                loud |= (gradient > calm) | (gradient < -calm);
            } else {
                const bool squared = loss == Loss::squared_hinge;
                const F8 diagonal = squared ? 0.5f / (serves ? cost : all8(1.0f)) : all8(0.0f);
                const F8 limit = squared ? (serves ? all8(infinite) : all8(0.0f)) : cost;
                const F8 gradient = sign * sum[h] - 1.0f + diagonal * old;
                const I8 at_floor = old <= 0.0f, at_limit = old >= limit;
                F8 projected = at_floor ? min8(gradient, all8(0.0f)) : (at_limit ? max8(gradient, all8(0.0f)) : gradient);
                projected = serves ? projected : all8(0.0f);
                high[h] = max8(high[h], projected);
                low[h] = min8(low[h], projected);
                loud |= (projected > calm) | (projected < -calm);
                const F8 curvature = max8(square + diagonal, all8(1e-12f));
                // Steps far below the tolerance would only cost a walk over the row.
                const I8 worth = (projected > quiet) | (projected < -quiet);
                const F8 next = worth ? min8(max8(old - gradient / curvature, all8(0.0f)), limit) : old;
                store8(dual, next);
                step[h] = (next - old) * sign;
            }
            changed |= step[h] != 0.0f;
        }
        if (any8(changed)) add(row, step);
        return any8(loud);
    }

    // One pass over n rows in random order. Collects those that are worth another visit; may be given the same array.
    template <Loss loss>
    std::int64_t pass(std::int32_t* order, std::int64_t n, std::int32_t* loud, Random& random) {
        F8 high[H], low[H];
        for (int h = 0; h < H; ++h) high[h] = all8(-infinite), low[h] = all8(infinite);
        for (std::int64_t i = n - 1; i > 0; --i) {
            const auto j = static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(i + 1)));
            const std::int32_t other = order[j];
            order[j] = order[i];
            order[i] = other;
        }
        std::int64_t n_loud = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int32_t row = order[i];
            if (i + 2 < n) prefetch(order[i + 2]);
            if (visit<loss>(row, order[i + 1 < n ? i + 1 : i], high, low)) loud[n_loud++] = row;
        }
        counts.visits += n;
        ++counts.passes;
        for (int h = 0; h < H; ++h) store8(highest + 8 * h, high[h]), store8(lowest + 8 * h, low[h]);
        return n_loud;
    }

    bool settled(int l) const {
        if (options.loss == Loss::logistic) return highest[l] < options.tolerance && lowest[l] > -options.tolerance;
        return !(highest[l] - lowest[l] > options.tolerance);
    }

    void prefetch(std::int64_t row) const {
        const char* index = reinterpret_cast<const char*>(rows.indices + rows.begin[row]);
        const char* value = reinterpret_cast<const char*>(rows.values + rows.begin[row]);
        const std::int64_t bytes = 4 * static_cast<std::int64_t>(rows.length[row]);
        for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(index + i), __builtin_prefetch(value + i);
        __builtin_prefetch(scratch.dual + row * lanes);
    }

    // Where the labels start. Nearly all rows are negatives of nearly all labels, so the best solution with one and the
    // same dual variable a for each row and no positive at all is near theirs: w = -a Σ x, and a in closed form.
    void find_common_start() {
        for (std::int64_t f = 0; f < n_weights; ++f) scratch.common[f] = 0.0f;
        if (options.loss == Loss::logistic || labels.start != nullptr) return;
        auto each_value = [&](std::int64_t row, auto&& body) {
            for (std::int64_t i = rows.begin[row]; i < rows.begin[row] + rows.length[row]; ++i) body(rows.indices[i], rows.values[i]);
            for (std::int64_t j = 0; j < rows.n_dense; ++j) body(rows.n_sparse + j, rows.dense[rows.dense_row[row] * rows.n_dense + j]);
            body(n_weights - 1, options.bias);
        };
        for (std::int64_t row = 0; row < rows.n; ++row)
            if (rows.negative[row]) each_value(row, [&](std::int64_t f, float x) { scratch.common[f] += x; });
        double square = 0, sum = 0, sum_squares = 0;
        for (std::int64_t f = 0; f < n_weights; ++f) square += static_cast<double>(scratch.common[f]) * scratch.common[f];
        auto own_square = [&](std::int64_t row) { return rows.own_begin != nullptr ? rows.own_squares[row] : 0.0f; };
        for (std::int64_t row = 0; row < rows.n; ++row) {
            if (!rows.negative[row]) continue;
            float s = own_square(row);
            square += own_square(row);
            each_value(row, [&](std::int64_t f, float x) { s += x * scratch.common[f]; });
            sum += s;
            sum_squares += static_cast<double>(s) * s;
        }
        const double cost = options.negative_cost, curvature = square + 2 * cost * sum_squares;
        common_dual = curvature > 0 ? static_cast<float>(2 * cost * sum / curvature) : 0.0f;
        if (common_dual < 0.0f) common_dual = 0.0f;
        if (options.loss == Loss::hinge && common_dual > options.negative_cost) common_dual = options.negative_cost;
        for (std::int64_t f = 0; f < n_weights; ++f) scratch.common[f] *= -common_dual;
    }

    void start_from_common(int l) {
        if (common_dual == 0.0f) return;
        for (std::int64_t f = 0; f < n_weights; ++f) scratch.weights[f * lanes + l] = scratch.common[f];
        for (std::int64_t row = 0; row < rows.n; ++row) {
            const bool positive = (scratch.positive[row] >> l) & 1;
            if (!rows.negative[row]) continue;
            if (!positive) {
                scratch.dual[row * lanes + l] = common_dual;
                continue;
            }
            for (std::int64_t i = rows.begin[row]; i < rows.begin[row] + rows.length[row]; ++i)
                scratch.weights[static_cast<std::int64_t>(rows.indices[i]) * lanes + l] += common_dual * rows.values[i];
            const float* x = rows.dense + (rows.n_dense > 0 ? rows.dense_row[row] * rows.n_dense : 0);
            for (std::int64_t j = 0; j < rows.n_dense; ++j) scratch.weights[(rows.n_sparse + j) * lanes + l] += common_dual * x[j];
            scratch.weights[(n_weights - 1) * lanes + l] += common_dual * options.bias;
        }
    }

    // Gives a lane its label; the weights of the lane are zeros.
    void open_lane(int l) {
        const std::uint32_t bit = 1u << l;
        const std::int64_t next = first + l;
        alive |= bit;
        positive_cost[l] = labels.cost[next];
        for (std::int64_t i = labels.begin[next]; i < labels.begin[next + 1]; ++i) {
            const std::int64_t row = labels.rows[i];
            scratch.positive[row] = static_cast<std::uint16_t>(scratch.positive[row] | bit);
            if (scratch.cost != nullptr) scratch.cost[row * lanes + l] = labels.relevance[i];
        }
        if (labels.start != nullptr) start_from(l, labels.start + next * (n_weights + n_own()));
        else start_from_common(l);
    }

    // Dual variables that belong to the given weights if those are optimal, and the weights that follow from them.
    void start_from(int l, const float* given) {
        for (std::int64_t row = 0; row < rows.n; ++row) {
            const bool positive = (scratch.positive[row] >> l) & 1;
            float cost = positive ? positive_cost[l] : rows.negative[row] ? options.negative_cost : 0.0f;
            if (positive && scratch.cost != nullptr) cost *= scratch.cost[row * lanes + l];
            if (cost <= 0.0f) continue;
            const std::int32_t* index = rows.indices + rows.begin[row];
            const float* value = rows.values + rows.begin[row];
            const float* x = rows.n_dense > 0 ? rows.dense + rows.dense_row[row] * rows.n_dense : nullptr;
            float sum = options.bias * given[n_weights - 1];
            for (std::int64_t i = 0; i < rows.length[row]; ++i) sum += value[i] * given[index[i]];
            for (std::int64_t j = 0; j < rows.n_dense; ++j) sum += x[j] * given[rows.n_sparse + j];
            if (rows.own_begin != nullptr)
                for (std::int64_t o = rows.own_begin[row]; o < rows.own_begin[row + 1]; ++o) sum += rows.own_values[o] * given[n_weights + o];
            const float sign = positive ? 1.0f : -1.0f, short_by = 1.0f - sign * sum;
            float alpha = 0.0f, kept = 0.0f;
            if (options.loss == Loss::logistic) {
                kept = sign * sum > 18.0f ? logit_floor : sign * sum < -18.0f ? 18.0f : -sign * sum;
                float share[8];
                store8(share, sigmoid8(all8(kept)));
                alpha = cost * share[0];
            } else if (options.loss == Loss::squared_hinge) {
                kept = alpha = short_by > 0.0f ? 2.0f * cost * short_by : 0.0f;
            } else {
                kept = alpha = short_by > 0.0f ? cost : 0.0f;
            }
            scratch.dual[row * lanes + l] = kept;
            if (alpha == 0.0f) continue;
            const float step = alpha * sign;
            for (std::int64_t i = 0; i < rows.length[row]; ++i)
                scratch.weights[static_cast<std::int64_t>(index[i]) * lanes + l] += value[i] * step;
            for (std::int64_t j = 0; j < rows.n_dense; ++j) scratch.weights[(rows.n_sparse + j) * lanes + l] += x[j] * step;
            scratch.weights[(n_weights - 1) * lanes + l] += options.bias * step;
        }
    }

    // Hands out the weights of all lanes and clears them.
    void close_lanes() {
        const std::int64_t n_columns = rows.columns != nullptr ? rows.n_columns : rows.n_sparse;
        for (std::int64_t c = 0; c < n_columns; ++c) {
            const std::int64_t f = rows.columns != nullptr ? rows.columns[c] : c;
            for (int h = 0; h < H; ++h) {
                if (f >= 0) {
                    float* w = scratch.weights + f * lanes + 8 * h;
                    give(c, h, load8(w), all8(options.threshold));
                    store8(w, all8(0.0f));
                } else {
                    const std::int64_t own = -1 - f, row = rows.own_rows[own];
                    const F8 alpha = load8(scratch.dual + row * lanes + 8 * h) * rows.own_values[own];
                    give(c, h, bits8(static_cast<std::uint32_t>(scratch.positive[row]) >> (8 * h)) ? alpha : -alpha, all8(options.threshold));
                }
            }
        }
        for (std::int64_t f = rows.n_sparse; f < n_weights; ++f)  // dense weights and the bias are all kept
            for (int h = 0; h < H; ++h) {
                float* w = scratch.weights + f * lanes + 8 * h;
                give(n_columns + f - rows.n_sparse, h, load8(w), all8(0.0f));
                store8(w, all8(0.0f));
            }
    }

    void give(std::int64_t column, int h, F8 x, F8 least) const {
        const I8 kept = (x != 0.0f) & (max8(x, -x) >= least);
        if (!any8(kept)) return;
        for (int l = 0; l < 8; ++l)
            if (kept[l] != 0 && first + 8 * h + l < labels.n) sink.add(sink.context, first + 8 * h + l, column, x[l]);
    }

    std::int64_t n_own() const { return rows.own_begin != nullptr ? rows.own_begin[rows.n] : 0; }

    // The labels first to first + lanes - 1, from start to end.
    template <Loss loss>
    void run(Random& random) {
        for (std::int64_t row = 0; row < rows.n; ++row) {
            scratch.order[row] = static_cast<std::int32_t>(row);
            scratch.positive[row] = 0;
            for (int h = 0; h < H; ++h)
                store8(scratch.dual + row * lanes + 8 * h, all8(loss == Loss::logistic ? logit_floor : 0.0f));
        }
        for (int l = 0; l < lanes; ++l) positive_cost[l] = 0.0f;
        for (int l = 0; l < lanes && first + l < labels.n; ++l) open_lane(l);
        std::int64_t n_loud = 0;
        bool whole = true;  // the next pass is over all rows
        for (int n_passes = 1; alive != 0; ++n_passes) {
            n_loud = whole ? pass<loss>(scratch.order, rows.n, scratch.loud, random)
                           : pass<loss>(scratch.loud, n_loud, scratch.loud, random);
            bool all_settled = true;
            for (int l = 0; l < lanes; ++l) {
                if (((alive >> l) & 1) == 0) continue;
                const bool done = settled(l);
                if (whole && done) alive &= ~(1u << l);  // its examples cost nothing from here on
                all_settled &= done;
            }
            if (n_passes >= options.max_passes) {
                counts.unfinished += __builtin_popcount(alive);
                break;
            }
            // What is loud is worked on by itself until it is quiet; only all rows together can say that a label is done.
            whole = all_settled || n_loud == 0 || (whole && n_loud > rows.n * 3 / 4);
        }
        alive = 0;
        close_lanes();
    }
};

// The labels from `from` to `to`.
template <int H>
void solve(const SolverRows& rows, const SolverLabels& labels, const SolverOptions& options,
           const SolverScratch& scratch, const WeightSink& sink, std::int64_t from, std::int64_t to, SolverCounts& counts) {
    if (from >= to) return;
    Group<H> group{rows, labels, options, scratch, sink, rows.n_sparse + rows.n_dense + 1, counts};
    group.find_common_start();
    Random random{options.seed + static_cast<std::uint64_t>(from)};
    for (group.first = from; group.first < to; group.first += Group<H>::lanes) {
        if (options.loss == Loss::logistic) group.template run<Loss::logistic>(random);
        else if (options.loss == Loss::hinge) group.template run<Loss::hinge>(random);
        else group.template run<Loss::squared_hinge>(random);
    }
    counts = group.counts;
}

}  // namespace

SolverCounts solve_labels(const SolverRows& rows, const SolverLabels& labels, const SolverOptions& options,
                          const SolverScratch& scratch, const WeightSink& sink) {
    SolverCounts counts;
    const std::int64_t rest = labels.n % 16, wide = rest > 8 ? labels.n : labels.n - rest;
    solve<2>(rows, labels, options, scratch, sink, 0, wide, counts);
    solve<1>(rows, labels, options, scratch, sink, wide, labels.n, counts);
    return counts;
}

}  // namespace ramify::RAMIFY_VARIANT
