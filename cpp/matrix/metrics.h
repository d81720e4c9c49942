// Sums behind the ranking metrics (P@k, nDCG@k, R@k and their propensity-scored forms). Everything is summed in blocks
// of rows, in order: the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/csr.h"

namespace ramify {

struct RankingView {
    const std::int32_t* ids = nullptr;  // (n, width), best first, padded with -1
    std::int64_t n = 0, width = 0;
};

// hit (n, width): 1 where the predicted label is a true label of the row.
template <class Index>
void ranking_hits(const RankingView& ranking, const CsrView<Index>& truth, int threads, std::uint8_t* hit);

struct RankingSums {
    // Each (n_groups, n_cutoffs): summed over the rows that have a true label, split by the group of the label that was
    // hit.
    std::vector<double> hits, ndcg, recall, weighted_hits, weighted_ndcg;
    // Each (n_cutoffs): the same for the best possible ranking.
    std::vector<double> best_weighted_hits, best_weighted_ndcg;
    std::vector<std::int32_t> first_rank;  // (n_labels) best rank at which the label was hit, from 0; INT32_MAX: never
    std::int64_t n_rows = 0;               // rows with a true label
};

// cutoffs ascending; weights (n_labels): inverse propensities; groups (n_labels): below n_groups.
template <class Index>
RankingSums ranking_sums(const RankingView& ranking, const CsrView<Index>& truth, const std::int64_t* cutoffs,
                         std::int64_t n_cutoffs, const double* weights, const std::uint8_t* groups,
                         std::int64_t n_groups, int threads);

}  // namespace ramify
