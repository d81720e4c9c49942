// Selection by a histogram of the scores: one pass over the items, then comparisons within a single bin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/topk.h"

namespace ramify {

// Item counts by bin; bin 0 holds the best scores.
struct ScoreHistogram {
    static constexpr int n_bins = 512;
    std::int64_t counts[n_bins];

    template <class BinOf>
    void fill(std::int64_t n, BinOf&& bin_of) {
        std::fill(counts, counts + n_bins, 0);
        for (std::int64_t i = 0; i < n; ++i) ++counts[bin_of(i)];
    }
    // Bin of the k-th best item, 1 <= k <= number of items.
    int bin_of_rank(std::int64_t k) const {
        std::int64_t n_better = 0;
        int bin = 0;
        while (n_better + counts[bin] < k) n_better += counts[bin++];
        return bin;
    }
};

// Moves the min(k, n) best of [items, items + n) to the front, in any order, and returns that count. The bins divide
// the range of the scores evenly; `bins` is scratch memory.
inline std::int64_t move_best(Scored* items, std::int64_t n, std::int64_t k, std::vector<std::int32_t>& bins) {
    constexpr int n_bins = ScoreHistogram::n_bins;
    if (n <= k) return n;
    float most = items[0].score, least = most;
    for (std::int64_t i = 1; i < n; ++i) most = std::max(most, items[i].score), least = std::min(least, items[i].score);
    const float scale = static_cast<float>(n_bins - 1) / (most - least);
    if (!(scale < std::numeric_limits<float>::infinity()) || !(scale > 0)) {  // all equal, or too far apart
        std::nth_element(items, items + k, items + n, better);
        return k;
    }
    ScoreHistogram histogram;
    bins.resize(static_cast<std::size_t>(n));
    histogram.fill(n, [&](std::int64_t i) {
        const float bin = (most - items[i].score) * scale;  // NaN: the last one
        return bins[static_cast<std::size_t>(i)] = bin < n_bins ? static_cast<std::int32_t>(bin) : n_bins - 1;
    });
    const int last = histogram.bin_of_rank(k);
    // Better bins go to the front, the bin of the k-th item behind them.
    std::int64_t front = 0, middle = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int32_t bin = bins[static_cast<std::size_t>(i)];
        if (bin > last) continue;
        const Scored item = items[i];
        items[i] = items[middle];
        if (bin < last) {
            items[middle] = items[front];
            items[front++] = item;
        } else {
            items[middle] = item;
        }
        ++middle;
    }
    std::nth_element(items + front, items + k, items + middle, better);
    return k;
}

// Log scores (at most 0) in bins of fixed width, best bin first. Items within a bin keep their order.
class LogScoreBins {
public:
    static constexpr int n_bins = ScoreHistogram::n_bins;

    void start() { items_.clear(); }
    void add(Scored item) { items_.push_back(item); }
    // Sorts the items by bin and drops all but the k best.
    void finish(std::int64_t k) {
        ScoreHistogram histogram;
        const auto n = static_cast<std::int64_t>(items_.size());
        histogram.fill(n, [&](std::int64_t i) { return bin_of(items_[static_cast<std::size_t>(i)].score); });
        std::int64_t next[n_bins];
        indptr_[0] = 0;
        for (int b = 0; b < n_bins; ++b) next[b] = indptr_[b], indptr_[b + 1] = indptr_[b] + histogram.counts[b];
        sorted_.resize(items_.size());
        for (const Scored& item : items_) sorted_[static_cast<std::size_t>(next[bin_of(item.score)]++)] = item;
        if (k >= n) return;
        const int cut = k > 0 ? histogram.bin_of_rank(k) : 0;
        std::nth_element(sorted_.begin() + indptr_[cut], sorted_.begin() + k, sorted_.begin() + indptr_[cut + 1],
                         better);
        std::fill(indptr_ + cut + 1, indptr_ + n_bins + 1, k);
    }
    std::int64_t size() const { return indptr_[n_bins]; }
    const Scored& operator[](std::int64_t i) const { return sorted_[static_cast<std::size_t>(i)]; }
    // End of a bin.
    std::int64_t end(int bin) const { return indptr_[bin + 1]; }
    // Upper bound on the scores in this bin and all later ones.
    static float highest(int bin) { return -static_cast<float>(bin) / bins_per_unit; }

private:
    static constexpr float bins_per_unit = 32.0f;
    static int bin_of(float score) {
        return score >= 0                              ? 0
               : score > -(n_bins - 1) / bins_per_unit ? static_cast<int>(-score * bins_per_unit)
                                                       : n_bins - 1;
    }

    std::vector<Scored> items_, sorted_;
    std::int64_t indptr_[n_bins + 1] = {};
};

}  // namespace ramify
