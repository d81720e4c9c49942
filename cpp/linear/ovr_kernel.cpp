// See ovr_kernel.h. Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "linear/ovr_kernel.h"

#include <string.h>

#include "core/lanes.h"
#include "core/random.h"
#include "core/vector_exp.h"

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

// e^x for x <= 0, to about 2e-7.
inline F8 exp8(F8 x) {
    x = max8(x, all8(-87.0f));
    const F8 scaled = x * 1.44269504f - 0.5f;  // x <= 0, so that truncation after -0.5 rounds to the nearest
    const I8 n = __builtin_convertvector(scaled, I8);
    return exp_by_parts(x, n, __builtin_convertvector(n, F8), [](F8 r) {
        F8 p = all8(1.0f / 5040.0f);
        p = p * r + 1.0f / 720.0f;
        p = p * r + 1.0f / 120.0f;
        p = p * r + 1.0f / 24.0f;
        p = p * r + 1.0f / 6.0f;
        p = p * r + 0.5f;
        p = p * r + 1.0f;
        return p * r + 1.0f;
    });
}
inline F8 sigmoid8(F8 x) {
    const F8 e = exp8(x < 0.0f ? x : -x);
    const F8 small = e / (1.0f + e);
    return x < 0.0f ? small : 1.0f - small;
}

// The logistic dual is kept as t with alpha = C sigmoid(t): Newton's method in t has a slope of at least 1 everywhere.
constexpr float logit_floor = -18.0f;

// Fractions of the tolerance: a projected gradient below the first is not worth a step, a row whose lanes are all below
// the second leaves the active set until the next epoch over all rows.
constexpr float step_fraction = 0.1f, active_fraction = 0.5f;
// Precision of a Newton step of the dead-zone loss, as a fraction of the tolerance.
constexpr float newton_fraction = 0.02f;
constexpr std::int64_t min_half = 100;  // rows; fewer could miss the few that matter
// Fraction of the rows of a full epoch: with a dead zone, labels that have more active ones get further full epochs.
constexpr float many_active = 0.1f;

template <int H>  // H vectors of eight lanes
struct LaneGroup {
    static constexpr int lanes = 8 * H;
    static constexpr std::uint32_t all_lanes = (1u << lanes) - 1;

    const SolverRows& rows;
    const SolverLabels& labels;
    const SolverOptions& options;
    const SolverScratch& scratch;
    const WeightSink& sink;
    const std::int64_t n_weights;

    std::uint32_t alive = 0;  // lanes whose label is not finished
    std::int64_t first = 0;   // label of lane 0
    float positive_cost[lanes] = {};
    float highest[lanes] = {}, lowest[lanes] = {};  // projected gradients of the last epoch

    const bool samples = options.negative_fraction < 1.0f && rows.n >= min_sampled_rows;
    const float inverse = samples ? 1.0f / options.negative_fraction : 1.0f;  // weight of a row without a positive
    std::int64_t n_rows = 0;  // rows that train the labels: the first ones of the order

    float common_dual = 0.0f;  // dual variable of every negative at the start
    float zone_sigma = sigmoid8(all8(-options.dead_zone))[0];

    static constexpr bool is_logistic(Loss loss) { return loss == Loss::logistic || loss == Loss::dead_zone_logistic; }

    // Dual variable, as it is stored, for α = 0.
    float initial_dual(Loss loss) const {
        if (loss == Loss::logistic) return logit_floor;
        return loss == Loss::dead_zone_logistic ? -options.dead_zone - 1.0f : 0.0f;
    }

    static constexpr float infinite = __builtin_inff();

    // w · x for all lanes. Prefetches the weights of the next row on the way.
    void dot(std::int64_t row, std::int64_t ahead, F8 (&sum)[H]) const {
        const std::int32_t* next = rows.indices + rows.start[ahead];
        const std::int64_t n_next = rows.length[ahead];
        const std::int32_t* index = rows.indices + rows.start[row];
        const float* value = rows.values + rows.start[row];
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

    // w += step · x for all lanes.
    void add(std::int64_t row, const F8 (&step)[H]) const {
        const std::int32_t* index = rows.indices + rows.start[row];
        const float* value = rows.values + rows.start[row];
        // Copies: the compiler has to assume that the stores below change the originals.
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

    // C_i of each lane; 0 where the row is not a training sample of the lane's label.
    F8 cost_of(std::int64_t row, int h, I8 positive) const {
        const float negative =
            rows.negative[row] * options.negative_cost * (scratch.positive[row] == 0 ? inverse : 1.0f);
        F8 cost = positive ? load8(positive_cost + 8 * h) : all8(negative);
        if (scratch.cost != nullptr) cost = positive ? cost * load8(scratch.cost + row * lanes + 8 * h) : cost;
        return bits8(alive >> (8 * h)) ? cost : all8(0.0f);
    }

    // The root t of  square (C σ(t) - α) + margin + t  for the lanes of a mask, from a first guess. It lies in
    // [from, to], where the new α is between 0 and C; a Newton step that leaves the bracket becomes a bisection.
    static F8 newton(F8 t, F8 margin, F8 square, F8 cost, F8 old_alpha, I8 lanes_of, float precision) {
        F8 from = -margin - square * (cost - old_alpha), to = -margin + square * old_alpha;
        for (int i = 0; i < 40; ++i) {
            const F8 sigma = sigmoid8(t);
            const F8 value = square * (cost * sigma - old_alpha) + margin + t;
            const F8 slope = square * cost * sigma * (1.0f - sigma) + 1.0f;
            to = value > 0.0f ? min8(to, t) : to;
            from = value < 0.0f ? max8(from, t) : from;
            const F8 tangent = t - value / slope;
            const F8 next = (tangent >= from) & (tangent <= to) ? tangent : 0.5f * (from + to);
            const F8 move = next - t;
            t = next;
            const I8 far = lanes_of & ((move > precision) | (move < -precision));
            if (!any8(far)) break;
        }
        return t;
    }

    // Solves for the dual variables of a row. Returns whether the row stays active for some lane.
    template <Loss loss>
    bool visit(std::int64_t row, std::int64_t ahead, F8 (&high)[H], F8 (&low)[H]) {
        F8 sum[H], step[H];
        dot(row, ahead, sum);
        const std::uint32_t positive_bits = scratch.positive[row];
        const F8 square = all8(rows.squares[row]);
        I8 changed = all8i(0), active = all8i(0);
        const float min_step = step_fraction * options.tolerance, min_active = active_fraction * options.tolerance;
        for (int h = 0; h < H; ++h) {
            const I8 positive = bits8(positive_bits >> (8 * h));
            const F8 sign = positive ? all8(1.0f) : all8(-1.0f);
            const F8 cost = cost_of(row, h, positive);
            const I8 serves = cost > 0.0f;
            float* dual = scratch.dual + row * lanes + 8 * h;
            const F8 old = load8(dual);
            if (!is_logistic(loss) && rows.singleton_squares != nullptr)
                sum[h] += rows.singleton_squares[row] * (old * sign);
            if constexpr (loss == Loss::dead_zone_logistic) {
                const F8 margin = sign * sum[h];
                const float zone = options.dead_zone;
                // Below -δ the dual of a negative is kept as t = α / (C σ(-δ)) - 1 - δ.
                const I8 in_zone = ~positive & (old < -zone);
                F8 gradient = margin + (in_zone ? all8(-zone) : old);
                gradient = in_zone & (old <= -zone - 1.0f) ? min8(gradient, all8(0.0f)) : gradient;
                gradient = serves ? gradient : all8(0.0f);
                high[h] = max8(high[h], gradient);
                low[h] = min8(low[h], gradient);
                active |= (gradient > min_active) | (gradient < -min_active);
                const I8 worth = (gradient > min_step) | (gradient < -min_step);
                step[h] = all8(0.0f);
                if (!any8(worth)) continue;
                const F8 rim = cost * zone_sigma;  // α where the dead zone ends
                const F8 old_alpha = in_zone ? rim * (old + zone + 1.0f) : cost * sigmoid8(old);
                const F8 linear = max8(old_alpha - (margin - zone) / max8(square, all8(1e-12f)), all8(0.0f));
                const I8 to_zone = ~positive & (linear <= rim);
                F8 t = in_zone ? all8(-zone) : old;
                if (any8(worth & ~to_zone))
                    t = newton(t, margin, square, cost, old_alpha, worth & ~to_zone,
                               newton_fraction * options.tolerance);
                const F8 alpha = to_zone ? linear : cost * sigmoid8(t);
                const F8 next = to_zone ? linear / max8(rim, all8(1e-30f)) - zone - 1.0f : t;
                store8(dual, worth ? next : old);
                step[h] = worth ? (alpha - old_alpha) * sign : all8(0.0f);
            } else if constexpr (loss == Loss::logistic) {
                const F8 margin = sign * sum[h];
                F8 t = old;
                const F8 old_alpha = cost * sigmoid8(old);
                const F8 gradient = serves ? margin + t : all8(0.0f);
                high[h] = max8(high[h], gradient);
                low[h] = min8(low[h], gradient);
                t = newton(t, margin, square, cost, old_alpha, serves, 1e-3f);
                t = serves ? t : old;
                store8(dual, t);
                step[h] = serves ? (cost * sigmoid8(t) - old_alpha) * sign : all8(0.0f);
                active |= (gradient > min_active) | (gradient < -min_active);
            } else {
                const bool squared = loss == Loss::squared_hinge;
                const F8 diagonal = squared ? 0.5f / (serves ? cost : all8(1.0f)) : all8(0.0f);
                const F8 limit = squared ? (serves ? all8(infinite) : all8(0.0f)) : cost;
                const F8 gradient = sign * sum[h] - 1.0f + diagonal * old;
                const I8 at_floor = old <= 0.0f, at_limit = old >= limit;
                F8 projected =
                    at_floor ? min8(gradient, all8(0.0f)) : (at_limit ? max8(gradient, all8(0.0f)) : gradient);
                projected = serves ? projected : all8(0.0f);
                high[h] = max8(high[h], projected);
                low[h] = min8(low[h], projected);
                active |= (projected > min_active) | (projected < -min_active);
                const F8 curvature = max8(square + diagonal, all8(1e-12f));
                // Steps far below the tolerance would only cost another loop over the row.
                const I8 worth = (projected > min_step) | (projected < -min_step);
                const F8 next = worth ? min8(max8(old - gradient / curvature, all8(0.0f)), limit) : old;
                store8(dual, next);
                step[h] = (next - old) * sign;
            }
            changed |= step[h] != 0.0f;
        }
        if (any8(changed)) add(row, step);
        return any8(active);
    }

    // One epoch over n rows in random order. Collects those that stay active; `active` may be `order` itself.
    template <Loss loss>
    std::int64_t run_epoch(std::int32_t* order, std::int64_t n, std::int32_t* active, Random& random) {
        F8 high[H], low[H];
        for (int h = 0; h < H; ++h) high[h] = all8(-infinite), low[h] = all8(infinite);
        for (std::int64_t i = n - 1; i > 0; --i) {
            const std::int64_t j = random.below(i + 1);
            const std::int32_t other = order[j];
            order[j] = order[i];
            order[i] = other;
        }
        std::int64_t n_active = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int32_t row = order[i];
            if (i + 2 < n) prefetch(order[i + 2]);
            if (visit<loss>(row, order[i + 1 < n ? i + 1 : i], high, low)) active[n_active++] = row;
        }
        for (int h = 0; h < H; ++h) store8(highest + 8 * h, high[h]), store8(lowest + 8 * h, low[h]);
        return n_active;
    }

    bool converged(int l) const {
        if (is_logistic(options.loss)) return highest[l] < options.tolerance && lowest[l] > -options.tolerance;
        return !(highest[l] - lowest[l] > options.tolerance);
    }

    void prefetch(std::int64_t row) const {
        const char* index = reinterpret_cast<const char*>(rows.indices + rows.start[row]);
        const char* value = reinterpret_cast<const char*>(rows.values + rows.start[row]);
        const std::int64_t bytes = 4 * static_cast<std::int64_t>(rows.length[row]);
        for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(index + i), __builtin_prefetch(value + i);
        __builtin_prefetch(scratch.dual + row * lanes);
    }

    // Initial weights of the labels. Nearly all rows are negatives of nearly all labels, so the best solution with one
    // and the same dual variable a for every row and no positives is close to theirs: w = -a Σ x, with a in closed
    // form. For the squared hinge loss and s_i = x_i · Σ x,  a = 2 C Σ s_i / (|Σ x|² + 2 C Σ s_i²).
    void find_common_init() {
        for (std::int64_t f = 0; f < n_weights; ++f) scratch.init[f] = 0.0f;
        if (is_logistic(options.loss) || samples) return;  // the dual of a row that is left out is 0
        auto each_value = [&](std::int64_t row, auto&& body) {
            for (std::int64_t i = rows.start[row]; i < rows.start[row] + rows.length[row]; ++i)
                body(rows.indices[i], rows.values[i]);
            for (std::int64_t j = 0; j < rows.n_dense; ++j)
                body(rows.n_sparse + j, rows.dense[rows.dense_row[row] * rows.n_dense + j]);
            body(n_weights - 1, options.bias);
        };
        for (std::int64_t row = 0; row < rows.n; ++row)
            if (rows.negative[row]) each_value(row, [&](std::int64_t f, float x) { scratch.init[f] += x; });
        double square = 0, sum = 0, sum_squares = 0;
        for (std::int64_t f = 0; f < n_weights; ++f) square += static_cast<double>(scratch.init[f]) * scratch.init[f];
        auto singleton_square = [&](std::int64_t row) {
            return rows.singleton_squares != nullptr ? rows.singleton_squares[row] : 0.0f;
        };
        for (std::int64_t row = 0; row < rows.n; ++row) {
            if (!rows.negative[row]) continue;
            float s = singleton_square(row);
            square += singleton_square(row);
            each_value(row, [&](std::int64_t f, float x) { s += x * scratch.init[f]; });
            sum += s;
            sum_squares += static_cast<double>(s) * s;
        }
        const double cost = options.negative_cost, curvature = square + 2 * cost * sum_squares;
        common_dual = curvature > 0 ? static_cast<float>(2 * cost * sum / curvature) : 0.0f;
        if (common_dual < 0.0f) common_dual = 0.0f;
        if (options.loss == Loss::hinge && common_dual > options.negative_cost) common_dual = options.negative_cost;
        for (std::int64_t f = 0; f < n_weights; ++f) scratch.init[f] *= -common_dual;
    }

    // Gives every lane the common start: w, and the dual of each negative; positives start from 0.
    void init_lanes() {
        if (common_dual == 0.0f) return;
        for (std::int64_t f = 0; f < n_weights; ++f)
            for (int h = 0; h < H; ++h) store8(scratch.weights + f * lanes + 8 * h, all8(scratch.init[f]));
        for (std::int64_t row = 0; row < rows.n; ++row) {
            if (!rows.negative[row]) continue;
            const std::uint32_t positive = scratch.positive[row];
            for (int h = 0; h < H; ++h)
                store8(scratch.dual + row * lanes + 8 * h, bits8(positive >> (8 * h)) ? all8(0.0f) : all8(common_dual));
            if (positive == 0) continue;
            F8 step[H];
            for (int h = 0; h < H; ++h) step[h] = bits8(positive >> (8 * h)) ? all8(common_dual) : all8(0.0f);
            add(row, step);
        }
    }

    // Assigns a label to a lane, whose weights are zeros.
    void open_lane(int l) {
        const std::uint32_t bit = 1u << l;
        const std::int64_t next = first + l;
        alive |= bit;
        positive_cost[l] = labels.cost[next];
        for (std::int64_t i = labels.indptr[next]; i < labels.indptr[next + 1]; ++i) {
            const std::int64_t row = labels.rows[i];
            scratch.positive[row] = static_cast<std::uint16_t>(scratch.positive[row] | bit);
            if (scratch.cost != nullptr) scratch.cost[row * lanes + l] = labels.relevance[i];
            if (options.loss == Loss::dead_zone_logistic) scratch.dual[row * lanes + l] = logit_floor;
        }
    }

    // Passes the weights of all lanes to the sink and clears them.
    void close_lanes() {
        const std::int64_t n_columns = rows.columns != nullptr ? rows.n_columns : rows.n_sparse;
        for (std::int64_t c = 0; c < n_columns; ++c) {
            const std::int64_t f = rows.columns != nullptr ? rows.columns[c] : c;
            for (int h = 0; h < H; ++h) {
                if (f >= 0) {
                    float* w = scratch.weights + f * lanes + 8 * h;
                    emit(c, h, load8(w), all8(options.threshold));
                    store8(w, all8(0.0f));
                } else {
                    const std::int64_t singleton = -1 - f, row = rows.singleton_rows[singleton];
                    const F8 alpha = load8(scratch.dual + row * lanes + 8 * h) * rows.singleton_values[singleton];
                    emit(c, h, bits8(static_cast<std::uint32_t>(scratch.positive[row]) >> (8 * h)) ? alpha : -alpha,
                         all8(options.threshold));
                }
            }
        }
        for (std::int64_t f = rows.n_sparse; f < n_weights; ++f)  // dense weights and the bias are all kept
            for (int h = 0; h < H; ++h) {
                float* w = scratch.weights + f * lanes + 8 * h;
                emit(n_columns + f - rows.n_sparse, h, load8(w), all8(0.0f));
                store8(w, all8(0.0f));
            }
    }

    void emit(std::int64_t column, int h, F8 x, F8 least) const {
        const I8 kept = (x != 0.0f) & (max8(x, -x) >= least);
        if (!any8(kept)) return;
        for (int l = 0; l < 8; ++l)
            if (kept[l] != 0 && first + 8 * h + l < labels.n) sink.add(sink.context, first + 8 * h + l, column, x[l]);
    }

    struct Part {
        std::int64_t begin, end;
    };
    // With a dead zone, few rows are violated after the first epoch, and a random half of all rows finds out whether
    // there are any.
    Part part_of_epoch(Loss loss, int n_full_epochs) const {
        const std::int64_t half = n_rows / 2;
        if (loss != Loss::dead_zone_logistic || n_full_epochs == 0 || half < min_half) return {0, n_rows};
        return n_full_epochs % 2 == 1 ? Part{0, half} : Part{half, n_rows};
    }

    // Puts the rows into the order that are positives of a lane, and all others, or a sample of them.
    void choose_rows(Random& random) {
        constexpr std::int64_t unit = 1 << 24;
        const auto sampled = static_cast<std::int64_t>(options.negative_fraction * unit);
        n_rows = 0;
        for (std::int64_t row = 0; row < rows.n; ++row)
            if (!samples || scratch.positive[row] != 0 || random.below(unit) < sampled)
                scratch.order[n_rows++] = static_cast<std::int32_t>(row);
    }

    // Trains the labels first to first + lanes - 1.
    template <Loss loss>
    void run(Random& random) {
        for (std::int64_t row = 0; row < rows.n; ++row) {
            scratch.positive[row] = 0;
            for (int h = 0; h < H; ++h) store8(scratch.dual + row * lanes + 8 * h, all8(initial_dual(loss)));
        }
        for (int l = 0; l < lanes; ++l) positive_cost[l] = 0.0f;
        for (int l = 0; l < lanes && first + l < labels.n; ++l) open_lane(l);
        init_lanes();
        choose_rows(random);
        std::int64_t n_active = 0;
        bool all_rows = true;  // in the next epoch
        bool needs_more = false;
        int n_full_epochs = 0;
        for (int epoch = 1; alive != 0; ++epoch) {
            if (all_rows) {
                const Part part = part_of_epoch(loss, n_full_epochs++);
                const std::int64_t n = part.end - part.begin;
                n_active = run_epoch<loss>(scratch.order + part.begin, n, scratch.active, random);
                needs_more = loss == Loss::dead_zone_logistic &&
                             static_cast<float>(n_active) > many_active * static_cast<float>(n);
            } else {
                n_active = run_epoch<loss>(scratch.active, n_active, scratch.active, random);
            }
            bool all_converged = true;
            for (int l = 0; l < lanes; ++l) {
                if (((alive >> l) & 1) == 0) continue;
                const bool done = converged(l);
                if (all_rows && done) alive &= ~(1u << l);  // its costs are 0 from here on
                all_converged &= done;
            }
            if (epoch >= options.max_epochs) break;
            const bool calm = all_converged || n_active == 0;
            if (calm && n_full_epochs >= options.max_full_epochs &&
                (!needs_more || n_full_epochs >= 2 * std::int64_t{options.max_full_epochs}))
                break;
            // Shrinking: active rows are visited by themselves until they calmed down; only an epoch over all rows can
            // end a label.
            all_rows = calm || (all_rows && n_active > n_rows * 3 / 4);
        }
        alive = 0;
        close_lanes();
    }
};

// Trains the labels [from, to).
template <int H>
void solve(const SolverRows& rows, const SolverLabels& labels, const SolverOptions& options,
           const SolverScratch& scratch, const WeightSink& sink, std::int64_t from, std::int64_t to) {
    if (from >= to) return;
    LaneGroup<H> group{rows, labels, options, scratch, sink, rows.n_sparse + rows.n_dense + 1};
    group.find_common_init();
    Random random(options.seed + static_cast<std::uint64_t>(from));
    for (group.first = from; group.first < to; group.first += LaneGroup<H>::lanes) {
        if (options.loss == Loss::dead_zone_logistic) group.template run<Loss::dead_zone_logistic>(random);
        else if (options.loss == Loss::logistic) group.template run<Loss::logistic>(random);
        else if (options.loss == Loss::hinge) group.template run<Loss::hinge>(random);
        else group.template run<Loss::squared_hinge>(random);
    }
}

void solve_all(const SolverRows& rows, const SolverLabels& labels, const SolverOptions& options,
               const SolverScratch& scratch, const WeightSink& sink) {
    const std::int64_t rest = labels.n % 16, wide = rest > 8 ? labels.n : labels.n - rest;
    solve<2>(rows, labels, options, scratch, sink, 0, wide);
    solve<1>(rows, labels, options, scratch, sink, wide, labels.n);
}

}  // namespace

extern const SolveLabels solve_labels;
const SolveLabels solve_labels = solve_all;

}  // namespace ramify::RAMIFY_VARIANT
