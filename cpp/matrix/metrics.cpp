#include "matrix/metrics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"

namespace ramify {

namespace {

constexpr std::int64_t block_size = 1024;

// Marks the hits of one row. Few true labels are compared one by one, many by binary search.
template <class Index>
class HitMarker {
public:
    void mark(const RankingView& ranking, const CsrView<Index>& truth, std::int64_t row, std::uint8_t* hit) {
        const std::int32_t* ids = ranking.ids + row * ranking.width;
        const Index *begin = truth.indices + truth.indptr[row], *end = truth.indices + truth.indptr[row + 1];
        if (end - begin > 64) {
            for (std::int64_t j = 0; j < ranking.width; ++j)
                hit[j] = ids[j] >= 0 && std::binary_search(begin, end, static_cast<Index>(ids[j]));
            return;
        }
        narrow_.assign(begin, end);
        hot().mark_hits(ids, ranking.width, narrow_.data(), static_cast<std::int64_t>(narrow_.size()), hit);
    }

private:
    std::vector<std::int32_t> narrow_;
};

}  // namespace

template <class Index>
void ranking_hits(const RankingView& ranking, const CsrView<Index>& truth, int threads, std::uint8_t* hit) {
    parallel_for((ranking.n + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        HitMarker<Index> marker;
        for (std::int64_t row = b * block_size; row < std::min(ranking.n, (b + 1) * block_size); ++row)
            marker.mark(ranking, truth, row, hit + row * ranking.width);
    });
}

template <class Index>
RankingSums ranking_sums(const RankingView& ranking, const CsrView<Index>& truth, const std::int64_t* cutoffs,
                         std::int64_t n_cutoffs, const double* weights, const std::uint8_t* groups,
                         std::int64_t n_groups, int threads) {
    const auto n_cells = static_cast<std::size_t>(n_groups * n_cutoffs), n_k = static_cast<std::size_t>(n_cutoffs);
    const std::int64_t n_blocks = (ranking.n + block_size - 1) / block_size;
    std::int64_t deepest = ranking.width;  // largest rank that can matter
    for (std::int64_t row = 0; row < truth.rows; ++row)
        deepest = std::max<std::int64_t>(deepest, truth.indptr[row + 1] - truth.indptr[row]);
    if (n_cutoffs > 0) deepest = std::min(deepest, cutoffs[n_cutoffs - 1]);
    std::vector<double> discount(static_cast<std::size_t>(deepest)), ideal(static_cast<std::size_t>(deepest) + 1, 0.0);
    for (std::size_t j = 0; j < discount.size(); ++j) {
        discount[j] = 1.0 / std::log2(static_cast<double>(j) + 2.0);
        ideal[j + 1] = ideal[j] + discount[j];
    }
    auto empty_sums = [&] {
        RankingSums sums;
        for (auto* v : {&sums.hits, &sums.ndcg, &sums.recall, &sums.weighted_hits, &sums.weighted_ndcg})
            v->assign(n_cells, 0.0);
        for (auto* v : {&sums.best_weighted_hits, &sums.best_weighted_ndcg}) v->assign(n_k, 0.0);
        return sums;
    };
    RankingSums total = empty_sums();
    total.first_rank.assign(static_cast<std::size_t>(truth.cols), std::numeric_limits<std::int32_t>::max());
    std::vector<RankingSums> parts(static_cast<std::size_t>(n_blocks));

    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        RankingSums& sums = parts[static_cast<std::size_t>(b)];
        sums = empty_sums();
        HitMarker<Index> marker;
        std::vector<std::uint8_t> hit(static_cast<std::size_t>(ranking.width));
        std::vector<double> best;
        // The labels found in a row: short lists are searched, long ones kept in a set.
        std::vector<std::size_t> found;
        std::unordered_set<std::size_t> found_set;
        auto is_repeated = [&](std::size_t label) {
            constexpr std::size_t longest_list = 64;
            if (found.size() < longest_list) {
                if (std::find(found.begin(), found.end(), label) != found.end()) return true;
                found.push_back(label);
                if (found.size() == longest_list) found_set.insert(found.begin(), found.end());
                return false;
            }
            return !found_set.insert(label).second;
        };
        for (std::int64_t row = b * block_size; row < std::min(ranking.n, (b + 1) * block_size); ++row) {
            const std::int64_t n_true = truth.indptr[row + 1] - truth.indptr[row];
            if (n_true == 0) continue;
            ++sums.n_rows;
            marker.mark(ranking, truth, row, hit.data());
            const std::int32_t* ids = ranking.ids + row * ranking.width;
            found.clear();
            found_set.clear();
            for (std::int64_t j = 0; j < std::min(deepest, ranking.width); ++j) {
                if (!hit[static_cast<std::size_t>(j)]) continue;
                const auto label = static_cast<std::size_t>(ids[j]);
                if (is_repeated(label)) continue;  // predicted twice: one hit
                std::atomic_ref<std::int32_t> rank(total.first_rank[label]);
                for (auto seen = rank.load(std::memory_order_relaxed);
                     j < seen &&
                     !rank.compare_exchange_weak(seen, static_cast<std::int32_t>(j), std::memory_order_relaxed);) {
                }
                for (std::size_t c = 0; c < n_k; ++c) {
                    if (j >= cutoffs[c]) continue;
                    const double gain = discount[static_cast<std::size_t>(j)] /
                                        ideal[static_cast<std::size_t>(std::min(cutoffs[c], n_true))];
                    const std::size_t cell = groups[label] * n_k + c;
                    sums.hits[cell] += 1.0;
                    sums.recall[cell] += 1.0 / static_cast<double>(n_true);
                    sums.ndcg[cell] += gain;
                    sums.weighted_hits[cell] += weights[label];
                    sums.weighted_ndcg[cell] += weights[label] * gain;
                }
            }
            best.clear();
            for (Index i = truth.indptr[row]; i < truth.indptr[row + 1]; ++i) best.push_back(weights[truth.indices[i]]);
            std::sort(best.begin(), best.end(), std::greater<>());
            double best_hits = 0.0, best_dcg = 0.0;
            std::int64_t j = 0;
            for (std::size_t c = 0; c < n_k; ++c) {
                for (; j < std::min(cutoffs[c], n_true); ++j) {
                    best_hits += best[static_cast<std::size_t>(j)];
                    best_dcg += best[static_cast<std::size_t>(j)] * discount[static_cast<std::size_t>(j)];
                }
                sums.best_weighted_hits[c] += best_hits;
                sums.best_weighted_ndcg[c] += best_dcg / ideal[static_cast<std::size_t>(std::min(cutoffs[c], n_true))];
            }
        }
    });

    auto add = [](std::vector<double>& to, const std::vector<double>& from) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    for (const RankingSums& part : parts) {
        add(total.hits, part.hits);
        add(total.ndcg, part.ndcg);
        add(total.recall, part.recall);
        add(total.weighted_hits, part.weighted_hits);
        add(total.weighted_ndcg, part.weighted_ndcg);
        add(total.best_weighted_hits, part.best_weighted_hits);
        add(total.best_weighted_ndcg, part.best_weighted_ndcg);
        total.n_rows += part.n_rows;
    }
    return total;
}

template void ranking_hits(const RankingView&, const CsrView<std::int32_t>&, int, std::uint8_t*);
template void ranking_hits(const RankingView&, const CsrView<std::int64_t>&, int, std::uint8_t*);
template RankingSums ranking_sums(const RankingView&, const CsrView<std::int32_t>&, const std::int64_t*, std::int64_t,
                                  const double*, const std::uint8_t*, std::int64_t, int);
template RankingSums ranking_sums(const RankingView&, const CsrView<std::int64_t>&, const std::int64_t*, std::int64_t,
                                  const double*, const std::uint8_t*, std::int64_t, int);

}  // namespace ramify
