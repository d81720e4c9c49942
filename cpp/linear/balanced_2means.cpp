#include "linear/balanced_2means.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/parallel.h"
#include "core/random.h"
#include "core/scratch.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 1024;

class Splitter {
public:
    // 2-means with clusters of equal size. Reorders ids: the first half (rounded down) is one cluster, the rest the
    // other.
    template <class Index>
    void split(const CsrView<Index>& rows, std::int32_t* ids, std::int64_t n, const KMeansOptions& options,
               std::uint64_t seed, int threads) {
        members_.gather(rows, ids, n);
        const auto d = static_cast<std::size_t>(members_.n_features);
        const std::int64_t middle = n / 2;
        Random random(seed);
        left_.assign(d, 0.0);
        right_.assign(d, 0.0);
        direction_.assign(d, 0.0f);
        side_.assign(static_cast<std::size_t>(n), 0);
        scored_.resize(static_cast<std::size_t>(n));
        // Initial direction: the difference of two random members.
        const std::int64_t one = random.below(n), second = 1 + random.below(n - 1), other = second == one ? 0 : second;
        for (const auto& [member, sign] : {std::pair(one, 1.0f), std::pair(other, -1.0f)})
            for (std::int64_t i = members_.indptr[static_cast<std::size_t>(member)];
                 i < members_.indptr[static_cast<std::size_t>(member) + 1]; ++i)
                direction_[static_cast<std::size_t>(members_.indices[static_cast<std::size_t>(i)])] +=
                    sign * members_.values[static_cast<std::size_t>(i)];
        for (int iteration = 0;; ++iteration) {
            parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
                for (std::int64_t m = block * rows_at_once; m < std::min(n, (block + 1) * rows_at_once); ++m)
                    scored_[static_cast<std::size_t>(m)] = {members_.dot(m, direction_.data()), ids[m],
                                                            static_cast<std::int32_t>(m)};
            });
            std::nth_element(scored_.begin(), scored_.begin() + middle, scored_.end(),
                             [](const Projection& x, const Projection& y) {
                                 return x.score != y.score ? x.score < y.score : x.id < y.id;
                             });
            moved_.clear();
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int32_t m = scored_[static_cast<std::size_t>(i)].member;
                const std::uint8_t side = i >= middle;
                if (side_[static_cast<std::size_t>(m)] != side) moved_.push_back(m);
                side_[static_cast<std::size_t>(m)] = side;
            }
            const auto n_moved = iteration == 0 ? n : static_cast<std::int64_t>(moved_.size());
            if (iteration + 1 >= options.max_iterations ||
                static_cast<double>(n_moved) <= 2 * options.tolerance * static_cast<double>(n))
                break;
            if (iteration == 0) {
                for (std::int64_t m = 0; m < n; ++m)
                    members_.add(m, 1.0, (side_[static_cast<std::size_t>(m)] ? right_ : left_).data());
                total_.resize(d);
                for (std::size_t f = 0; f < d; ++f) total_[f] = left_[f] + right_[f];
            } else {  // the other side is what is left of all
                for (const std::int32_t m : moved_)
                    members_.add(m, side_[static_cast<std::size_t>(m)] ? 1.0 : -1.0, right_.data());
                for (std::size_t f = 0; f < d; ++f) left_[f] = total_[f] - right_[f];
            }
            const double left = scale_of(left_, static_cast<double>(middle), options.spherical);
            const double right = scale_of(right_, static_cast<double>(n - middle), options.spherical);
            for (std::size_t f = 0; f < d; ++f) direction_[f] = static_cast<float>(right * right_[f] - left * left_[f]);
        }
        // Members keep the order of their ids on each side.
        sorted_.assign(ids, ids + n);
        std::int64_t at[2] = {0, middle};
        for (std::int64_t m = 0; m < n; ++m)
            ids[at[side_[static_cast<std::size_t>(m)]]++] = sorted_[static_cast<std::size_t>(m)];
    }

private:
    struct Projection {
        float score;
        std::int32_t id, member;
    };
    Members members_;
    std::vector<double> left_, right_, total_;  // (n_features) sums of each side and of all members
    std::vector<float> direction_;
    std::vector<std::uint8_t> side_;
    std::vector<Projection> scored_;
    std::vector<std::int32_t> moved_, sorted_;
};

// The columns of a matrix with frequent ones first: what most entries refer to then fits into the first cache. A matrix
// may have far more columns than entries: only those in use are ordered.
template <class Index>
std::vector<Index> by_frequency(const CsrView<Index>& rows) {
    const Index n_entries = rows.indptr[rows.rows];
    std::vector<Index> counts(static_cast<std::size_t>(rows.cols));
    for (Index i = 0; i < n_entries; ++i) ++counts[static_cast<std::size_t>(rows.indices[i])];
    std::vector<Index> order;
    for (std::size_t f = 0; f < counts.size(); ++f)
        if (counts[f] > 0) order.push_back(static_cast<Index>(f));
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
        return counts[static_cast<std::size_t>(a)] > counts[static_cast<std::size_t>(b)];
    });
    std::vector<Index>& rank = counts;
    for (std::size_t i = 0; i < order.size(); ++i) rank[static_cast<std::size_t>(order[i])] = static_cast<Index>(i);
    std::vector<Index> indices(static_cast<std::size_t>(n_entries));
    for (Index i = 0; i < n_entries; ++i)
        indices[static_cast<std::size_t>(i)] = rank[static_cast<std::size_t>(rows.indices[i])];
    return indices;
}

}  // namespace

template <class Index>
std::vector<std::int32_t> balanced_2means(const CsrView<Index>& matrix, int depth, const KMeansOptions& options,
                                          int threads) {
    const std::vector<Index> indices = by_frequency(matrix);
    CsrView<Index> rows = matrix;
    rows.indices = indices.data();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows.rows));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<std::int64_t> parts{0, rows.rows};
    constexpr std::int64_t large = 8192;  // nodes of this size are split one by one, with all threads
    ScratchPool<Splitter> splitters;
    for (int level = 0; level < depth; ++level) {
        const auto n_nodes = static_cast<std::int64_t>(parts.size()) - 1;
        std::vector<std::int64_t> next(static_cast<std::size_t>(2 * n_nodes) + 1);
        for (std::size_t node = 0; node < static_cast<std::size_t>(n_nodes); ++node) {
            next[2 * node] = parts[node];
            next[2 * node + 1] = parts[node] + (parts[node + 1] - parts[node]) / 2;
        }
        next.back() = rows.rows;
        auto split = [&](std::int64_t node, int inner_threads) {
            const std::int64_t from = parts[static_cast<std::size_t>(node)],
                               n = parts[static_cast<std::size_t>(node) + 1] - from;
            if (n < 2) return;
            const std::uint64_t seed =
                Random(options.seed ^ (static_cast<std::uint64_t>(level) << 48) ^ static_cast<std::uint64_t>(node))
                    .next();
            const ScratchPool<Splitter>::Lease splitter(splitters);
            (*splitter).split(rows, ids.data() + from, n, options, seed, inner_threads);
        };
        if (rows.rows / n_nodes >= large) {
            for (std::int64_t node = 0; node < n_nodes; ++node) split(node, threads);
        } else {
            parallel_for(n_nodes, threads, [&](std::int64_t node, int) { split(node, 1); });
        }
        parts = std::move(next);
    }
    return ids;
}

template std::vector<std::int32_t> balanced_2means(const CsrView<std::int32_t>&, int, const KMeansOptions&, int);
template std::vector<std::int32_t> balanced_2means(const CsrView<std::int64_t>&, int, const KMeansOptions&, int);

}  // namespace ramify
