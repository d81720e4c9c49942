#include "linear/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/dots.h"
#include "linear/grouped.h"
#include "core/parallel.h"

namespace ramify {

namespace {

struct Node {
    std::int32_t id;
    float score;
};

struct Wanted {
    std::int64_t depth, beam_size, k;
};

// Everything a thread needs to work on one row; kept from row to row and, on each thread, from call to call.
class Searcher {
public:
    // Raw scores of the children of the given nodes: piece by piece, each with piece_width of room.
    float* score(const BeamLevel& level, const std::vector<Node>& parents, const std::int32_t* columns, const float* values,
                 std::int64_t n) {
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
        const bool sound = hot().score_pieces(level.weights, active, columns, values, n, hits_.data(), sums_.data());
        for (const std::int32_t p : active_) slot_of_[static_cast<std::size_t>(p)] = -1;
        if (!sound) throw DamagedTable();
        return sums_.data();
    }

    // Turns raw scores of the sparse features into log scores and calls found(first node, log scores, n) for the children in
    // each piece. room(width) is the distance from one piece's scores to the next one's.
    template <class Room, class Found>
    static void finish(const BeamLevel& level, bool are_labels, const std::vector<Node>& parents, float* sums, const float* dense, Room&& room, Found&& found) {
        for (const Node& parent : parents) {
            const auto p = static_cast<std::size_t>(parent.id);
            for (std::int32_t piece = level.first_piece[p]; piece < level.first_piece[p + 1]; ++piece) {
                const std::int64_t first = level.pieces[static_cast<std::size_t>(piece)];
                const std::int64_t n = level.pieces[static_cast<std::size_t>(piece) + 1] - first;
                for (std::int64_t j = 0; level.n_dense > 0 && j < n; j += 4) {
                    float products[4];
                    const std::int64_t count = std::min<std::int64_t>(4, n - j);
                    dots(dense, level.n_dense, count, [&](std::int64_t i) { return level.dense + (first + j + i) * level.n_dense; }, products);
                    for (std::int64_t i = 0; i < count; ++i) sums[j + i] += products[i];
                }
                combine(level, are_labels, parent.score, sums, n);
                found(first, sums, n);
                sums += room(n);
            }
        }
    }

    // The best children of the nodes, in order: labels if this is the last level of all, else nodes.
    template <class Room>
    const std::vector<Scored>& select(const BeamModel& model, std::int64_t t, const Wanted& wanted, const std::vector<Node>& parents,
                                      float* sums, const float* dense, Room&& room) {
        const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
        const bool last = t + 1 == wanted.depth, to_labels = t + 1 == static_cast<std::int64_t>(model.levels.size());
        best_.start(last ? wanted.k : wanted.beam_size);
        if (to_labels && model.repeats) {
            all_.clear();
            finish(level, to_labels, parents, sums, dense, room, [&](std::int64_t first, const float* scores, std::int64_t n) {
                for (std::int64_t j = 0; j < n; ++j) all_.push_back({scores[j], model.labels[first + j]});
            });
            // The best place of each label, then the best labels.
            std::sort(all_.begin(), all_.end(), [](const Scored& a, const Scored& b) { return a.id != b.id ? a.id < b.id : better(a, b); });
            all_.erase(std::unique(all_.begin(), all_.end(), [](const Scored& a, const Scored& b) { return a.id == b.id; }), all_.end());
            for (const Scored& item : all_) best_.add(item);
        } else {
            const bool named = to_labels && model.labels != nullptr;
            finish(level, to_labels, parents, sums, dense, room, [&](std::int64_t first, const float* scores, std::int64_t n) {
                for_each_over(scores, n, [&](std::int64_t j) {
                    best_.add({scores[j], named ? model.labels[first + j] : static_cast<std::int32_t>(first + j)});
                });
            });
        }
        return best_.finish();
    }

    std::vector<Node> nodes;
    std::vector<std::int32_t> features;  // a row with 64-bit indices, narrowed

private:
    // Calls body(j) where a score may still be among the best: most groups of 16 are passed over at once.
    template <class Body>
    void for_each_over(const float* scores, std::int64_t n, Body&& body) const {
        for (std::int64_t from = 0; from < n; from += 16) {
            const std::int64_t to = std::min(n, from + 16);
            float best = -std::numeric_limits<float>::infinity();
            if (to - from == 16) {
                float parts[4] = {best, best, best, best};
                for (int i = 0; i < 16; ++i) parts[i % 4] = scores[from + i] > parts[i % 4] ? scores[from + i] : parts[i % 4];
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
                const float short_by = std::max(0.0f, 1.0f - sums[j]);
                sums[j] = parent - power(short_by) + bonus_of(sums[j], are_labels);
            }
        };
        if (level.power == 1.0f) hinge([](float x) { return x; });
        else if (level.power == 2.0f) hinge([](float x) { return x * x; });
        else if (level.power == 3.0f) hinge([](float x) { return x * x * x; });
        else hinge([&](float x) { return x > 0 ? std::pow(x, level.power) : 0.0f; });
    }

    TopK best_;
    std::vector<Scored> all_;
    std::vector<std::int32_t> active_, slot_of_;
    std::vector<float> sums_;
    std::vector<Hit> hits_;
};

std::int64_t single_room(std::int64_t) { return piece_width; }

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

// What was found becomes the nodes to go on from, by number.
void go_on(const std::vector<Scored>& found, std::vector<Node>& nodes) {
    nodes.clear();
    for (const Scored& item : found) nodes.push_back({item.id, item.score});
    std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
}

void write_row(const std::vector<Scored>& found, std::int64_t k, std::int32_t* ids, float* scores) {
    for (std::int64_t j = 0; j < k; ++j) {
        const bool there = j < static_cast<std::int64_t>(found.size());
        ids[j] = there ? found[static_cast<std::size_t>(j)].id : -1;
        scores[j] = there ? found[static_cast<std::size_t>(j)].score : -std::numeric_limits<float>::infinity();
    }
}

template <class Index>
void search_row(const BeamModel& model, const QueryRows<Index>& queries, std::int64_t row, const Wanted& wanted, std::int32_t* ids,
                float* scores) {
    Searcher& s = this_threads_searcher();
    const std::int32_t* features = narrow(queries.sparse, row, s);
    const float* values = queries.sparse.data + queries.sparse.indptr[row];
    const std::int64_t n_features = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
    s.nodes.assign(1, {0, 0.0f});
    for (std::int64_t t = 0; t < wanted.depth; ++t) {
        const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
        float* sums = s.score(level, s.nodes, features, values, n_features);
        const std::vector<Scored>& found = s.select(model, t, wanted, s.nodes, sums, queries.dense + row * level.n_dense, single_room);
        if (t + 1 < wanted.depth) go_on(found, s.nodes);
        else write_row(found, wanted.k, ids + row * wanted.k, scores + row * wanted.k);
    }
}

// A batch goes down the tree level by level, and at each level piece by piece (grouped.h) where enough queries meet.
constexpr std::int64_t least_batch = 256;

// Grouping pays from so many visits to a row of weights.
constexpr double least_visits = 3;

// Scores of this many columns wait at once for their rows to be ranked: 32 MB.
constexpr std::int64_t waiting_scores = 1 << 23;

class BatchSearch {
public:
    template <class Index>
    BatchSearch(const BeamModel& model, const QueryRows<Index>& queries, const Wanted& wanted, int threads)
        : model_(model), dense_(queries.dense), wanted_(wanted), threads_(threads),
          indptr_(queries.sparse.indptr, queries.sparse.indptr + queries.sparse.rows + 1) {
        for (std::int64_t row = 0; row < queries.sparse.rows; ++row) longest_ = std::max(longest_, n_features(row));
        if constexpr (std::is_same_v<Index, std::int32_t>) {
            queries_ = {indptr_.data(), queries.sparse.indices, queries.sparse.data};
        } else {
            narrowed_.assign(queries.sparse.indices, queries.sparse.indices + indptr_.back());
            queries_ = {indptr_.data(), narrowed_.data(), queries.sparse.data};
        }
        std::vector<std::int32_t> counts(static_cast<std::size_t>(queries.sparse.cols));
        for (std::int64_t i = 0; i < indptr_.back(); ++i) ++counts[static_cast<std::size_t>(queries_.features[i])];

        grouped_.resize(static_cast<std::size_t>(wanted.depth));
        std::int64_t widest = 1;  // scores that a query may have to wait for
        for (std::size_t t = 0; t < grouped_.size(); ++t) {
            const BeamLevel& level = model.levels[t];
            const std::int64_t n_parents = std::min(wanted.beam_size, level.n_parents);
            const LevelUse use = use_of_level(level.weights, counts);
            const double share = static_cast<double>(n_parents) / static_cast<double>(std::max<std::int64_t>(1, level.n_parents));
            if (use.hits * share < least_visits * static_cast<double>(use.rows)) continue;
            grouped_[t] = group_level(level.weights, counts);
            std::int64_t widest_parent = 0;
            for (std::int64_t p = 0; p < level.n_parents; ++p) widest_parent = std::max(widest_parent, level.children[p + 1] - level.children[p]);
            widest = std::max(widest, std::min(n_parents * wide_stride(widest_parent), 8 * level.n_nodes));
        }
        rows_at_a_time_ = std::clamp<std::int64_t>(waiting_scores / widest, 1, 32768);
    }

    std::int64_t rows_at_a_time() const { return rows_at_a_time_; }

    // Rows [first, end), no more than rows_at_a_time.
    void search(std::int64_t first, std::int64_t end, std::int32_t* ids, float* scores) {
        nodes_.resize(static_cast<std::size_t>(end - first));
        for (auto& nodes : nodes_) nodes.assign(1, {0, 0.0f});
        for (std::int64_t t = 0; t < wanted_.depth; ++t) {
            const BeamLevel& level = model_.levels[static_cast<std::size_t>(t)];
            const bool grouped = !grouped_[static_cast<std::size_t>(t)].begin.empty();
            if (grouped) score_level(level, grouped_[static_cast<std::size_t>(t)], first, end);
            parallel_for((end - first + rows_at_once - 1) / rows_at_once, threads_, [&](std::int64_t block, int) {
                Searcher& s = this_threads_searcher();
                for (std::int64_t row = first + block * rows_at_once; row < std::min(end, first + (block + 1) * rows_at_once); ++row) {
                    std::vector<Node>& nodes = nodes_[static_cast<std::size_t>(row - first)];
                    const float* dense = dense_ + row * level.n_dense;
                    const std::int64_t begin = indptr_[static_cast<std::size_t>(row)];
                    const std::vector<Scored>& found =
                        grouped ? s.select(model_, t, wanted_, nodes, sums_.data() + sums_begin_[static_cast<std::size_t>(row - first)], dense, wide_stride)
                                : s.select(model_, t, wanted_, nodes, s.score(level, nodes, queries_.features + begin, queries_.values + begin, n_features(row)),
                                           dense, single_room);
                    if (t + 1 < wanted_.depth) go_on(found, nodes);
                    else write_row(found, wanted_.k, ids + row * wanted_.k, scores + row * wanted_.k);
                }
            });
        }
    }

private:
    std::int64_t n_features(std::int64_t row) const { return indptr_[static_cast<std::size_t>(row) + 1] - indptr_[static_cast<std::size_t>(row)]; }

    // Calls body(row, piece, width) for all pieces that the rows look at.
    template <class Body>
    void for_each_visit(const BeamLevel& level, std::int64_t first, std::int64_t end, Body&& body) const {
        for (std::int64_t row = first; row < end; ++row)
            for (const Node& parent : nodes_[static_cast<std::size_t>(row - first)])
                for (std::int32_t p = level.first_piece[static_cast<std::size_t>(parent.id)];
                     p < level.first_piece[static_cast<std::size_t>(parent.id) + 1]; ++p)
                    body(row, static_cast<std::size_t>(p), level.pieces[static_cast<std::size_t>(p) + 1] - level.pieces[static_cast<std::size_t>(p)]);
    }

    void score_level(const BeamLevel& level, const GroupedLevel& grouped, std::int64_t first, std::int64_t end) {
        std::vector<std::int64_t> begin(static_cast<std::size_t>(level.weights.n_pieces) + 1);
        sums_begin_.assign(static_cast<std::size_t>(end - first) + 1, 0);
        for_each_visit(level, first, end, [&](std::int64_t row, std::size_t piece, std::int64_t width) {
            ++begin[piece + 1];
            sums_begin_[static_cast<std::size_t>(row - first) + 1] += wide_stride(width);
        });
        for (std::size_t p = 1; p < begin.size(); ++p) begin[p] += begin[p - 1];
        for (std::size_t i = 1; i < sums_begin_.size(); ++i) sums_begin_[i] += sums_begin_[i - 1];
        sums_.reserve(static_cast<std::size_t>(sums_begin_.back()));
        std::vector<Visit> visits(static_cast<std::size_t>(begin.back()));
        std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
        float* sums = sums_.data();
        for_each_visit(level, first, end, [&](std::int64_t row, std::size_t piece, std::int64_t width) {
            visits[static_cast<std::size_t>(next[piece]++)] = {row, sums};
            sums += wide_stride(width);
        });
        score_grouped(level.weights, grouped, level.pieces.data(), level.bias, queries_, longest_, begin, visits, threads_);
    }

    const BeamModel& model_;
    const float* dense_;
    Wanted wanted_;
    int threads_;
    std::vector<std::int64_t> indptr_;
    std::vector<std::int32_t> narrowed_;
    QueryFeatures queries_;
    std::int64_t longest_ = 0, rows_at_a_time_ = 1;
    std::vector<GroupedLevel> grouped_;      // empty where grouping does not pay
    std::vector<std::vector<Node>> nodes_;   // of each row
    LargeBuffer<float> sums_;
    std::vector<std::int64_t> sums_begin_;   // where the scores of a row begin
};

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
    const Wanted wanted{depth, beam_size, k};
    const std::int64_t n = queries.sparse.rows;
    if (n >= least_batch) {
        BatchSearch batch(model, queries, wanted, threads);
        for (std::int64_t first = 0; first < n; first += batch.rows_at_a_time())
            batch.search(first, std::min(n, first + batch.rows_at_a_time()), ids, scores);
        return;
    }
    parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t row = block * rows_at_once; row < std::min(n, (block + 1) * rows_at_once); ++row)
            search_row(model, queries, row, wanted, ids, scores);
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
                float* sums = s.score(model.levels[t], s.nodes, features, values, n_features);
                Searcher::finish(model.levels[t], t + 1 == n_levels, s.nodes, sums, queries.dense + row * model.levels[t].n_dense, single_room,
                                 [&](std::int64_t first, const float* found, std::int64_t n_found) {
                                     for (; next != needed[t].end() && next->id < first + n_found; ++next) next->score = found[next->id - first];
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
