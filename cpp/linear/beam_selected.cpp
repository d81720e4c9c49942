#include "core/parallel.h"
#include "linear/beam.h"
#include "linear/beam_scorer.h"

namespace ramify {

template <class Index>
void score_selected(const BeamModel& model, const QueryRows<Index>& queries, const std::int64_t* indptr,
                    const std::int32_t* labels, const std::int64_t* leaf_indptr, const std::int32_t* leaves,
                    int threads, float* scores) {
    const std::int64_t n = queries.sparse.rows;
    const std::size_t n_levels = model.levels.size();
    parallel_for((n + beam_block_size - 1) / beam_block_size, threads, [&](std::int64_t block, int) {
        const ScratchPool<BeamScorer>::Lease lease(beam_scorers);
        BeamScorer& s = *lease;
        std::vector<std::vector<Scored>> needed(n_levels);  // nodes of each level, ascending
        for (std::int64_t row = block * beam_block_size; row < std::min(n, (block + 1) * beam_block_size); ++row) {
            for (auto& nodes : needed) nodes.clear();
            for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i)
                for (std::int64_t p = leaf_indptr[labels[i]]; p < leaf_indptr[labels[i] + 1]; ++p)
                    needed.back().push_back({0, leaves[p]});
            for (std::size_t t = n_levels; t-- > 0;) {
                auto& nodes = needed[t];
                std::sort(nodes.begin(), nodes.end(), [](const Scored& a, const Scored& b) { return a.id < b.id; });
                nodes.erase(std::unique(nodes.begin(), nodes.end(),
                                        [](const Scored& a, const Scored& b) { return a.id == b.id; }),
                            nodes.end());
                if (t == 0) break;
                const BeamLevel& level = model.levels[t];
                for (const Scored& node : nodes) {
                    const auto* after = std::upper_bound(level.children, level.children + level.n_parents + 1, node.id);
                    needed[t - 1].push_back({0, static_cast<std::int32_t>(after - level.children - 1)});
                }
            }
            const std::int32_t* features = narrow(queries.sparse, row, s);
            const float* values = queries.sparse.data + queries.sparse.indptr[row];
            const std::int64_t n_features = queries.sparse.indptr[row + 1] - queries.sparse.indptr[row];
            std::vector<Scored> parents{{0.0f, 0}};
            for (std::size_t t = 0; t < n_levels; ++t) {
                if (needed[t].empty()) break;
                auto next = needed[t].begin();
                s.collect(model.levels[t], parents, features, values, n_features);
                for (const Scored& parent : parents)
                    s.score_children(model.levels[t], t + 1 == n_levels, parent,
                                     queries.dense + row * model.levels[t].n_dense,
                                     [&](std::int64_t first, const float* found, std::int64_t n_found) {
                                         for (; next != needed[t].end() && next->id < first + n_found; ++next)
                                             next->score = found[next->id - first];
                                     });
                s.deactivate();
                parents = needed[t];
            }
            for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
                float best = -std::numeric_limits<float>::infinity();
                for (std::int64_t p = leaf_indptr[labels[i]]; p < leaf_indptr[labels[i] + 1]; ++p) {
                    const auto at = std::lower_bound(needed.back().begin(), needed.back().end(), leaves[p],
                                                     [](const Scored& a, std::int32_t id) { return a.id < id; });
                    best = std::max(best, at->score);
                }
                scores[i] = best;
            }
        }
    });
}

template void score_selected(const BeamModel&, const QueryRows<std::int32_t>&, const std::int64_t*, const std::int32_t*,
                             const std::int64_t*, const std::int32_t*, int, float*);
template void score_selected(const BeamModel&, const QueryRows<std::int64_t>&, const std::int64_t*, const std::int32_t*,
                             const std::int64_t*, const std::int32_t*, int, float*);

}  // namespace ramify
