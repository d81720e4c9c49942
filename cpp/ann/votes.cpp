#include "ann/votes.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 16;

float nearness(float similarity) { return (1.0f + similarity) / 2.0f; }

}  // namespace

void merge_votes(const Found& labels, const Found& points, const PointLabels& of_points, float share, std::int64_t rows, std::int64_t k,
                 int threads, std::int32_t* ids, float* scores) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        // Below 0: nobody voted. Kept between calls, since it has the size of all labels.
        thread_local std::vector<float> votes;
        if (static_cast<std::int64_t>(votes.size()) < of_points.n_labels) votes.resize(static_cast<std::size_t>(of_points.n_labels), -1.0f);
        std::vector<Scored> items;
        std::vector<std::int32_t> named;
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            named.clear();
            items.clear();
            float most = 1e-30f;
            for (std::int64_t i = row * points.width; i < (row + 1) * points.width; ++i) {
                if (points.ids[i] < 0) continue;
                for (std::int64_t p = of_points.begin[points.ids[i]]; p < of_points.begin[points.ids[i] + 1]; ++p) {
                    float& sum = votes[static_cast<std::size_t>(of_points.labels[p])];
                    if (sum < 0) {
                        sum = 0;
                        named.push_back(of_points.labels[p]);
                    }
                    sum += std::max(0.0f, nearness(points.similarities[i]));
                    most = std::max(most, sum);
                }
            }
            for (std::int64_t i = row * labels.width; i < (row + 1) * labels.width; ++i) {
                if (labels.ids[i] < 0) continue;
                float& sum = votes[static_cast<std::size_t>(labels.ids[i])];
                items.push_back({(1.0f - share) * nearness(labels.similarities[i]) + share * (std::max(0.0f, sum) / most), labels.ids[i]});
                sum = -1.0f;  // what is left is not near
            }
            for (const std::int32_t label : named) {
                float& sum = votes[static_cast<std::size_t>(label)];
                if (sum >= 0) items.push_back({share * (sum / most), label});
                sum = -1.0f;
            }
            const std::int64_t n = topk(items.data(), static_cast<std::int64_t>(items.size()), k);
            write_row(items.data(), n, k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
