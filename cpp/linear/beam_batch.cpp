#include "linear/beam_batch.h"

#include <numeric>

#include "core/parallel.h"
#include "linear/beam_scorer.h"

namespace ramify {

namespace {

constexpr std::int64_t batch_size = 65536;           // rows whose beams are kept at once
constexpr std::int64_t max_beam_nodes = 1 << 24;     // of all their beams
constexpr std::int64_t block_size = 8192;            // rows that are expanded together
constexpr std::int64_t max_scores = 1 << 24;         // of the children of all their beams
constexpr std::int64_t max_tile_features = 1 << 17;  // of visitors that are scored together: what a cache can hold
constexpr std::int64_t min_visits = 16;              // of a chunk by the rows of a block
constexpr std::int64_t bytes_per_row = 1024;         // of weights: what sorting them costs is saved by so many rows

constexpr std::int64_t max_table_size = std::int64_t{1} << 31;  // rows start at 32-bit offsets

// A node of the beam of a row, whose children are scored.
struct Visit {
    std::int32_t row;  // in its block
    float score;       // of the node
    std::int64_t out;  // where the scores of its children go
};

struct VisitScratch {
    ChunkWeights::Lookup lookup;
    std::vector<Visitor> visitors;
    std::vector<FoundRow> found, by_row;
    std::vector<std::uint32_t> ends, n_found;
    std::vector<float> sums;
};

std::int64_t n_children(const BeamLevel& level, const Scored& node) {
    return level.children[node.id + 1] - level.children[node.id];
}

template <class Index>
class BatchSearch {
public:
    BatchSearch(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads,
                BatchWeights& weights)
        : model_(model), queries_(queries), options_(options), threads_(threads), weights_(weights) {}

    // Searches for the rows from `first` to `end`.
    template <class Write>
    void run(std::int64_t first, std::int64_t end, Write&& write) {
        first_ = first;
        beams_.assign(static_cast<std::size_t>(end - first), {{0.0f, 0}});
        order_.resize(beams_.size());
        std::iota(order_.begin(), order_.end(), 0);
        for (std::int64_t t = 0; t < options_.depth; ++t) {
            const ChunkWeights* weights = nullptr;
            if (is_worthwhile(t, end - first)) weights = weights_.get(model_, t, end - first, threads_);
            if (weights == nullptr) {
                sort_rows();
                for_each_row(0, end - first, [&](BeamScorer& s, std::int64_t i) {
                    expand_row(s, t, order_[static_cast<std::size_t>(i)]);
                });
            } else {
                for (std::int64_t i = 0; i < end - first; i += block_size)
                    expand_block(t, *weights, i, std::min(end - first, i + block_size));
            }
        }
        for (std::int64_t i = 0; i < end - first; ++i) write(beams_[static_cast<std::size_t>(i)], first + i);
    }

private:
    // Whether the rows of a block visit each chunk often enough.
    bool is_worthwhile(std::int64_t t, std::int64_t n) const {
        const BeamLevel& level = model_.levels[static_cast<std::size_t>(t)];
        if (level.n_nodes == 0) return false;  // there may be no parents either
        // Where labels repeat, a row keeps all leaves of its beam until it is finished: one row at a time.
        if (model_.repeats && &level == &model_.levels.back()) return false;
        const std::int64_t width = std::min(options_.beam_size, level.n_parents);
        const std::int64_t scores = width * (level.n_nodes / level.n_parents + 1);
        return std::min({n, block_size, max_scores / scores}) * width >= min_visits * level.n_parents;
    }

    std::int64_t n_features(std::int64_t i) const {
        return queries_.sparse.indptr[first_ + i + 1] - queries_.sparse.indptr[first_ + i];
    }
    const float* dense(const BeamLevel& level, std::int64_t i) const {
        return queries_.dense + (first_ + i) * level.n_dense;
    }

    // Calls body(scorer, i) for i from `from` to `end`, in parallel.
    template <class Body>
    void for_each_row(std::int64_t from, std::int64_t end, Body&& body) const {
        parallel_for((end - from + beam_block_size - 1) / beam_block_size, threads_, [&](std::int64_t block, int) {
            const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
            const std::int64_t begin = from + block * beam_block_size;
            for (std::int64_t i = begin; i < std::min(end, begin + beam_block_size); ++i) body(*lease, i);
        });
    }

    // Orders the rows by their best node: neighbors need the same weights, which are then in the cache.
    void sort_rows() {
        auto best_node = [&](std::int32_t i) {
            const auto& beam = beams_[static_cast<std::size_t>(i)];
            return beam.empty() ? -1 : beam.front().id;
        };
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::int32_t a, std::int32_t b) { return best_node(a) < best_node(b); });
    }

    void start(Expansion& beam, std::int64_t t, std::int64_t i) {
        beam.nodes.swap(beams_[static_cast<std::size_t>(i)]);
        beam.start(model_, t, options_, queries_.sparse.data + queries_.sparse.indptr[first_ + i], n_features(i));
    }

    // Row i by itself.
    void expand_row(BeamScorer& s, std::int64_t t, std::int64_t i) {
        const std::int32_t* features = narrow(queries_.sparse, first_ + i, s);
        start(s.beam, t, i);
        s.expand(s.beam, features, queries_.sparse.data + queries_.sparse.indptr[first_ + i], n_features(i),
                 dense(s.beam.level(), i));
        s.beam.nodes.swap(beams_[static_cast<std::size_t>(i)]);
    }

    // The rows from `from` to `end` together: as often as one of them has nodes to expand.
    void expand_block(std::int64_t t, const ChunkWeights& weights, std::int64_t from, std::int64_t end) {
        const BeamLevel& level = model_.levels[static_cast<std::size_t>(t)];
        renumber(level, weights, from, end);
        states_.resize(static_cast<std::size_t>(std::max(block_size, end - from)));
        std::vector<std::uint8_t> is_open(static_cast<std::size_t>(end - from));
        for_each_row(from, end, [&](BeamScorer& s, std::int64_t i) {
            // Sums of more features depend on how these are divided (max_room).
            if (n_features(i) > max_room) return expand_row(s, t, i);
            start(states_[static_cast<std::size_t>(i - from)], t, i);
            is_open[static_cast<std::size_t>(i - from)] = 1;
        });
        for (bool any = true; any;) {
            any = false;
            for_each_row(from, end, [&](BeamScorer& s, std::int64_t i) {
                auto& open = is_open[static_cast<std::size_t>(i - from)];
                if (open == 0 || states_[static_cast<std::size_t>(i - from)].next_block(s.block())) return;
                finish(i, from);
                open = 0;
            });
            for (std::int64_t i = from; i < end;) {
                const std::int64_t stop = collect_visits(level, is_open, from, i, end);
                any |= !visits_.empty();
                score_visits(level, weights, from);
                for_each_row(i, stop, [&](BeamScorer&, std::int64_t row) {
                    if (is_open[static_cast<std::size_t>(row - from)]) add_scores(level, row, from);
                });
                i = stop;
            }
        }
    }

    // Copies the features of rows, as the sorted weights number them, with the scale of the level.
    void renumber(const BeamLevel& level, const ChunkWeights& weights, std::int64_t from, std::int64_t end) {
        const CsrView<Index>& X = queries_.sparse;
        const std::int64_t begin = X.indptr[first_ + from];
        features_.resize(static_cast<std::size_t>(X.indptr[first_ + end] - begin));
        values_.resize(features_.size());
        for_each_row(from, end, [&](BeamScorer&, std::int64_t i) {
            for (std::int64_t j = X.indptr[first_ + i]; j < X.indptr[first_ + i + 1]; ++j) {
                features_[static_cast<std::size_t>(j - begin)] = weights.number_of(X.indices[j]);
                values_[static_cast<std::size_t>(j - begin)] = X.data[j] * level.weights.scale;
            }
        });
    }

    // The visits of the rows from i on, sorted by node; as many rows as there is room for the scores. Returns the first
    // row behind them.
    std::int64_t collect_visits(const BeamLevel& level, const std::vector<std::uint8_t>& is_open, std::int64_t from,
                                std::int64_t i, std::int64_t end) {
        std::int64_t n_scores = 0, stop = i;
        visit_indptr_.assign(static_cast<std::size_t>(level.n_parents) + 1, 0);
        outs_.resize(states_.size());
        for (; stop < end && (n_scores < max_scores || stop == i); ++stop) {
            const auto row = static_cast<std::size_t>(stop - from);
            outs_[row] = n_scores;
            if (is_open[row] == 0) continue;
            states_[row].for_each_selected([&](const Scored& node) {
                ++visit_indptr_[static_cast<std::size_t>(node.id) + 1];
                n_scores += n_children(level, node);
            });
        }
        accumulate(visit_indptr_);
        visits_.resize(static_cast<std::size_t>(visit_indptr_.back()));
        std::vector<std::int64_t> next(visit_indptr_.begin(), visit_indptr_.end() - 1);
        for (; i < stop; ++i) {
            const auto row = static_cast<std::size_t>(i - from);
            std::int64_t out = outs_[row];
            if (is_open[row] == 0) continue;
            states_[row].for_each_selected([&](const Scored& node) {
                visits_[static_cast<std::size_t>(next[static_cast<std::size_t>(node.id)]++)] = {
                    static_cast<std::int32_t>(row), node.score, out};
                out += n_children(level, node);
            });
        }
        if (static_cast<std::int64_t>(scores_.size()) < n_scores) scores_.resize(static_cast<std::size_t>(n_scores));
        return stop;
    }

    // Log scores of the children of all visited nodes.
    void score_visits(const BeamLevel& level, const ChunkWeights& weights, std::int64_t from) {
        ScratchPool<VisitScratch> scratch;
        parallel_for(level.n_parents, threads_, [&](std::int64_t node, int) {
            const auto p = static_cast<std::size_t>(node);
            const std::int64_t end = visit_indptr_[p + 1];
            if (visit_indptr_[p] == end) return;
            const ScratchPool<VisitScratch>::Lease lease(scratch);
            for (std::int32_t chunk = level.first_chunk[p]; chunk < level.first_chunk[p + 1]; ++chunk) {
                const ChunkView view = (*lease).lookup.open(weights, chunk);
                for (std::int64_t v = visit_indptr_[p]; v < end;)
                    v = score_tile(level, view, node, chunk, from, v, end, *lease);
            }
        });
    }

    // Scores the children of a node in one chunk for the visits from v on, as many as the cache has room for; returns
    // the first one behind them.
    std::int64_t score_tile(const BeamLevel& level, const ChunkView& view, std::int64_t parent, std::int32_t chunk,
                            std::int64_t from, std::int64_t v, std::int64_t end, VisitScratch& s) {
        const std::int64_t first = level.chunks[static_cast<std::size_t>(chunk)],
                           width = level.chunks[static_cast<std::size_t>(chunk) + 1] - first,
                           stride = (width + 15) / 16 * 16, begin = queries_.sparse.indptr[first_ + from];
        s.visitors.clear();
        std::int64_t n_found = 0, stop = v;
        for (; stop < end && n_found < max_tile_features; ++stop) {
            const std::int64_t i = from + visits_[static_cast<std::size_t>(stop)].row;
            const std::int64_t at = queries_.sparse.indptr[first_ + i] - begin;
            s.visitors.push_back({features_.data() + at, values_.data() + at, n_features(i)});
            n_found += n_features(i);
        }
        const std::int64_t n = stop - v;
        if (static_cast<std::int64_t>(s.found.size()) <= n_found) {
            s.found.resize(static_cast<std::size_t>(n_found) + 1);
            s.by_row.resize(s.found.size());
        }
        s.ends.resize(static_cast<std::size_t>(view.n_rows) + 2);
        s.n_found.resize(static_cast<std::size_t>(n));
        s.sums.resize(static_cast<std::size_t>(n * stride));
        for (std::int64_t j = 0; j < n; ++j)
            std::copy(level.bias + first, level.bias + first + width, s.sums.data() + j * stride);
        hot().score_chunk(view, s.visitors.data(), n, width, level.weights.mantissa_bits,
                          {s.ends.data(), s.found.data(), s.by_row.data(), s.n_found.data()}, stride, s.sums.data());
        const bool are_labels = &level == &model_.levels.back();
        for (std::int64_t j = 0; j < n; ++j) {
            const Visit& visit = visits_[static_cast<std::size_t>(v + j)];
            float* sums = s.sums.data() + j * stride;
            BeamScorer::finish_scores(level, are_labels, visit.score, first, dense(level, from + visit.row), sums,
                                      width);
            std::copy(sums, sums + width, scores_.data() + visit.out + first - level.children[parent]);
        }
        return stop;
    }

    // Adds the scores of the selected nodes' children to the best ones of a row.
    void add_scores(const BeamLevel& level, std::int64_t i, std::int64_t from) {
        Expansion& state = states_[static_cast<std::size_t>(i - from)];
        const float* scores = scores_.data() + outs_[static_cast<std::size_t>(i - from)];
        while (const Scored* node = state.next()) {
            const std::int64_t n = n_children(level, *node);
            for (std::int64_t c = 0; c < n; c += chunk_width)
                BeamScorer::add_children(state, level.children[node->id] + c, scores + c, std::min(chunk_width, n - c));
            scores += n;
        }
    }

    void finish(std::int64_t i, std::int64_t from) {
        Expansion& state = states_[static_cast<std::size_t>(i - from)];
        state.finish();
        state.nodes.swap(beams_[static_cast<std::size_t>(i)]);
    }

    const BeamModel& model_;
    const QueryRows<Index>& queries_;
    const BeamOptions& options_;
    const int threads_;
    BatchWeights& weights_;
    std::int64_t first_ = 0;
    std::vector<std::vector<Scored>> beams_;  // of the rows from first_ on
    std::vector<std::int32_t> order_;         // in which rows are searched one by one
    // Of a block:
    std::vector<Expansion> states_;
    std::vector<std::int32_t> features_;
    std::vector<float> values_;
    std::vector<std::int64_t> visit_indptr_;  // (n_parents + 1)
    std::vector<Visit> visits_;               // by node
    std::vector<std::int64_t> outs_;          // start of the scores of each row
    std::vector<float> scores_;
};

}  // namespace

const ChunkWeights* BatchWeights::get(const BeamModel& model, std::int64_t t, std::int64_t n, int threads) {
    Level& level = levels_[static_cast<std::size_t>(t)];
    const BeamLevel& packed = model.levels[static_cast<std::size_t>(t)];
    const ChunkWeights* weights = level.weights.load(std::memory_order_acquire);
    if (weights != nullptr || packed.weights.table_size > max_table_size) return weights;
    const std::int64_t n_rows = level.n_rows.fetch_add(n, std::memory_order_relaxed) + n;
    if (n_rows < packed.weights.table_size / bytes_per_row) return nullptr;
    auto made = std::make_unique<const ChunkWeights>(packed, threads);
    if (level.weights.compare_exchange_strong(weights, made.get(), std::memory_order_acq_rel)) return made.release();
    return weights;  // another thread was faster
}

template <class Index>
void search_batch(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads,
                  BatchWeights& weights, std::int32_t* ids, float* scores) {
    BatchSearch<Index> search(model, queries, options, threads, weights);
    const std::int64_t size =
        std::clamp(max_beam_nodes / std::max(options.beam_size, options.k), min_batch_rows, batch_size);
    for (std::int64_t first = 0; first < queries.sparse.rows; first += size)
        search.run(first, std::min(first + size, queries.sparse.rows),
                   [&](const std::vector<Scored>& found, std::int64_t row) {
                       write_row(found.data(), static_cast<std::int64_t>(found.size()), options.k,
                                 ids + row * options.k, scores + row * options.k);
                   });
}

template void search_batch(const BeamModel&, const QueryRows<std::int32_t>&, const BeamOptions&, int, BatchWeights&,
                           std::int32_t*, float*);
template void search_batch(const BeamModel&, const QueryRows<std::int64_t>&, const BeamOptions&, int, BatchWeights&,
                           std::int32_t*, float*);

}  // namespace ramify
