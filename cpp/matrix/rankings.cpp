#include "matrix/rankings.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

void list_topk(const std::int32_t* ids, const float* scores, std::int64_t rows, std::int64_t width, std::int64_t k,
               int threads, std::int32_t* best_ids, float* best_scores) {
    constexpr std::int64_t block_size = 64;
    parallel_for((rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items;
        for (std::int64_t row = b * block_size; row < std::min(rows, (b + 1) * block_size); ++row) {
            items.clear();
            for (std::int64_t j = row * width; j < (row + 1) * width; ++j)
                if (ids[j] >= 0) items.push_back({scores[j], ids[j]});
            write_topk(items, k, best_ids + row * k, best_scores + row * k);
        }
    });
}

void blend_rankings(const std::int32_t* ids, const float* scores, std::int64_t n_rankings, std::int64_t rows,
                    std::int64_t width, std::int64_t k, int threads, std::int32_t* best_ids, float* best_scores) {
    constexpr std::int64_t block_size = 256;
    parallel_for((rows + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
        std::vector<Scored> items, sums;
        for (std::int64_t row = b * block_size; row < std::min(rows, (b + 1) * block_size); ++row) {
            items.clear();
            sums.clear();
            for (std::int64_t r = 0; r < n_rankings; ++r)
                for (std::int64_t j = 0; j < width; ++j) {
                    const std::int64_t at = (r * rows + row) * width + j;
                    if (ids[at] >= 0) items.push_back({scores[at], ids[at]});
                }
            std::stable_sort(items.begin(), items.end(), [](const Scored& x, const Scored& y) { return x.id < y.id; });
            for (std::size_t i = 0; i < items.size();) {
                double sum = 0;  // relative to the first score, so that it neither overflows nor underflows
                std::size_t j = i;
                for (; j < items.size() && items[j].id == items[i].id; ++j)
                    sum += std::exp(static_cast<double>(items[j].score) - items[i].score);
                sums.push_back({static_cast<float>(items[i].score + std::log(sum / static_cast<double>(n_rankings))),
                                items[i].id});
                i = j;
            }
            write_topk(sums, k, best_ids + row * k, best_scores + row * k);
        }
    });
}

}  // namespace ramify
