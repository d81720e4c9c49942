// Compressed sparse row (CSR) matrices: views of arrays that Python owns, and rows that native code makes.
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
    const Index* indices = nullptr;  // (nnz), ascending within a row
    const float* data = nullptr;     // (nnz), or null where only the pattern matters
};

// Whether indptr ascends from 0, columns ascend within each row and lie inside the matrix, and no value is NaN or of a
// magnitude above the limit.
template <class Index>
bool is_canonical(const CsrView<Index>& matrix, std::int64_t nnz, float limit) {
    if (matrix.indptr[0] != 0 || matrix.indptr[matrix.rows] > nnz) return false;
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
        const Index begin = matrix.indptr[row], end = matrix.indptr[row + 1];
        if (end < begin || end > nnz) return false;
        std::int64_t before = -1;
        bool valid = true;
        for (Index i = begin; i < end; ++i) {
            const auto column = static_cast<std::int64_t>(matrix.indices[i]);
            valid &= column > before;
            valid &= std::abs(matrix.data[i]) <= limit;
            before = column;
        }
        if (!valid || before >= matrix.cols) return false;
    }
    return true;
}

struct CsrRows {
    std::vector<std::int64_t> indptr;  // (rows + 1)
    std::unique_ptr<std::int32_t[]> indices;
    std::unique_ptr<float[]> data;
};

// Uninitialized rows with the given row pointers.
inline CsrRows allocate_rows(std::vector<std::int64_t> indptr) {
    CsrRows rows;
    const auto nnz = static_cast<std::size_t>(indptr.back());
    rows.indices = std::make_unique_for_overwrite<std::int32_t[]>(nnz);
    rows.data = std::make_unique_for_overwrite<float[]>(nnz);
    rows.indptr = std::move(indptr);
    return rows;
}

// Turns counts, stored one place to the right (counts[i + 1] of row i, counts[0] = 0), into row pointers.
template <class Counts>
void accumulate(Counts& counts) {
    for (std::size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
}

}  // namespace ramify
