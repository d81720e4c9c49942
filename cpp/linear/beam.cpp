#include "linear/beam.h"

#include "core/parallel.h"
#include "linear/beam_batch.h"
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
                 BatchWeights& batch_weights, std::int32_t* ids, float* scores) {
    auto write = [&](const std::vector<Scored>& found, std::int64_t row) {
        write_row(found.data(), static_cast<std::int64_t>(found.size()), options.k, ids + row * options.k,
                  scores + row * options.k);
    };
    if (queries.sparse.rows < min_batch_rows) {
        for_each_row(queries.sparse.rows, threads, [&](BeamScorer& s, std::int64_t row) {
            s.beam.reset();
            for (std::int64_t t = 0; t < options.depth; ++t) descend(model, queries, row, t, options, s);
            write(s.beam.nodes, row);
        });
        return;
    }
    search_batch(model, queries, options, threads, batch_weights, ids, scores);
}

template void beam_search(const BeamModel&, const QueryRows<std::int32_t>&, const BeamOptions&, int, BatchWeights&,
                          std::int32_t*, float*);
template void beam_search(const BeamModel&, const QueryRows<std::int64_t>&, const BeamOptions&, int, BatchWeights&,
                          std::int32_t*, float*);

}  // namespace ramify
