#include "linear/kmeans.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/random.h"

namespace ramify {

namespace {

// Some rows of a matrix with the features that they use, renumbered: centres become small and stay in cache.
struct Members {
    std::vector<std::int64_t> begin;  // (n + 1)
    std::vector<std::int32_t> indices;
    std::vector<float> values;
    std::int64_t n_features = 0;
    std::vector<std::uint64_t> used;
    std::vector<std::int32_t> number;

    std::int64_t size() const { return static_cast<std::int64_t>(begin.size()) - 1; }

    template <class Index>
    void gather(const CsrView<Index>& rows, const std::int32_t* ids, std::int64_t n) {
        used.assign(static_cast<std::size_t>(rows.cols + 63) / 64, 0);
        number.resize(static_cast<std::size_t>(rows.cols));
        begin.assign(1, 0);
        for (std::int64_t m = 0; m < n; ++m) {
            for (Index i = rows.indptr[ids[m]]; i < rows.indptr[ids[m] + 1]; ++i) {
                const auto f = static_cast<std::size_t>(rows.indices[i]);
                used[f / 64] |= std::uint64_t{1} << (f % 64);
            }
            begin.push_back(begin.back() + static_cast<std::int64_t>(rows.indptr[ids[m] + 1] - rows.indptr[ids[m]]));
        }
        n_features = 0;
        for (std::size_t w = 0; w < used.size(); ++w)
            for (std::uint64_t bits = used[w]; bits != 0; bits &= bits - 1)
                number[64 * w + static_cast<std::size_t>(__builtin_ctzll(bits))] = static_cast<std::int32_t>(n_features++);
        indices.resize(static_cast<std::size_t>(begin.back()));
        values.resize(indices.size());
        std::size_t at = 0;
        for (std::int64_t m = 0; m < n; ++m)
            for (Index i = rows.indptr[ids[m]]; i < rows.indptr[ids[m] + 1]; ++i, ++at) {
                indices[at] = number[static_cast<std::size_t>(rows.indices[i])];
                values[at] = rows.data[i];
            }
    }

    float dot(std::int64_t m, const float* direction) const {
        float even = 0, odd = 0;
        std::int64_t i = begin[static_cast<std::size_t>(m)];
        const std::int64_t end = begin[static_cast<std::size_t>(m) + 1];
        for (; i + 1 < end; i += 2) {
            even += values[static_cast<std::size_t>(i)] * direction[indices[static_cast<std::size_t>(i)]];
            odd += values[static_cast<std::size_t>(i) + 1] * direction[indices[static_cast<std::size_t>(i) + 1]];
        }
        if (i < end) even += values[static_cast<std::size_t>(i)] * direction[indices[static_cast<std::size_t>(i)]];
        return even + odd;
    }
    void add(std::int64_t m, double scale, double* sums) const {
        for (std::int64_t i = begin[static_cast<std::size_t>(m)]; i < begin[static_cast<std::size_t>(m) + 1]; ++i)
            sums[indices[static_cast<std::size_t>(i)]] += scale * static_cast<double>(values[static_cast<std::size_t>(i)]);
    }
};

double scale_of(const std::vector<double>& sums, double count, bool spherical) {
    if (!spherical) return count > 0 ? 1.0 / count : 0.0;
    double square = 0;
    for (const double x : sums) square += x * x;
    return square > 0 ? 1.0 / std::sqrt(square) : 0.0;
}

constexpr std::int64_t rows_at_once = 1024;

class Halver {
public:
    // Reorders ids so that its first half (rounded down) is one cluster and the rest the other.
    template <class Index>
    void split(const CsrView<Index>& rows, std::int32_t* ids, std::int64_t n, const KmeansOptions& options, std::uint64_t seed,
               int threads) {
        members_.gather(rows, ids, n);
        const auto d = static_cast<std::size_t>(members_.n_features);
        const std::int64_t middle = n / 2;
        Random random(seed);
        sums_[0].assign(d, 0.0);
        sums_[1].assign(d, 0.0);
        direction_.assign(d, 0.0f);
        side_.assign(static_cast<std::size_t>(n), 2);
        scored_.resize(static_cast<std::size_t>(n));
        // From one member to another.
        const std::int64_t one = random.below(n), second = 1 + random.below(n - 1), other = second == one ? 0 : second;
        for (const auto& [member, sign] : {std::pair(one, 1.0f), std::pair(other, -1.0f)})
            for (std::int64_t i = members_.begin[static_cast<std::size_t>(member)]; i < members_.begin[static_cast<std::size_t>(member) + 1]; ++i)
                direction_[static_cast<std::size_t>(members_.indices[static_cast<std::size_t>(i)])] += sign * members_.values[static_cast<std::size_t>(i)];
        for (int iteration = 0;; ++iteration) {
            parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
                for (std::int64_t m = block * rows_at_once; m < std::min(n, (block + 1) * rows_at_once); ++m)
                    scored_[static_cast<std::size_t>(m)] = {members_.dot(m, direction_.data()), ids[m], static_cast<std::int32_t>(m)};
            });
            std::nth_element(scored_.begin(), scored_.begin() + middle, scored_.end(), [](const Place& x, const Place& y) {
                return x.score != y.score ? x.score < y.score : x.id < y.id;
            });
            std::int64_t moved = 0;
            for (std::int64_t i = 0; i < n; ++i) {
                const auto m = static_cast<std::size_t>(scored_[static_cast<std::size_t>(i)].member);
                const std::uint8_t side = i >= middle;
                if (side_[m] == side) continue;
                if (side_[m] < 2) members_.add(static_cast<std::int64_t>(m), -1.0, sums_[side_[m]].data());
                members_.add(static_cast<std::int64_t>(m), 1.0, sums_[side].data());
                side_[m] = side;
                ++moved;
            }
            if (iteration + 1 >= options.max_iterations || static_cast<double>(moved) <= 2 * options.tolerance * static_cast<double>(n)) break;
            const double left = scale_of(sums_[0], static_cast<double>(middle), options.spherical);
            const double right = scale_of(sums_[1], static_cast<double>(n - middle), options.spherical);
            for (std::size_t f = 0; f < d; ++f) direction_[f] = static_cast<float>(right * sums_[1][f] - left * sums_[0][f]);
        }
        // Members keep the order of their ids on each side.
        sorted_.assign(ids, ids + n);
        std::int64_t at[2] = {0, middle};
        for (std::int64_t m = 0; m < n; ++m) ids[at[side_[static_cast<std::size_t>(m)]]++] = sorted_[static_cast<std::size_t>(m)];
    }

private:
    struct Place {
        float score;
        std::int32_t id, member;
    };
    Members members_;
    std::vector<double> sums_[2];
    std::vector<float> direction_;
    std::vector<std::uint8_t> side_;
    std::vector<Place> scored_;
    std::vector<std::int32_t> sorted_;
};

}  // namespace

template <class Index>
std::vector<std::int32_t> balanced_halves(const CsrView<Index>& rows, int depth, const KmeansOptions& options, int threads) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows.rows));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<std::int64_t> borders{0, rows.rows};
    constexpr std::int64_t large = 8192;  // nodes from here on are split one by one, with all threads
    for (int level = 0; level < depth; ++level) {
        const auto n_nodes = static_cast<std::int64_t>(borders.size()) - 1;
        std::vector<std::int64_t> next(static_cast<std::size_t>(2 * n_nodes) + 1);
        for (std::size_t node = 0; node < static_cast<std::size_t>(n_nodes); ++node) {
            next[2 * node] = borders[node];
            next[2 * node + 1] = borders[node] + (borders[node + 1] - borders[node]) / 2;
        }
        next.back() = rows.rows;
        std::vector<std::unique_ptr<Halver>> halvers(static_cast<std::size_t>(std::max(1, threads)));
        auto split = [&](std::int64_t node, int worker, int inner_threads) {
            auto& halver = halvers[static_cast<std::size_t>(worker)];
            if (!halver) halver = std::make_unique<Halver>();
            const std::int64_t from = borders[static_cast<std::size_t>(node)], n = borders[static_cast<std::size_t>(node) + 1] - from;
            if (n < 2) return;
            const std::uint64_t seed = Random(options.seed ^ (static_cast<std::uint64_t>(level) << 48) ^ static_cast<std::uint64_t>(node)).next();
            halver->split(rows, ids.data() + from, n, options, seed, inner_threads);
        };
        if (rows.rows / n_nodes >= large) {
            for (std::int64_t node = 0; node < n_nodes; ++node) split(node, 0, threads);
        } else {
            parallel_for(n_nodes, threads, [&](std::int64_t node, int worker) { split(node, worker, 1); });
        }
        borders = std::move(next);
    }
    return ids;
}

template <class Index>
std::vector<std::int32_t> kmeans(const CsrView<Index>& rows, std::int64_t n_clusters, bool balanced,
                                 const KmeansOptions& options, int threads) {
    const std::int64_t n = rows.rows;
    Members members;
    {
        std::vector<std::int32_t> all(static_cast<std::size_t>(n));
        std::iota(all.begin(), all.end(), 0);
        members.gather(rows, all.data(), n);
    }
    const auto d = static_cast<std::size_t>(members.n_features);
    const auto k = static_cast<std::size_t>(n_clusters), width = (k + 7) / 8 * 8;
    auto is_zero = [&](std::int64_t m) { return members.begin[static_cast<std::size_t>(m)] == members.begin[static_cast<std::size_t>(m) + 1]; };

    // Centres as [feature][cluster]: one walk over a row gives its similarity to all of them.
    std::vector<float> centres(d * width), offset(width);
    std::vector<std::int32_t> cluster(static_cast<std::size_t>(n), -1);
    Random random(options.seed);
    {
        std::vector<std::int32_t> seeds(static_cast<std::size_t>(n));
        std::iota(seeds.begin(), seeds.end(), 0);
        for (std::size_t c = 0; c < k; ++c) {
            const auto j = c + static_cast<std::size_t>(random.below(n - static_cast<std::int64_t>(c)));
            std::swap(seeds[c], seeds[j]);
            for (std::int64_t i = members.begin[static_cast<std::size_t>(seeds[c])]; i < members.begin[static_cast<std::size_t>(seeds[c]) + 1]; ++i)
                centres[static_cast<std::size_t>(members.indices[static_cast<std::size_t>(i)]) * width + c] = members.values[static_cast<std::size_t>(i)];
        }
    }
    auto similarities = [&](std::int64_t m, float* out) {
        std::copy(offset.begin(), offset.end(), out);
        for (std::int64_t i = members.begin[static_cast<std::size_t>(m)]; i < members.begin[static_cast<std::size_t>(m) + 1]; ++i)
            hot().add_scaled(members.values[static_cast<std::size_t>(i)],
                             centres.data() + static_cast<std::size_t>(members.indices[static_cast<std::size_t>(i)]) * width,
                             static_cast<std::int64_t>(width), out);
    };
    auto best_of = [&](const float* similarity, const std::vector<std::int64_t>* room) {
        std::int32_t best = -1;
        for (std::size_t c = 0; c < k; ++c)
            if ((room == nullptr || (*room)[c] > 0) && (best < 0 || similarity[c] > similarity[static_cast<std::size_t>(best)])) best = static_cast<std::int32_t>(c);
        return best;
    };
    const std::int64_t capacity = (n + n_clusters - 1) / n_clusters;
    constexpr std::int64_t block_size = 256;
    const std::int64_t n_blocks = (n + block_size - 1) / block_size;
    std::vector<double> sums(d);
    std::vector<float> margin(static_cast<std::size_t>(n));
    std::vector<std::int32_t> next(static_cast<std::size_t>(n));

    for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
        parallel_for(n_blocks, threads, [&](std::int64_t block, int) {
            std::vector<float> similarity(width);
            for (std::int64_t m = block * block_size; m < std::min(n, (block + 1) * block_size); ++m) {
                similarities(m, similarity.data());
                const std::int32_t best = best_of(similarity.data(), nullptr);
                next[static_cast<std::size_t>(m)] = best;
                if (!balanced) continue;
                float second = -INFINITY;
                for (std::size_t c = 0; c < k; ++c)
                    if (static_cast<std::int32_t>(c) != best) second = std::max(second, similarity[c]);
                margin[static_cast<std::size_t>(m)] = k > 1 ? similarity[static_cast<std::size_t>(best)] - second : 0.0f;
            }
        });
        std::vector<std::int64_t> room(k, balanced ? capacity : n);
        std::vector<std::int32_t> order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        if (balanced) {  // those who lose most by going elsewhere choose first
            std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return margin[static_cast<std::size_t>(a)] > margin[static_cast<std::size_t>(b)]; });
            std::vector<float> similarity(width);
            for (const std::int32_t m : order) {
                if (is_zero(m)) continue;
                auto& choice = next[static_cast<std::size_t>(m)];
                if (room[static_cast<std::size_t>(choice)] == 0) {
                    similarities(m, similarity.data());
                    choice = best_of(similarity.data(), &room);
                }
                --room[static_cast<std::size_t>(choice)];
            }
        } else {
            for (const std::int32_t m : order)
                if (!is_zero(m)) --room[static_cast<std::size_t>(next[static_cast<std::size_t>(m)])];
        }
        for (const std::int32_t m : order) {
            if (!is_zero(m)) continue;
            const auto emptiest = static_cast<std::size_t>(std::max_element(room.begin(), room.end()) - room.begin());
            next[static_cast<std::size_t>(m)] = static_cast<std::int32_t>(emptiest);
            --room[emptiest];
        }
        std::int64_t moved = 0;
        for (std::size_t m = 0; m < cluster.size(); ++m) moved += next[m] != cluster[m];
        cluster = next;
        if (static_cast<double>(moved) <= options.tolerance * static_cast<double>(n)) break;

        std::vector<std::int64_t> begin(k + 1);
        for (const std::int32_t c : cluster) ++begin[static_cast<std::size_t>(c) + 1];
        for (std::size_t c = 1; c <= k; ++c) begin[c] += begin[c - 1];
        std::vector<std::int32_t> by_cluster(static_cast<std::size_t>(n));
        {
            std::vector<std::int64_t> at(begin.begin(), begin.end() - 1);
            for (std::int64_t m = 0; m < n; ++m) by_cluster[static_cast<std::size_t>(at[static_cast<std::size_t>(cluster[static_cast<std::size_t>(m)])]++)] = static_cast<std::int32_t>(m);
        }
        for (std::size_t c = 0; c < k; ++c) {
            if (begin[c] == begin[c + 1]) continue;  // an empty cluster keeps its centre
            std::fill(sums.begin(), sums.end(), 0.0);
            for (std::int64_t i = begin[c]; i < begin[c + 1]; ++i) members.add(by_cluster[static_cast<std::size_t>(i)], 1.0, sums.data());
            const double scale = scale_of(sums, static_cast<double>(begin[c + 1] - begin[c]), options.spherical);
            double square = 0;
            for (std::size_t f = 0; f < d; ++f) {
                const double x = scale * sums[f];
                centres[f * width + c] = static_cast<float>(x);
                square += x * x;
            }
            // The nearest mean is the one with the largest x·c - |c|²/2.
            offset[c] = options.spherical ? 0.0f : static_cast<float>(-square / 2);
        }
    }
    return cluster;
}

template std::vector<std::int32_t> balanced_halves(const CsrView<std::int32_t>&, int, const KmeansOptions&, int);
template std::vector<std::int32_t> balanced_halves(const CsrView<std::int64_t>&, int, const KmeansOptions&, int);
template std::vector<std::int32_t> kmeans(const CsrView<std::int32_t>&, std::int64_t, bool, const KmeansOptions&, int);
template std::vector<std::int32_t> kmeans(const CsrView<std::int64_t>&, std::int64_t, bool, const KmeansOptions&, int);

}  // namespace ramify
