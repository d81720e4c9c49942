// What the clustering algorithms share: options, and rows with their features renumbered.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/csr.h"

namespace ramify {

struct KMeansOptions {
    bool spherical = true;  // centroids of unit norm; else means
    int max_iterations = 20;
    double tolerance = 0.0;  // stop when at most this fraction of the members moves
    std::uint64_t seed = 0;
};

// Some rows of a matrix with the features that they use, renumbered: centroids become small and stay in cache.
struct Members {
    std::vector<std::int64_t> indptr;  // (n + 1)
    std::vector<std::int32_t> indices;
    std::vector<float> values;
    std::int64_t n_features = 0;
    std::vector<std::uint64_t> used;        // bitmap of the features in use
    std::vector<std::int32_t> local_index;  // of each feature in use

    std::int64_t size() const { return static_cast<std::int64_t>(indptr.size()) - 1; }

    template <class Index>
    void gather(const CsrView<Index>& rows, const std::int32_t* ids, std::int64_t n) {
        used.assign(static_cast<std::size_t>(rows.cols + 63) / 64, 0);
        local_index.resize(static_cast<std::size_t>(rows.cols));
        indptr.assign(1, 0);
        for (std::int64_t m = 0; m < n; ++m) {
            for (Index i = rows.indptr[ids[m]]; i < rows.indptr[ids[m] + 1]; ++i) {
                const auto f = static_cast<std::size_t>(rows.indices[i]);
                used[f / 64] |= std::uint64_t{1} << (f % 64);
            }
            indptr.push_back(indptr.back() + static_cast<std::int64_t>(rows.indptr[ids[m] + 1] - rows.indptr[ids[m]]));
        }
        n_features = 0;
        for (std::size_t w = 0; w < used.size(); ++w)
            for (std::uint64_t bits = used[w]; bits != 0; bits &= bits - 1)
                local_index[64 * w + static_cast<std::size_t>(__builtin_ctzll(bits))] =
                    static_cast<std::int32_t>(n_features++);
        indices.resize(static_cast<std::size_t>(indptr.back()));
        values.resize(indices.size());
        std::size_t at = 0;
        for (std::int64_t m = 0; m < n; ++m)
            for (Index i = rows.indptr[ids[m]]; i < rows.indptr[ids[m] + 1]; ++i, ++at) {
                indices[at] = local_index[static_cast<std::size_t>(rows.indices[i])];
                values[at] = rows.data[i];
            }
    }

    float dot(std::int64_t m, const float* direction) const {
        typedef float F4 __attribute__((vector_size(16)));
        const std::int32_t* index = indices.data() + indptr[static_cast<std::size_t>(m)];
        const float* value = values.data() + indptr[static_cast<std::size_t>(m)];
        const std::int64_t n = indptr[static_cast<std::size_t>(m) + 1] - indptr[static_cast<std::size_t>(m)];
        F4 even = {}, odd = {};  // an addition does not wait for the one before it
        auto products = [&](std::int64_t i) {
            const F4 x = {value[i], value[i + 1], value[i + 2], value[i + 3]};
            const F4 by = {direction[index[i]], direction[index[i + 1]], direction[index[i + 2]],
                           direction[index[i + 3]]};
            return x * by;
        };
        std::int64_t i = 0;
        for (; i + 7 < n; i += 8) even += products(i), odd += products(i + 4);
        const F4 sum = even + odd;
        float rest = 0;
        for (; i < n; ++i) rest += value[i] * direction[index[i]];
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
    }
    void add(std::int64_t m, double scale, double* sums) const {
        for (std::int64_t i = indptr[static_cast<std::size_t>(m)]; i < indptr[static_cast<std::size_t>(m) + 1]; ++i)
            sums[indices[static_cast<std::size_t>(i)]] +=
                scale * static_cast<double>(values[static_cast<std::size_t>(i)]);
    }
};

// Factor that turns a sum of `count` rows into a centroid: of unit norm if spherical, else the mean.
inline double scale_of(const std::vector<double>& sums, double count, bool spherical) {
    if (!spherical) return count > 0 ? 1.0 / count : 0.0;
    double squares[4] = {};  // an addition does not wait for the one before it
    std::size_t f = 0;
    for (; f + 3 < sums.size(); f += 4)
        for (std::size_t j = 0; j < 4; ++j) squares[j] += sums[f + j] * sums[f + j];
    for (; f < sums.size(); ++f) squares[0] += sums[f] * sums[f];
    const double square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    return square > 0 ? 1.0 / std::sqrt(square) : 0.0;
}

}  // namespace ramify
