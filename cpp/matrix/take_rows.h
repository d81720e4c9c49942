// Rows of a matrix that is stored in several parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/csr.h"
#include "core/parallel.h"

namespace ramify {

// The given rows, ascending, of matrices below each other, of which part p begins with row first_rows[p]; every entry
// is copied once.
template <class Index>
CsrRows take_rows(std::span<const CsrView<Index>> parts, const std::int64_t* first_rows,
                  std::span<const std::int64_t> rows, int threads) {
    // A run of rows of one part, which a thread copies.
    struct Run {
        std::size_t part, begin, end;
    };
    constexpr std::size_t rows_per_run = 4096;
    std::vector<Run> runs;
    std::vector<std::int64_t> indptr(rows.size() + 1, 0);
    std::size_t at = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t after = first_rows[p] + parts[p].rows;
        while (at < rows.size() && rows[at] < after) {
            const std::size_t begin = at, limit = std::min(rows.size(), at + rows_per_run);
            for (; at < limit && rows[at] < after; ++at) {
                const std::int64_t row = rows[at] - first_rows[p];
                indptr[at + 1] = static_cast<std::int64_t>(parts[p].indptr[row + 1] - parts[p].indptr[row]);
            }
            runs.push_back({p, begin, at});
        }
    }
    accumulate(indptr);
    CsrRows taken = allocate_rows(std::move(indptr));
    parallel_for(static_cast<std::int64_t>(runs.size()), threads, [&](std::int64_t r, int) {
        const Run& run = runs[static_cast<std::size_t>(r)];
        const CsrView<Index>& part = parts[run.part];
        for (std::size_t i = run.begin; i < run.end; ++i) {
            const std::int64_t row = rows[i] - first_rows[run.part], to = taken.indptr[i];
            const Index from = part.indptr[row], n = part.indptr[row + 1] - from;
            std::copy_n(part.indices + from, n, taken.indices.get() + to);
            std::copy_n(part.data + from, n, taken.data.get() + to);
        }
    });
    return taken;
}

}  // namespace ramify
