// Compressed sparse row matrices: views of what Python owns, and rows that native code makes.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ramify {

template <class Index>
struct CsrView {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const Index* indptr = nullptr;   // (rows + 1)
    const Index* indices = nullptr;  // (nnz), ascending in a row
    const float* data = nullptr;     // (nnz), or null where only the pattern matters
};

// Whether rows lie in order, columns ascend within each row inside the matrix, and every value is a finite number.
template <class Index>
bool is_canonical(const CsrView<Index>& matrix, std::int64_t nnz) {
    if (matrix.indptr[0] != 0 || matrix.indptr[matrix.rows] > nnz) return false;
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
        const Index begin = matrix.indptr[row], end = matrix.indptr[row + 1];
        if (end < begin || end > nnz) return false;
        std::int64_t before = -1;
        bool right = true;
        for (Index i = begin; i < end; ++i) {
            const auto column = static_cast<std::int64_t>(matrix.indices[i]);
            right &= column > before;
            right &= std::isfinite(matrix.data[i]);
            before = column;
        }
        if (!right || before >= matrix.cols) return false;
    }
    return true;
}

struct CsrRows {
    std::vector<std::int64_t> indptr;  // (rows + 1)
    std::unique_ptr<std::int32_t[]> indices;
    std::unique_ptr<float[]> data;
};

// Room for rows whose sizes are given as running totals.
inline CsrRows allocate_rows(std::vector<std::int64_t> indptr) {
    CsrRows rows;
    const auto nnz = static_cast<std::size_t>(indptr.back());
    rows.indices = std::make_unique_for_overwrite<std::int32_t[]>(nnz);
    rows.data = std::make_unique_for_overwrite<float[]>(nnz);
    rows.indptr = std::move(indptr);
    return rows;
}

}  // namespace ramify
