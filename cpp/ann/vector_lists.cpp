#include "ann/vector_lists.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dots.h"
#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 8;
constexpr std::int64_t vectors_at_once = 256;  // whose products stand in cache between two loops
constexpr std::int64_t vectors_ahead = 4;      // that are asked for before they are needed

// Rounding to steps moves products a little: so many more than k are looked at again.
std::int64_t n_candidates(std::int64_t k) { return k + k / 8 + 16; }

float largest_of(const float* vector, std::int64_t width) {
    float largest = 0;
    for (std::int64_t j = 0; j < width; ++j) largest = std::max(largest, std::abs(vector[j]));
    return largest;
}

float encode(const float* vector, std::int64_t width, std::int8_t* code) {
    const float largest = largest_of(vector, width);
    const float step = largest / 127;
    std::fill(code, code + code_width(width), std::int8_t{0});
    // In numbers too small for a step of their own there is nothing to compare.
    for (std::int64_t j = 0; step > 0 && j < width; ++j) code[j] = static_cast<std::int8_t>(std::lrint(vector[j] / largest * 127));
    return step;
}

// Gives what a query's code says of the vectors [first, end) to take(product, number); the query's own step is left out.
template <class Take>
void compare(const std::int8_t* query, const Codes& codes, std::int64_t first, std::int64_t end, std::int64_t bytes, Take&& take) {
    std::int32_t products[vectors_at_once];
    for (; first < end; first += vectors_at_once) {
        const std::int64_t count = std::min(vectors_at_once, end - first);
        hot().dot_codes(query, codes.numbers + first * bytes, count, bytes, products);
        for (std::int64_t i = 0; i < count; ++i)
            take(static_cast<float>(products[i]) * codes.steps[first + i], static_cast<std::int32_t>(first + i));
    }
}

}  // namespace

void unit_vectors(const float* vectors, std::int64_t n, std::int64_t width, float* out, int threads) {
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i) {
            const float* vector = vectors + i * width;
            float* unit = out + i * width;
            const float largest = largest_of(vector, width), whole = largest > 0 ? largest : 1.0f;
            for (std::int64_t j = 0; j < width; ++j) unit[j] = vector[j] / whole;  // squares of small numbers would vanish
            const float length = std::sqrt(hot().dot(unit, unit, width)), divisor = length > 0 ? length : 1.0f;
            for (std::int64_t j = 0; j < width; ++j) unit[j] /= divisor;
        }
    });
}

void encode_vectors(const float* vectors, std::int64_t n, std::int64_t width, std::int8_t* codes, float* steps, int threads) {
    parallel_for((n + vectors_at_once - 1) / vectors_at_once, threads, [&](std::int64_t block, int) {
        for (std::int64_t i = block * vectors_at_once; i < std::min(n, (block + 1) * vectors_at_once); ++i)
            steps[i] = encode(vectors + i * width, width, codes + i * code_width(width));
    });
}

void search_lists(const VectorLists& lists, const float* queries, std::int64_t rows, std::int64_t n_read, std::int64_t k, bool ordered,
                  int threads, std::int32_t* ids, float* scores) {
    const std::int64_t width = lists.width, bytes = code_width(width);
    n_read = std::min(n_read, lists.n_lists);
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<Scored> nearest, best;
        std::vector<float> products;
        std::vector<std::int8_t> code(static_cast<std::size_t>(bytes));
        std::vector<std::int32_t> steps;
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            const float* query = queries + row * width;
            const float step = encode(query, width, code.data());
            nearest.clear();
            compare(code.data(), lists.middles, 0, lists.n_lists, bytes, [&](float product, std::int32_t c) { nearest.push_back({product, c}); });
            move_best(nearest.data(), lists.n_lists, n_read, steps);

            best.clear();
            for (std::int64_t c = 0; c < n_read; ++c) {
                const std::int32_t list = nearest[static_cast<std::size_t>(c)].id;
                compare(code.data(), lists.codes, lists.begin[list], lists.begin[list + 1], bytes,
                        [&](float product, std::int32_t i) { best.push_back({product, i}); });
            }
            const bool by_codes = lists.vectors == nullptr;
            std::int64_t size = move_best(best.data(), static_cast<std::int64_t>(best.size()), by_codes ? k : n_candidates(k), steps);
            products.resize(static_cast<std::size_t>(size));
            if (by_codes)
                for (std::size_t i = 0; i < products.size(); ++i) products[i] = best[i].score * step;
            else {
                const auto vector = [&](std::int64_t i) { return lists.vectors + best[static_cast<std::size_t>(i)].id * width; };
                dots(query, width, size, [&](std::int64_t i) {
                    if (i + vectors_ahead < size) fetch_ahead(vector(i + vectors_ahead), width);
                    return vector(i);
                }, products.data());
            }
            for (std::size_t i = 0; i < products.size(); ++i) best[i] = {products[i], lists.names[best[i].id]};
            size = ordered ? topk(best.data(), size, k) : move_best(best.data(), size, k, steps);
            write_row(best.data(), size, k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
