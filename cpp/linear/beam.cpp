#include "linear/beam.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "linear/beam_scorer.h"
#include "linear/grouped.h"

namespace ramify {

namespace {

// From this many rows on, queries are scored together.
constexpr std::int64_t min_batch = 256;

template <class Index>
void search_row(const BeamModel& model, const QueryRows<Index>& queries, std::int64_t row, const BeamOptions& options,
                BeamScorer& s, std::int32_t* ids, float* scores) {
    const std::int32_t* features = narrow(queries.sparse, row, s);
    const float* values = queries.sparse.data + queries.sparse.indptr[row];
    const std::int64_t n = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
    s.beam.reset();
    for (std::int64_t t = 0; t < options.depth; ++t) {
        s.beam.start(model, t, options, values, n, false);
        s.expand(s.beam, features, values, n, queries.dense + row * s.beam.level().n_dense);
    }
    write_row(s.beam.nodes.data(), static_cast<std::int64_t>(s.beam.nodes.size()), options.k, ids + row * options.k,
              scores + row * options.k);
}

// Grouping pays off from this many visits to a weight.
constexpr double min_visits = 3;

// Scores that are kept at once until they are ranked: 64 MB.
constexpr std::int64_t max_scores = 1 << 24;

// Rows whose beams are kept at once.
constexpr std::int64_t batch_size = 32768;

// A batch goes down the tree level by level, and at each level chunk by chunk (grouped.h) where enough queries meet.
// Its rows take turns: each expands the best nodes of its beam (expansion.h), and those that are not done go on.
class BatchSearch {
public:
    template <class Index>
    BatchSearch(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads)
        : model_(model),
          dense_(queries.dense),
          options_(options),
          threads_(threads),
          indptr_(queries.sparse.indptr, queries.sparse.indptr + queries.sparse.rows + 1) {
        if constexpr (std::is_same_v<Index, std::int32_t>) {
            queries_ = {indptr_.data(), queries.sparse.indices, queries.sparse.data};
        } else {
            narrowed_.assign(queries.sparse.indices, queries.sparse.indices + indptr_.back());
            queries_ = {indptr_.data(), narrowed_.data(), queries.sparse.data};
        }
        std::vector<std::int32_t> counts(static_cast<std::size_t>(queries.sparse.cols));
        for (std::int64_t i = 0; i < indptr_.back(); ++i) ++counts[static_cast<std::size_t>(queries_.features[i])];

        grouped_.resize(static_cast<std::size_t>(options.depth));
        for (std::size_t t = 0; t < grouped_.size(); ++t) {
            const BeamLevel& level = model.levels[t];
            const double fraction = static_cast<double>(std::min(options.beam_size, level.n_parents)) /
                                    static_cast<double>(std::max<std::int64_t>(1, level.n_parents));
            if (visits_per_weight(level.weights, counts) * fraction >= min_visits)
                grouped_[t] = group_level(level, counts);
        }
    }

    // Searches for the rows [first, end), at most batch_size of them.
    void search(std::int64_t first, std::int64_t end, std::int32_t* ids, float* scores) {
        first_ = first;
        rows_.resize(static_cast<std::size_t>(end - first));
        blocks_.resize(rows_.size());
        for (Expansion& row : rows_) row.reset();
        for (std::int64_t t = 0; t < options_.depth; ++t) {
            for_each_row(0, end - first, [&](BeamScorer& s, std::int64_t r) {
                Expansion& row = rows_[static_cast<std::size_t>(r)];
                row.start(model_, t, options_, values_of(r), n_features(first + r), is_grouped(t));
                if (!is_grouped(t))
                    s.expand(row, queries_.features + indptr_[static_cast<std::size_t>(first + r)], values_of(r),
                             n_features(first + r), dense_of(r, row.level()));
            });
            if (is_grouped(t)) expand_grouped(t);
        }
        for (std::size_t r = 0; r < rows_.size(); ++r) {
            const std::vector<Scored>& found = rows_[r].nodes;
            const std::int64_t at = (first + static_cast<std::int64_t>(r)) * options_.k;
            write_row(found.data(), static_cast<std::int64_t>(found.size()), options_.k, ids + at, scores + at);
        }
    }

private:
    std::int64_t n_features(std::int64_t row) const {
        return indptr_[static_cast<std::size_t>(row) + 1] - indptr_[static_cast<std::size_t>(row)];
    }
    // Rows of the batch are counted from its first.
    const float* values_of(std::int64_t r) const {
        return queries_.values + indptr_[static_cast<std::size_t>(first_ + r)];
    }
    const float* dense_of(std::int64_t r, const BeamLevel& level) const {
        return dense_ + (first_ + r) * level.n_dense;
    }
    bool is_grouped(std::int64_t t) const { return !grouped_[static_cast<std::size_t>(t)].row_indptr.empty(); }

    template <class Body>
    void for_each_row(std::int64_t from, std::int64_t to, Body&& body) {
        parallel_for((to - from + beam_block_size - 1) / beam_block_size, threads_, [&](std::int64_t block, int) {
            const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
            for (std::int64_t r = from + block * beam_block_size;
                 r < std::min(to, from + (block + 1) * beam_block_size); ++r)
                body(*lease, r);
        });
    }

    void expand_grouped(std::int64_t t) {
        const BeamLevel& level = model_.levels[static_cast<std::size_t>(t)];
        const auto n = static_cast<std::int64_t>(rows_.size());
        std::vector<std::int64_t> widths(rows_.size());  // scores of each row
        while (true) {
            for_each_row(0, n, [&](BeamScorer&, std::int64_t r) {
                const auto at = static_cast<std::size_t>(r);
                widths[at] = 0;
                blocks_[at].clear();
                if (!rows_[at].next_block(blocks_[at])) return;
                rows_[at].take_block();
                for_each_visit(level, r, [&](std::size_t, std::int64_t width) { widths[at] += wide_stride(width); });
            });
            bool is_done = true;
            for (const auto& block : blocks_) is_done &= block.empty();
            if (is_done) break;
            for (std::int64_t from = 0, to = 0; from < n; from = to) {
                std::int64_t n_scores = 0;
                for (; to < n && (to == from || n_scores + widths[static_cast<std::size_t>(to)] <= max_scores); ++to)
                    n_scores += widths[static_cast<std::size_t>(to)];
                score_rows(level, grouped_[static_cast<std::size_t>(t)], from, to, n_scores);
                for_each_row(from, to, [&](BeamScorer&, std::int64_t r) {
                    add_scores(level, r, sums_.data() + sums_indptr_[static_cast<std::size_t>(r - from)]);
                });
            }
        }
        for_each_row(0, n, [&](BeamScorer&, std::int64_t r) { rows_[static_cast<std::size_t>(r)].finish(); });
    }

    // Ranks what `score_rows` found for a row.
    void add_scores(const BeamLevel& level, std::int64_t r, float* sums) {
        Expansion& row = rows_[static_cast<std::size_t>(r)];
        for (const Scored& parent : blocks_[static_cast<std::size_t>(r)])
            for (std::int32_t p = level.first_chunk[static_cast<std::size_t>(parent.id)];
                 p < level.first_chunk[static_cast<std::size_t>(parent.id) + 1]; ++p) {
                const std::int64_t start = level.chunks[static_cast<std::size_t>(p)];
                const std::int64_t width = level.chunks[static_cast<std::size_t>(p) + 1] - start;
                BeamScorer::finish_chunk(level, row.to_labels(), parent, p, sums, dense_of(r, level));
                BeamScorer::add_children(row, start, sums, width);
                sums += wide_stride(width);
            }
    }

    // Calls body(chunk, width) for all chunks that a row visits.
    template <class Body>
    void for_each_visit(const BeamLevel& level, std::int64_t r, Body&& body) const {
        for (const Scored& parent : blocks_[static_cast<std::size_t>(r)])
            for (std::int32_t p = level.first_chunk[static_cast<std::size_t>(parent.id)];
                 p < level.first_chunk[static_cast<std::size_t>(parent.id) + 1]; ++p)
                body(static_cast<std::size_t>(p),
                     level.chunks[static_cast<std::size_t>(p) + 1] - level.chunks[static_cast<std::size_t>(p)]);
    }

    void score_rows(const BeamLevel& level, const GroupedLevel& grouped, std::int64_t from, std::int64_t to,
                    std::int64_t n_scores) {
        std::vector<std::int64_t> indptr(static_cast<std::size_t>(level.weights.n_chunks) + 1);
        sums_indptr_.assign(static_cast<std::size_t>(to - from) + 1, 0);
        for (std::int64_t r = from; r < to; ++r)
            for_each_visit(level, r, [&](std::size_t chunk, std::int64_t width) {
                ++indptr[chunk + 1];
                sums_indptr_[static_cast<std::size_t>(r - from) + 1] += wide_stride(width);
            });
        accumulate(indptr);
        accumulate(sums_indptr_);
        sums_.reserve(static_cast<std::size_t>(n_scores));
        std::vector<Visit> visits(static_cast<std::size_t>(indptr.back()));
        std::vector<std::int64_t> next(indptr.begin(), indptr.end() - 1);
        float* sums = sums_.data();
        for (std::int64_t r = from; r < to; ++r)
            for_each_visit(level, r, [&](std::size_t chunk, std::int64_t width) {
                visits[static_cast<std::size_t>(next[chunk]++)] = {first_ + r, sums};
                sums += wide_stride(width);
            });
        score_grouped(level, grouped, queries_, indptr, visits, threads_);
    }

    const BeamModel& model_;
    const float* dense_;
    BeamOptions options_;
    int threads_;
    std::vector<std::int64_t> indptr_;
    std::vector<std::int32_t> narrowed_;
    QueryFeatures queries_;
    std::int64_t first_ = 0;                   // row of the batch
    std::vector<GroupedLevel> grouped_;        // empty where grouping does not pay off
    std::vector<Expansion> rows_;              // beam of each row
    std::vector<std::vector<Scored>> blocks_;  // nodes that each row expands next
    LargeBuffer<float> sums_;
    std::vector<std::int64_t> sums_indptr_;  // first score of each row
};

}  // namespace

void make_chunks(const std::int64_t* children, std::int64_t n_parents, std::vector<std::int32_t>& first_chunk,
                 std::vector<std::int64_t>& chunks) {
    first_chunk.assign(1, 0);
    chunks.clear();
    for (std::int64_t p = 0; p < n_parents; ++p) {
        for (std::int64_t first = children[p]; first < children[p + 1]; first += chunk_width) chunks.push_back(first);
        first_chunk.push_back(static_cast<std::int32_t>(chunks.size()));
    }
    chunks.push_back(children[n_parents]);
}

template <class Index>
void beam_search(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads,
                 std::int32_t* ids, float* scores) {
    const std::int64_t n = queries.sparse.rows;
    if (n >= min_batch) {
        BatchSearch batch(model, queries, options, threads);
        for (std::int64_t first = 0; first < n; first += batch_size)
            batch.search(first, std::min(n, first + batch_size), ids, scores);
        return;
    }
    parallel_for((n + beam_block_size - 1) / beam_block_size, threads, [&](std::int64_t block, int) {
        const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
        for (std::int64_t row = block * beam_block_size; row < std::min(n, (block + 1) * beam_block_size); ++row)
            search_row(model, queries, row, options, *lease, ids, scores);
    });
}

template void beam_search(const BeamModel&, const QueryRows<std::int32_t>&, const BeamOptions&, int, std::int32_t*,
                          float*);
template void beam_search(const BeamModel&, const QueryRows<std::int64_t>&, const BeamOptions&, int, std::int32_t*,
                          float*);

}  // namespace ramify
