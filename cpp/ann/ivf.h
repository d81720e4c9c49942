// Inverted-file (IVF) index: vectors in lists around centroids, and the search for those with the largest inner
// products.
//
// A search reads the `nprobe` lists with the nearest centroids. It compares int8 codes, a quarter of the memory of
// floats, and computes exact products only for the best by their codes, where the vectors themselves are kept.
#pragma once

#include <cstdint>

#include "ann/quantize.h"

namespace ramify {

struct IvfIndex {
    std::int64_t nlist = 0, dim = 0;
    Codes centroids;                       // (nlist)
    const std::int64_t* indptr = nullptr;  // (nlist + 1) vectors of each list
    const std::int32_t* ids = nullptr;     // (n) id of each vector
    const float* vectors = nullptr;        // (n, dim), or null
    Codes codes;                           // (n)
};

struct IvfOptions {
    std::int64_t nprobe, k;
    bool ordered;  // best first and equal ones by id; else in any order
};

// Ids and inner products (rows, k) of the best vectors for each query (rows, dim), padded with -1 and -inf. The result
// of a query does not depend on the other queries. Without vectors the products are those of the codes: off by about 1
// %, and a few of the last ids differ.
void search_ivf(const IvfIndex& index, const float* queries, std::int64_t rows, const IvfOptions& options, int threads,
                std::int32_t* ids, float* scores);

}  // namespace ramify
