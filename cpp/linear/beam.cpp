#include "linear/beam.h"

#include <numeric>

#include "core/parallel.h"
#include "linear/beam_scorer.h"

namespace ramify {

namespace {

// One step down the tree for one row: the beam of the scorer becomes that of the level below t.
template <class Index>
void descend(const BeamModel& model, const QueryRows<Index>& queries, std::int64_t row, std::int64_t t,
             const BeamOptions& options, BeamScorer& s) {
    const std::int32_t* features = narrow(queries.sparse, row, s);
    const float* values = queries.sparse.data + queries.sparse.indptr[row];
    const std::int64_t n = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
    s.beam.start(model, t, options, values, n);
    s.expand(s.beam, features, values, n, queries.dense + row * s.beam.level().n_dense);
}

// Calls body(scorer, i) for i below n, in parallel.
template <class Body>
void for_each_row(std::int64_t n, int threads, Body&& body) {
    parallel_for((n + beam_block_size - 1) / beam_block_size, threads, [&](std::int64_t block, int) {
        const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
        for (std::int64_t i = block * beam_block_size; i < std::min(n, (block + 1) * beam_block_size); ++i)
            body(*lease, i);
    });
}

// From this many rows on, a batch goes down the tree level by level, its rows ordered by their best node: neighbors
// need the same weights, which are then in the cache.
constexpr std::int64_t min_batch = 256;
constexpr std::int64_t batch_size = 65536;  // rows whose beams are kept at once

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
    auto write = [&](const std::vector<Scored>& found, std::int64_t row) {
        write_row(found.data(), static_cast<std::int64_t>(found.size()), options.k, ids + row * options.k,
                  scores + row * options.k);
    };
    if (queries.sparse.rows < min_batch) {
        for_each_row(queries.sparse.rows, threads, [&](BeamScorer& s, std::int64_t row) {
            s.beam.reset();
            for (std::int64_t t = 0; t < options.depth; ++t) descend(model, queries, row, t, options, s);
            write(s.beam.nodes, row);
        });
        return;
    }
    for (std::int64_t first = 0; first < queries.sparse.rows; first += batch_size) {
        const std::int64_t n = std::min(batch_size, queries.sparse.rows - first);
        std::vector<std::vector<Scored>> beams(static_cast<std::size_t>(n));
        std::vector<std::int32_t> order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        auto best_node = [&](std::int32_t i) {
            const auto& beam = beams[static_cast<std::size_t>(i)];
            return beam.empty() ? -1 : beam.front().id;
        };
        for (std::int64_t t = 0; t < options.depth; ++t) {
            if (t > 0)
                std::stable_sort(order.begin(), order.end(),
                                 [&](std::int32_t a, std::int32_t b) { return best_node(a) < best_node(b); });
            for_each_row(n, threads, [&](BeamScorer& s, std::int64_t i) {
                const std::int64_t row = first + order[static_cast<std::size_t>(i)];
                auto& beam = beams[static_cast<std::size_t>(row - first)];
                if (t == 0) s.beam.reset();
                else s.beam.nodes.swap(beam);
                descend(model, queries, row, t, options, s);
                if (t + 1 == options.depth) write(s.beam.nodes, row);
                else beam.swap(s.beam.nodes);
            });
        }
    }
}

template void beam_search(const BeamModel&, const QueryRows<std::int32_t>&, const BeamOptions&, int, std::int32_t*,
                          float*);
template void beam_search(const BeamModel&, const QueryRows<std::int64_t>&, const BeamOptions&, int, std::int32_t*,
                          float*);

}  // namespace ramify
