// Vectors in lists around middles, and a search for those with the largest inner products with a query.
//
// A search reads the lists whose middles are nearest. It compares codes, a quarter of the memory of vectors, and computes only
// what is best by them with the vectors themselves, where those were kept.
#pragma once

#include <cstdint>

namespace ramify {

// Bytes of a vector's code.
inline std::int64_t code_width(std::int64_t width) { return (width + 31) / 32 * 32; }

// Vectors in steps of their own.
struct Codes {
    const std::int8_t* numbers = nullptr;  // (n, code_width(width)) -127 ... 127; zeros behind the last
    const float* steps = nullptr;          // (n) length of a step
};

struct VectorLists {
    std::int64_t n_lists = 0, width = 0;
    Codes middles;                        // (n_lists)
    const std::int64_t* begin = nullptr;  // (n_lists + 1) vectors of each list
    const std::int32_t* names = nullptr;  // (n) what a search answers with
    const float* vectors = nullptr;       // (n, width), or none
    Codes codes;                          // (n)
};

// Vectors (n, width) with length 1; one of zeros stays as it is.
void unit_vectors(const float* vectors, std::int64_t n, std::int64_t width, float* out, int threads);

// Codes and steps of vectors (n, width).
void encode_vectors(const float* vectors, std::int64_t n, std::int64_t width, std::int8_t* codes, float* steps, int threads);

// Names and inner products (rows, k) of the best vectors in the `n_read` nearest lists; -1 and -inf where they have fewer.
// Best first and equal ones by name if ordered, else as they come. What is found for a query does not depend on the queries
// beside it. Without vectors it is left at the codes: products are off by a hundredth or so, and some of the last are others.
void search_lists(const VectorLists& lists, const float* queries, std::int64_t rows, std::int64_t n_read, std::int64_t k, bool ordered,
                  int threads, std::int32_t* ids, float* scores);

}  // namespace ramify
