#include "beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "isa.h"
#include "parallel.h"

namespace ramify {

namespace {

struct Node {
    std::int32_t id;
    float score;
};

// Everything a thread needs to work on one row; kept from row to row and, on each thread, from call to call.
class Searcher {
public:
    // Takes the nodes of the level above and calls found(node, log score) for each of their children.
    template <class Found>
    void expand(const BeamLevel& level, const std::vector<Node>& parents, const std::int32_t* features, const float* values,
                std::int64_t n_features, const float* dense, Found&& found) {
        if (static_cast<std::int64_t>(slot_of_.size()) < level.weights.n_pieces)
            slot_of_.resize(static_cast<std::size_t>(level.weights.n_pieces), -1);
        active_.clear();
        for (const Node& parent : parents)
            for (std::int32_t p = level.first_piece[static_cast<std::size_t>(parent.id)];
                 p < level.first_piece[static_cast<std::size_t>(parent.id) + 1]; ++p)
                active_.push_back(p);
        if (sums_.size() < active_.size() * piece_width) sums_.resize(active_.size() * piece_width);
        if (hits_.size() < active_.size() * features_at_once) hits_.resize(active_.size() * features_at_once);
        for (std::size_t s = 0; s < active_.size(); ++s) {
            const auto p = static_cast<std::size_t>(active_[s]);
            slot_of_[p] = static_cast<std::int32_t>(s);
            std::copy(level.bias + level.pieces[p], level.bias + level.pieces[p + 1], sums_.data() + s * piece_width);
        }
        const ActivePieces active{active_.data(), static_cast<std::int64_t>(active_.size()), slot_of_.data()};
        const bool whole = hot().score_pieces(level.weights, active, features, values, n_features, hits_.data(), sums_.data());
        for (const std::int32_t p : active_) slot_of_[static_cast<std::size_t>(p)] = -1;
        if (!whole) throw std::runtime_error("the model is damaged: its weight tables do not fit together");

        std::size_t slot = 0;
        for (const Node& parent : parents) {
            const auto p = static_cast<std::size_t>(parent.id);
            for (std::int32_t piece = level.first_piece[p]; piece < level.first_piece[p + 1]; ++piece, ++slot) {
                const std::int64_t first = level.pieces[static_cast<std::size_t>(piece)];
                const std::int64_t n = level.pieces[static_cast<std::size_t>(piece) + 1] - first;
                float* sums = sums_.data() + slot * piece_width;
                if (level.n_dense > 0)
                    for (std::int64_t j = 0; j < n; ++j) sums[j] += hot().dot(level.dense + (first + j) * level.n_dense, dense, level.n_dense);
                combine(level, parent.score, sums, n);
                for (std::int64_t j = 0; j < n; ++j) found(static_cast<std::int32_t>(first + j), sums[j]);
            }
        }
    }

    TopK best;
    std::vector<Node> nodes;
    std::vector<Scored> all;
    std::vector<std::int32_t> features;  // a row with 64-bit indices, narrowed

private:
    static void combine(const BeamLevel& level, float parent, float* sums, std::int64_t n) {
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
                const float short_by = std::max(0.0f, 1.0f - sums[j]), over = std::clamp(sums[j] - 1.0f, 0.0f, 1.0f);
                sums[j] = parent - power(short_by) + margin_bonus * over;
            }
        };
        if (level.power == 1.0f) hinge([](float x) { return x; });
        else if (level.power == 2.0f) hinge([](float x) { return x * x; });
        else if (level.power == 3.0f) hinge([](float x) { return x * x * x; });
        else hinge([&](float x) { return x > 0 ? std::pow(x, level.power) : 0.0f; });
    }

    std::vector<std::int32_t> active_, slot_of_;
    std::vector<float> sums_;
    std::vector<Hit> hits_;
};

Searcher& this_threads_searcher() {
    thread_local Searcher searcher;
    return searcher;
}

template <class Index>
const std::int32_t* narrow(const CsrView<Index>& rows, std::int64_t row, Searcher& searcher) {
    if constexpr (std::is_same_v<Index, std::int32_t>) {
        return rows.indices + rows.indptr[row];
    } else {
        searcher.features.assign(rows.indices + rows.indptr[row], rows.indices + rows.indptr[row + 1]);
        return searcher.features.data();
    }
}

constexpr std::int64_t rows_at_once = 32;

}  // namespace

void make_pieces(const std::int64_t* children, std::int64_t n_parents, std::vector<std::int32_t>& first_piece,
                 std::vector<std::int64_t>& pieces) {
    first_piece.assign(1, 0);
    pieces.clear();
    for (std::int64_t p = 0; p < n_parents; ++p) {
        for (std::int64_t first = children[p]; first < children[p + 1]; first += piece_width) pieces.push_back(first);
        first_piece.push_back(static_cast<std::int32_t>(pieces.size()));
    }
    pieces.push_back(children[n_parents]);
}

template <class Index>
void beam_search(const BeamModel& model, const QueryRows<Index>& queries, std::int64_t depth, std::int64_t beam_size,
                 std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    const bool to_labels = depth == static_cast<std::int64_t>(model.levels.size());
    const std::int64_t n = queries.sparse.rows;
    parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        Searcher& s = this_threads_searcher();
        for (std::int64_t row = block * rows_at_once; row < std::min(n, (block + 1) * rows_at_once); ++row) {
            const std::int32_t* features = narrow(queries.sparse, row, s);
            const float* values = queries.sparse.data + queries.sparse.indptr[row];
            const std::int64_t n_features = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
            s.nodes.assign(1, {0, 0.0f});
            for (std::int64_t t = 0; t < depth; ++t) {
                const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
                const float* dense = queries.dense + row * level.n_dense;
                const bool last = t + 1 == depth;
                if (last && to_labels && model.repeats) {
                    s.all.clear();
                    s.expand(level, s.nodes, features, values, n_features, dense,
                             [&](std::int32_t node, float score) { s.all.push_back({score, model.labels[node]}); });
                    // The best place of each label, then the best labels.
                    std::sort(s.all.begin(), s.all.end(), [](const Scored& a, const Scored& b) {
                        return a.id != b.id ? a.id < b.id : better(a, b);
                    });
                    s.all.erase(std::unique(s.all.begin(), s.all.end(), [](const Scored& a, const Scored& b) { return a.id == b.id; }),
                                s.all.end());
                    s.best.start(k);
                    for (const Scored& item : s.all) s.best.add(item);
                } else if (last && to_labels && model.labels != nullptr) {
                    s.best.start(k);
                    s.expand(level, s.nodes, features, values, n_features, dense, [&](std::int32_t node, float score) {
                        if (!(score < s.best.cutoff())) s.best.add({score, model.labels[node]});
                    });
                } else {
                    s.best.start(last ? k : beam_size);
                    s.expand(level, s.nodes, features, values, n_features, dense,
                             [&](std::int32_t node, float score) { s.best.add({score, node}); });
                }
                const std::vector<Scored>& found = s.best.finish();
                if (!last) {
                    s.nodes.clear();
                    for (const Scored& item : found) s.nodes.push_back({item.id, item.score});
                    std::sort(s.nodes.begin(), s.nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
                    continue;
                }
                for (std::int64_t j = 0; j < k; ++j) {
                    const bool there = j < static_cast<std::int64_t>(found.size());
                    ids[row * k + j] = there ? found[static_cast<std::size_t>(j)].id : -1;
                    scores[row * k + j] = there ? found[static_cast<std::size_t>(j)].score : -std::numeric_limits<float>::infinity();
                }
            }
        }
    });
}

template <class Index>
void score_selected(const BeamModel& model, const QueryRows<Index>& queries, const std::int64_t* indptr,
                    const std::int32_t* labels, const std::int64_t* place_begin, const std::int32_t* places, int threads,
                    float* scores) {
    const std::int64_t n = queries.sparse.rows;
    const std::size_t n_levels = model.levels.size();
    parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        Searcher& s = this_threads_searcher();
        std::vector<std::vector<Node>> needed(n_levels);  // nodes of each level, ascending
        for (std::int64_t row = block * rows_at_once; row < std::min(n, (block + 1) * rows_at_once); ++row) {
            for (auto& nodes : needed) nodes.clear();
            for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i)
                for (std::int64_t p = place_begin[labels[i]]; p < place_begin[labels[i] + 1]; ++p) needed.back().push_back({places[p], 0});
            for (std::size_t t = n_levels; t-- > 0;) {
                auto& nodes = needed[t];
                std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
                nodes.erase(std::unique(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id == b.id; }), nodes.end());
                if (t == 0) break;
                const BeamLevel& level = model.levels[t];
                for (const Node& node : nodes) {
                    const auto* after = std::upper_bound(level.children, level.children + level.n_parents + 1, node.id);
                    needed[t - 1].push_back({static_cast<std::int32_t>(after - level.children - 1), 0});
                }
            }
            const std::int32_t* features = narrow(queries.sparse, row, s);
            const float* values = queries.sparse.data + queries.sparse.indptr[row];
            const std::int64_t n_features = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
            s.nodes.assign(1, {0, 0.0f});
            for (std::size_t t = 0; t < n_levels; ++t) {
                if (needed[t].empty()) break;
                auto next = needed[t].begin();
                s.expand(model.levels[t], s.nodes, features, values, n_features, queries.dense + row * model.levels[t].n_dense,
                         [&](std::int32_t node, float score) {
                             if (next != needed[t].end() && next->id == node) (next++)->score = score;
                         });
                s.nodes = needed[t];
            }
            for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
                float best = -std::numeric_limits<float>::infinity();
                for (std::int64_t p = place_begin[labels[i]]; p < place_begin[labels[i] + 1]; ++p) {
                    const auto at = std::lower_bound(needed.back().begin(), needed.back().end(), places[p],
                                                     [](const Node& a, std::int32_t id) { return a.id < id; });
                    best = std::max(best, at->score);
                }
                scores[i] = best;
            }
        }
    });
}

template void beam_search(const BeamModel&, const QueryRows<std::int32_t>&, std::int64_t, std::int64_t, std::int64_t, int, std::int32_t*, float*);
template void beam_search(const BeamModel&, const QueryRows<std::int64_t>&, std::int64_t, std::int64_t, std::int64_t, int, std::int32_t*, float*);
template void score_selected(const BeamModel&, const QueryRows<std::int32_t>&, const std::int64_t*, const std::int32_t*, const std::int64_t*,
                             const std::int32_t*, int, float*);
template void score_selected(const BeamModel&, const QueryRows<std::int64_t>&, const std::int64_t*, const std::int32_t*, const std::int64_t*,
                             const std::int32_t*, int, float*);

}  // namespace ramify
