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
    const std::int64_t n_features = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
    s.nodes.assign(1, {0, 0.0f});
    for (std::int64_t t = 0; t < options.depth; ++t) {
        const BeamLevel& level = model.levels[static_cast<std::size_t>(t)];
        const std::vector<Scored>& found =
            s.expand(model, t, options, features, values, n_features, queries.dense + row * level.n_dense);
        if (t + 1 < options.depth) set_beam(found, s.nodes);
        else
            write_row(found.data(), static_cast<std::int64_t>(found.size()), options.k, ids + row * options.k,
                      scores + row * options.k);
    }
}

// Grouping pays off from this many visits to a row of weights.
constexpr double min_visits = 3;

// Scores that are kept at once until their rows are ranked: 32 MB.
constexpr std::int64_t max_scores = 1 << 23;

// A batch goes down the tree level by level, and at each level chunk by chunk (grouped.h) where enough queries meet.
class BatchSearch {
public:
    template <class Index>
    BatchSearch(const BeamModel& model, const QueryRows<Index>& queries, const BeamOptions& options, int threads)
        : model_(model),
          dense_(queries.dense),
          options_(options),
          threads_(threads),
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

        grouped_.resize(static_cast<std::size_t>(options.depth));
        std::int64_t widest = 1;  // scores of one query
        for (std::size_t t = 0; t < grouped_.size(); ++t) {
            const BeamLevel& level = model.levels[t];
            const std::int64_t n_parents = std::min(options.beam_size, level.n_parents);
            const LevelUse use = use_of_level(level.weights, counts);
            const double fraction =
                static_cast<double>(n_parents) / static_cast<double>(std::max<std::int64_t>(1, level.n_parents));
            if (use.hits * fraction < min_visits * static_cast<double>(use.rows)) continue;
            grouped_[t] = group_level(level.weights, counts);
            std::int64_t widest_parent = 0;
            for (std::int64_t p = 0; p < level.n_parents; ++p)
                widest_parent = std::max(widest_parent, level.children[p + 1] - level.children[p]);
            widest = std::max(widest, std::min(n_parents * wide_stride(widest_parent), 8 * level.n_nodes));
        }
        batch_size_ = std::clamp<std::int64_t>(max_scores / widest, 1, 32768);
    }

    std::int64_t batch_size() const { return batch_size_; }

    // Searches for the rows [first, end), at most batch_size of them.
    void search(std::int64_t first, std::int64_t end, std::int32_t* ids, float* scores) {
        nodes_.resize(static_cast<std::size_t>(end - first));
        for (auto& nodes : nodes_) nodes.assign(1, {0, 0.0f});
        for (std::int64_t t = 0; t < options_.depth; ++t) {
            const BeamLevel& level = model_.levels[static_cast<std::size_t>(t)];
            const bool grouped = !grouped_[static_cast<std::size_t>(t)].indptr.empty();
            if (grouped) score_level(level, grouped_[static_cast<std::size_t>(t)], first, end);
            parallel_for((end - first + beam_block_size - 1) / beam_block_size, threads_, [&](std::int64_t block, int) {
                const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
                BeamScorer& s = *lease;
                for (std::int64_t row = first + block * beam_block_size;
                     row < std::min(end, first + (block + 1) * beam_block_size); ++row) {
                    std::vector<Node>& nodes = nodes_[static_cast<std::size_t>(row - first)];
                    const float* dense = dense_ + row * level.n_dense;
                    const std::int64_t start = indptr_[static_cast<std::size_t>(row)];
                    const std::vector<Scored>& found =
                        grouped ? s.select(model_, t, options_, nodes,
                                           sums_.data() + sums_indptr_[static_cast<std::size_t>(row - first)], dense,
                                           wide_stride)
                                : s.select(model_, t, options_, nodes,
                                           s.score(level, nodes, queries_.features + start, queries_.values + start,
                                                   n_features(row)),
                                           dense, full_stride);
                    if (t + 1 < options_.depth) set_beam(found, nodes);
                    else
                        write_row(found.data(), static_cast<std::int64_t>(found.size()), options_.k,
                                  ids + row * options_.k, scores + row * options_.k);
                }
            });
        }
    }

private:
    std::int64_t n_features(std::int64_t row) const {
        return indptr_[static_cast<std::size_t>(row) + 1] - indptr_[static_cast<std::size_t>(row)];
    }

    // Calls body(row, chunk, width) for all chunks that the rows visit.
    template <class Body>
    void for_each_visit(const BeamLevel& level, std::int64_t first, std::int64_t end, Body&& body) const {
        for (std::int64_t row = first; row < end; ++row)
            for (const Node& parent : nodes_[static_cast<std::size_t>(row - first)])
                for (std::int32_t p = level.first_chunk[static_cast<std::size_t>(parent.id)];
                     p < level.first_chunk[static_cast<std::size_t>(parent.id) + 1]; ++p)
                    body(row, static_cast<std::size_t>(p),
                         level.chunks[static_cast<std::size_t>(p) + 1] - level.chunks[static_cast<std::size_t>(p)]);
    }

    void score_level(const BeamLevel& level, const GroupedLevel& grouped, std::int64_t first, std::int64_t end) {
        std::vector<std::int64_t> indptr(static_cast<std::size_t>(level.weights.n_chunks) + 1);
        sums_indptr_.assign(static_cast<std::size_t>(end - first) + 1, 0);
        for_each_visit(level, first, end, [&](std::int64_t row, std::size_t chunk, std::int64_t width) {
            ++indptr[chunk + 1];
            sums_indptr_[static_cast<std::size_t>(row - first) + 1] += wide_stride(width);
        });
        accumulate(indptr);
        accumulate(sums_indptr_);
        sums_.reserve(static_cast<std::size_t>(sums_indptr_.back()));
        std::vector<Visit> visits(static_cast<std::size_t>(indptr.back()));
        std::vector<std::int64_t> next(indptr.begin(), indptr.end() - 1);
        float* sums = sums_.data();
        for_each_visit(level, first, end, [&](std::int64_t row, std::size_t chunk, std::int64_t width) {
            visits[static_cast<std::size_t>(next[chunk]++)] = {row, sums};
            sums += wide_stride(width);
        });
        score_grouped(level.weights, grouped, level.chunks.data(), level.bias, queries_, longest_, indptr, visits,
                      threads_);
    }

    const BeamModel& model_;
    const float* dense_;
    BeamOptions options_;
    int threads_;
    std::vector<std::int64_t> indptr_;
    std::vector<std::int32_t> narrowed_;
    QueryFeatures queries_;
    std::int64_t longest_ = 0, batch_size_ = 1;
    std::vector<GroupedLevel> grouped_;     // empty where grouping does not pay off
    std::vector<std::vector<Node>> nodes_;  // beam of each row
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
        for (std::int64_t first = 0; first < n; first += batch.batch_size())
            batch.search(first, std::min(n, first + batch.batch_size()), ids, scores);
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
