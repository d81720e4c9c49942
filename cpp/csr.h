// Non-owning view of a compressed sparse row matrix.
#pragma once

#include <cstdint>

namespace ramify {

template <class Index>
struct CsrView {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const Index* indptr = nullptr;   // (rows + 1)
    const Index* indices = nullptr;  // (nnz), ascending in a row
    const float* data = nullptr;     // (nnz), or null where only the pattern matters
};

}  // namespace ramify
