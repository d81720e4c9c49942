// Reads the numbers of a test case from the fuzzer's bytes, behind whose end everything is 0, and says what must hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "core/csr.h"

// A sparse matrix of a test case.
struct SparseRows {
    std::int64_t n_columns;
    std::vector<std::int32_t> indptr, indices;
    std::vector<float> data;

    ramify::CsrView<std::int32_t> view() const {
        return {static_cast<std::int64_t>(indptr.size()) - 1, n_columns, indptr.data(), indices.data(), data.data()};
    }
    // Calls visit(column, value) for the entries of a row.
    template <class Visit>
    void for_row(std::int64_t row, Visit&& visit) const {
        const auto at = static_cast<std::size_t>(row);
        for (auto i = static_cast<std::size_t>(indptr[at]); i < static_cast<std::size_t>(indptr[at + 1]); ++i)
            visit(static_cast<std::size_t>(indices[i]), data[i]);
    }
    std::vector<float> dense(std::int64_t row) const {
        std::vector<float> values(static_cast<std::size_t>(n_columns), 0.0f);
        for_row(row, [&](std::size_t column, float value) { values[column] = value; });
        return values;
    }
};

struct Input {
    const std::uint8_t* data;
    std::size_t size;

    template <class T>
    T take() {
        T x{};
        const std::size_t n = std::min(size, sizeof x);
        std::memcpy(&x, data, n);
        data += n;
        size -= n;
        return x;
    }
    // A number from low to high.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(take<std::uint32_t>() % static_cast<std::uint64_t>(high - low + 1));
    }
    template <class T>
    std::vector<T> array(std::size_t n) {
        std::vector<T> items(n);
        for (T& item : items) item = take<T>();
        return items;
    }
    std::vector<std::uint8_t> rest() { return {data, data + size}; }

    // Any float: mostly small numbers, in which ties are frequent, and now and then infinity, NaN and extremes.
    float number() {
        const auto byte = take<std::uint8_t>();
        if (byte < 250) return static_cast<float>(byte - 125) / 16.0f;
        if (byte < 253) return take<float>();
        const float infinity = std::numeric_limits<float>::infinity();
        return byte == 253 ? infinity : byte == 254 ? -infinity : std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<float> numbers(std::int64_t n) {
        std::vector<float> items(static_cast<std::size_t>(n));
        for (float& item : items) item = number();
        return items;
    }
    // Row pointers of n rows, each with up to `most` entries.
    template <class Index>
    std::vector<Index> pointers(std::int64_t n, std::uint8_t most) {
        std::vector<Index> found{0};
        for (std::int64_t i = 0; i < n; ++i)
            found.push_back(found.back() + static_cast<Index>(take<std::uint8_t>() % (most + 1)));
        return found;
    }
    // Ascending columns below n of the rows that `pointers` divides; the pointers shrink to what there is.
    template <class Index>
    std::vector<Index> columns(std::vector<Index>& indptr, std::int64_t n) {
        std::vector<Index> found;
        for (std::size_t row = 0; row + 1 < indptr.size(); ++row) {
            const auto wanted = static_cast<std::int64_t>(indptr[row + 1]) - static_cast<std::int64_t>(indptr[row]);
            std::vector<Index> part;
            for (std::int64_t i = 0; i < wanted; ++i) part.push_back(static_cast<Index>(take<std::uint16_t>() % n));
            std::sort(part.begin(), part.end());
            part.erase(std::unique(part.begin(), part.end()), part.end());
            // The row ends where its entries end, the next one begins there.
            const Index removed = static_cast<Index>(wanted - static_cast<std::int64_t>(part.size()));
            for (std::size_t i = row + 1; i < indptr.size(); ++i) indptr[i] -= removed;
            found.insert(found.end(), part.begin(), part.end());
        }
        return found;
    }
    // A matrix with up to `most` entries in a row, which are any floats.
    SparseRows rows(std::int64_t n, std::int64_t n_columns, std::uint8_t most) {
        SparseRows found{n_columns, pointers<std::int32_t>(n, most), {}, {}};
        found.indices = columns(found.indptr, n_columns);
        found.data = numbers(static_cast<std::int64_t>(found.indices.size()));
        return found;
    }
};

inline void require(bool holds) {
    if (!holds) std::abort();
}

inline bool same(float a, float b) { return a == b || (a != a && b != b); }

// What every ranking (rows, k) has: ids below n, no id twice unless asked, best first, NaN behind numbers, padding
// last.
inline void require_ranking(const std::int32_t* ids, const float* scores, std::int64_t rows, std::int64_t k,
                            std::int64_t n, bool is_ordered = true, bool is_unique = true) {
    for (std::int64_t row = 0; row < rows; ++row, ids += k, scores += k)
        for (std::int64_t j = 0; j < k; ++j) {
            require(ids[j] >= -1 && ids[j] < n);
            require(ids[j] >= 0 || scores[j] == -std::numeric_limits<float>::infinity());
            if (j == 0) continue;
            require(ids[j] < 0 || ids[j - 1] >= 0);
            if (is_ordered && ids[j] >= 0)
                require(!(scores[j] > scores[j - 1]) && (scores[j] != scores[j] || scores[j - 1] == scores[j - 1]));
            for (std::int64_t i = 0; is_unique && ids[j] >= 0 && i < j; ++i) require(ids[i] != ids[j]);
        }
}
