// Selection of the k best of a list. Equal scores are ordered by id, so a ranking never depends on the input order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
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
        keys_.clear();
        worst_ = 0;
        cutoff_ = -std::numeric_limits<float>::infinity();
    }
    // No score below this can be among the k best any more.
    float cutoff() const { return cutoff_; }
    void add(Scored item) {
        const std::uint64_t key = key_of(item);
        if (key <= worst_) return;
        keys_.push_back(key);
        if (static_cast<std::int64_t>(keys_.size()) >= 2 * k_ + 32) shrink();
    }
    // Brings the cutoff up to date, if enough candidates have been added to make it worthwhile.
    void settle_if_cheap() {
        if (static_cast<std::int64_t>(keys_.size()) >= k_ + k_ / 2 + (worst_ > 0)) shrink();
    }
    // The best in order. The reference is valid until the next start.
    std::vector<Scored>& finish() {
        const auto n = std::min(keys_.size(), static_cast<std::size_t>(k_));
        std::nth_element(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(n), keys_.end(), std::greater<>());
        std::sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(n), std::greater<>());
        items_.resize(n);
        for (std::size_t i = 0; i < n; ++i) items_[i] = item_of(keys_[i]);
        return items_;
    }

private:
    // Integers in the order of `better`: the score, then the id, descending. At least 1.
    static std::uint64_t key_of(Scored item) {
        std::uint32_t upper = 0;  // NaN
        if (item.score == item.score) {
            const auto bits = std::bit_cast<std::uint32_t>(item.score + 0.0f);  // no -0
            upper = bits >> 31 != 0 ? ~bits : bits | 1u << 31;
        }
        return std::uint64_t{upper} << 32 | (0xffffffffu - static_cast<std::uint32_t>(item.id));
    }
    static Scored item_of(std::uint64_t key) {
        const auto upper = static_cast<std::uint32_t>(key >> 32);
        const float score = upper == 0 ? std::numeric_limits<float>::quiet_NaN()
                                       : std::bit_cast<float>(upper >> 31 != 0 ? upper & 0x7fffffffu : ~upper);
        return {score, static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key))};
    }

    void shrink() {
        const auto last = keys_.begin() + (k_ - 1);
        std::nth_element(keys_.begin(), last, keys_.end(), std::greater<>());
        worst_ = *last;
        keys_.resize(static_cast<std::size_t>(k_));
        const float score = item_of(worst_).score;
        if (score == score) cutoff_ = score;
    }

    std::int64_t k_ = 1;
    std::vector<std::uint64_t> keys_;
    std::uint64_t worst_ = 0;  // key of the last of the k best; 0 if there are fewer
    std::vector<Scored> items_;
    float cutoff_ = -std::numeric_limits<float>::infinity();
};

}  // namespace ramify
