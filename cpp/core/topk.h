// Selection of the k best of a list. Equal scores are ordered by id, so a ranking never depends on the input order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace ramify {

struct Scored {
    float score;
    std::int32_t id;
};

// NaN sorts behind every number. A lambda object, so that the algorithms of the standard library inline it.
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

// Writes n items as a ranking row of length k, padded with id -1 and score -inf.
inline void write_row(const Scored* items, std::int64_t n, std::int64_t k, std::int32_t* ids, float* scores) {
    for (std::int64_t j = 0; j < k; ++j) {
        ids[j] = j < n ? items[j].id : -1;
        scores[j] = j < n ? items[j].score : -std::numeric_limits<float>::infinity();
    }
}

// Sorts the k best of items and writes them as a padded ranking row.
inline void write_topk(std::vector<Scored>& items, std::int64_t k, std::int32_t* ids, float* scores) {
    const std::int64_t n = topk(items.data(), static_cast<std::int64_t>(items.size()), k);
    write_row(items.data(), n, k, ids, scores);
}

// Keeps the k best of a stream of candidates; most are rejected by one comparison with the cutoff.
class TopK {
public:
    void start(std::int64_t k) {
        k_ = k;
        items_.clear();
        full_ = false;
        cutoff_ = -std::numeric_limits<float>::infinity();
    }
    // No score below this can be among the k best any more.
    float cutoff() const { return cutoff_; }
    void add(Scored item) {
        if (item.score < cutoff_ || (full_ && !better(item, worst_))) return;
        items_.push_back(item);
        if (static_cast<std::int64_t>(items_.size()) >= 2 * k_ + 32) shrink();
    }
    // Brings the cutoff up to date.
    void settle() {
        if (static_cast<std::int64_t>(items_.size()) > k_ || (!full_ && static_cast<std::int64_t>(items_.size()) == k_))
            shrink();
    }
    // The best in order. The reference is valid until the next start.
    std::vector<Scored>& finish() {
        items_.resize(static_cast<std::size_t>(topk(items_.data(), static_cast<std::int64_t>(items_.size()), k_)));
        return items_;
    }

private:
    void shrink() {
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

}  // namespace ramify
