// The k best of a list; equal scores are ordered by id, so that a ranking never depends on the order of the input.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/csr.h"
#include "core/parallel.h"

namespace ramify {

struct Scored {
    float score;
    std::int32_t id;
};

// NaN never wins: it sorts behind every number. An object, so that the algorithms of the standard library inline it.
inline constexpr auto better = [](const Scored& a, const Scored& b) {
    const bool a_nan = a.score != a.score, b_nan = b.score != b.score;
    if (a_nan != b_nan) return b_nan;
    if (!a_nan && a.score != b.score) return a.score > b.score;
    return a.id < b.id;
};

// Reorders [items, items + n) so that its first min(k, n) elements are the best ones in order. Returns that count.
inline std::int64_t topk(Scored* items, std::int64_t n, std::int64_t k) {
    if (k < n) {
        std::nth_element(items, items + k, items + n, better);
        n = k;
    }
    std::sort(items, items + n, better);
    return n;
}

// Moves the min(k, n) best of [items, items + n) to its front, in any order, and returns that count. Scores are
// counted in steps first: one pass where comparisons would take many. `steps` is room to work in.
inline std::int64_t move_best(Scored* items, std::int64_t n, std::int64_t k, std::vector<std::int32_t>& steps) {
    constexpr int n_steps = 512;
    if (n <= k) return n;
    float most = items[0].score, least = most;
    for (std::int64_t i = 1; i < n; ++i) most = std::max(most, items[i].score), least = std::min(least, items[i].score);
    const float scale = static_cast<float>(n_steps - 1) / (most - least);
    if (!(scale < std::numeric_limits<float>::infinity()) || !(scale > 0)) {  // all alike, or too far apart
        std::nth_element(items, items + k, items + n, better);
        return k;
    }
    std::int64_t count[n_steps] = {}, n_better = 0;
    steps.resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
        const float step = (most - items[i].score) * scale;  // NaN: the last one
        ++count[steps[static_cast<std::size_t>(i)] = step < n_steps ? static_cast<std::int32_t>(step) : n_steps - 1];
    }
    int last = 0;
    while (n_better + count[last] < k) n_better += count[last++];
    // What is better goes to the front, what is in the step where the limit lies behind it.
    std::int64_t front = 0, middle = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int32_t step = steps[static_cast<std::size_t>(i)];
        if (step > last) continue;
        const Scored item = items[i];
        items[i] = items[middle];
        if (step < last) {
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

// The n items in k places; -1 and -inf behind the last.
inline void write_row(const Scored* items, std::int64_t n, std::int64_t k, std::int32_t* ids, float* scores) {
    for (std::int64_t j = 0; j < k; ++j) {
        ids[j] = j < n ? items[j].id : -1;
        scores[j] = j < n ? items[j].score : -std::numeric_limits<float>::infinity();
    }
}

// Log scores, at most 0, in steps from the best to the worst: one pass where sorting would take many.
class Steps {
public:
    static constexpr int n = 512;

    void start() { items_.clear(); }
    void add(Scored item) { items_.push_back(item); }
    // The best `width` in steps; every item of a step is better than those of the next ones.
    void finish(std::int64_t width) {
        std::fill(begin_, begin_ + n + 1, 0);
        for (const Scored& item : items_) ++begin_[step(item.score) + 1];
        for (int s = 0; s < n; ++s) begin_[s + 1] += begin_[s];
        sorted_.resize(items_.size());
        std::int64_t next[n];
        std::copy(begin_, begin_ + n, next);
        for (const Scored& item : items_) sorted_[static_cast<std::size_t>(next[step(item.score)]++)] = item;
        if (width >= size()) return;
        const int cut = static_cast<int>(std::upper_bound(begin_, begin_ + n + 1, width) - begin_) - 1;
        std::nth_element(sorted_.begin() + begin_[cut], sorted_.begin() + width, sorted_.begin() + begin_[cut + 1], better);
        std::fill(begin_ + cut + 1, begin_ + n + 1, width);
    }
    std::int64_t size() const { return begin_[n]; }
    const Scored& operator[](std::int64_t i) const { return sorted_[static_cast<std::size_t>(i)]; }
    // Where a step ends.
    std::int64_t end(int s) const { return begin_[s + 1]; }
    // No score of this step or a later one is higher.
    static float highest(int s) { return -static_cast<float>(s) / per_unit; }

private:
    static constexpr float per_unit = 32.0f;
    static int step(float score) {
        return score >= 0 ? 0 : score > -(n - 1) / per_unit ? static_cast<int>(-score * per_unit) : n - 1;
    }

    std::vector<Scored> items_, sorted_;
    std::int64_t begin_[n + 1] = {};
};

// Keeps the k best of a stream of candidates; most are turned away by one comparison.
class TopK {
public:
    // Room for the best k; forgets what was there.
    void start(std::int64_t k) {
        k_ = k;
        items_.clear();
        full_ = false;
        cutoff_ = -std::numeric_limits<float>::infinity();
    }
    // No score below this can get in any more.
    float cutoff() const { return cutoff_; }
    void add(Scored item) {
        if (item.score < cutoff_ || (full_ && !better(item, worst_))) return;
        items_.push_back(item);
        if (static_cast<std::int64_t>(items_.size()) >= 2 * k_ + 32) cut();
    }
    // The best in order. The reference holds until the next start.
    std::vector<Scored>& finish() {
        items_.resize(static_cast<std::size_t>(topk(items_.data(), static_cast<std::int64_t>(items_.size()), k_)));
        return items_;
    }

private:
    void cut() {
        std::nth_element(items_.begin(), items_.begin() + (k_ - 1), items_.end(), better);
        worst_ = items_[static_cast<std::size_t>(k_ - 1)];
        items_.resize(static_cast<std::size_t>(k_));
        full_ = true;
        if (worst_.score == worst_.score) cutoff_ = worst_.score;
    }

    std::int64_t k_ = 1;
    std::vector<Scored> items_;
    Scored worst_{};
    bool full_ = false;
    float cutoff_ = -std::numeric_limits<float>::infinity();
};

// The k best entries of each row: ids (rows, k) with -1, scores (rows, k) with -inf where a row has fewer.
template <class Index>
void csr_topk(const CsrView<Index>& matrix, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    constexpr std::int64_t block_size = 1024;
    parallel_for((matrix.rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(matrix.rows, (b + 1) * block_size); ++row) {
            items.clear();
            for (Index i = matrix.indptr[row]; i < matrix.indptr[row + 1]; ++i)
                items.push_back({matrix.data[i], static_cast<std::int32_t>(matrix.indices[i])});
            const std::int64_t n = topk(items.data(), static_cast<std::int64_t>(items.size()), k);
            write_row(items.data(), n, k, ids + row * k, scores + row * k);
        }
    });
}

// The n entries of each row with the largest magnitude, columns ascending as before; equal ones by column.
template <class Index>
CsrRows largest_entries(const CsrView<Index>& matrix, std::int64_t n, int threads) {
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(matrix.rows) + 1);
    for (std::int64_t row = 0; row < matrix.rows; ++row)
        indptr[static_cast<std::size_t>(row) + 1] =
            indptr[static_cast<std::size_t>(row)] + std::min<std::int64_t>(n, matrix.indptr[row + 1] - matrix.indptr[row]);
    CsrRows result = allocate_rows(std::move(indptr));
    constexpr std::int64_t block_size = 256;
    parallel_for((matrix.rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(matrix.rows, (b + 1) * block_size); ++row) {
            const Index first = matrix.indptr[row], last = matrix.indptr[row + 1];
            std::int32_t* columns = result.indices.get() + result.indptr[static_cast<std::size_t>(row)];
            float* values = result.data.get() + result.indptr[static_cast<std::size_t>(row)];
            Scored worst{-1.0f, 0};
            if (last - first > n) {
                items.clear();
                for (Index i = first; i < last; ++i) items.push_back({std::abs(matrix.data[i]), static_cast<std::int32_t>(matrix.indices[i])});
                std::nth_element(items.begin(), items.begin() + (n - 1), items.end(), better);
                worst = items[static_cast<std::size_t>(n - 1)];
            }
            for (Index i = first; i < last; ++i) {
                const Scored item{std::abs(matrix.data[i]), static_cast<std::int32_t>(matrix.indices[i])};
                if (last - first > n && better(worst, item)) continue;
                *columns++ = item.id;
                *values++ = matrix.data[i];
            }
        }
    });
    return result;
}

// The k best of each row's list (rows, width), where id -1 says that there is none; -1 and -inf behind the last.
inline void list_topk(const std::int32_t* ids, const float* scores, std::int64_t rows, std::int64_t width, std::int64_t k, int threads,
                      std::int32_t* best_ids, float* best_scores) {
    constexpr std::int64_t block_size = 64;
    parallel_for((rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(rows, (b + 1) * block_size); ++row) {
            items.clear();
            for (std::int64_t j = row * width; j < (row + 1) * width; ++j)
                if (ids[j] >= 0) items.push_back({scores[j], ids[j]});
            const std::int64_t n = topk(items.data(), static_cast<std::int64_t>(items.size()), k);
            write_row(items.data(), n, k, best_ids + row * k, best_scores + row * k);
        }
    });
}

// Blends several rankings of the same rows: the mean of e^score over all rankings, 0 where one does not name a label.
// ids and scores are (n_rankings, rows, width); the result (rows, k) has the logarithm of the mean.
inline void blend_rankings(const std::int32_t* ids, const float* scores, std::int64_t n_rankings, std::int64_t rows,
                           std::int64_t width, std::int64_t k, int threads, std::int32_t* best_ids, float* best_scores) {
    constexpr std::int64_t block_size = 256;
    parallel_for((rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items, sums;
        for (std::int64_t row = b * block_size; row < std::min(rows, (b + 1) * block_size); ++row) {
            items.clear();
            sums.clear();
            for (std::int64_t r = 0; r < n_rankings; ++r)
                for (std::int64_t j = 0; j < width; ++j) {
                    const std::int64_t at = (r * rows + row) * width + j;
                    if (ids[at] >= 0) items.push_back({scores[at], ids[at]});
                }
            std::stable_sort(items.begin(), items.end(), [](const Scored& x, const Scored& y) { return x.id < y.id; });
            for (std::size_t i = 0; i < items.size();) {
                double sum = 0;  // relative to the first, so that it neither overflows nor vanishes
                std::size_t j = i;
                for (; j < items.size() && items[j].id == items[i].id; ++j) sum += std::exp(static_cast<double>(items[j].score) - items[i].score);
                sums.push_back({static_cast<float>(items[i].score + std::log(sum / static_cast<double>(n_rankings))), items[i].id});
                i = j;
            }
            const std::int64_t n = topk(sums.data(), static_cast<std::int64_t>(sums.size()), k);
            write_row(sums.data(), n, k, best_ids + row * k, best_scores + row * k);
        }
    });
}

}  // namespace ramify
