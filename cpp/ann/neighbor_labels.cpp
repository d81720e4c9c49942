#include "ann/neighbor_labels.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 16;

float nearness(float similarity) { return (1.0f + similarity) / 2.0f; }

// Sum for each label, -1 where no sample has it. Kept between calls, since it has the size of all labels.
ScratchPool<std::vector<float>> label_sums;

}  // namespace

void merge_neighbor_labels(const Found& labels, const Found& samples, const SampleLabels& sample_labels, float weight,
                           std::int64_t rows, std::int64_t k, int threads, std::int32_t* ids, float* scores) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<std::vector<float>>::Lease lease(label_sums);
        std::vector<float>& sums = *lease;
        if (static_cast<std::int64_t>(sums.size()) < sample_labels.n_labels)
            sums.resize(static_cast<std::size_t>(sample_labels.n_labels), -1.0f);
        std::vector<Scored> items;
        std::vector<std::int32_t> touched;
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            touched.clear();
            items.clear();
            float largest = 1e-30f;
            for (std::int64_t i = row * samples.width; i < (row + 1) * samples.width; ++i) {
                const std::int32_t sample = samples.ids[i];
                if (sample < 0) continue;
                for (std::int64_t p = sample_labels.indptr[sample]; p < sample_labels.indptr[sample + 1]; ++p) {
                    float& sum = sums[static_cast<std::size_t>(sample_labels.labels[p])];
                    if (sum < 0) {
                        sum = 0;
                        touched.push_back(sample_labels.labels[p]);
                    }
                    sum += std::max(0.0f, nearness(samples.similarities[i]));
                    largest = std::max(largest, sum);
                }
            }
            for (std::int64_t i = row * labels.width; i < (row + 1) * labels.width; ++i) {
                const std::int32_t label = labels.ids[i];
                if (label < 0) continue;
                float& sum = sums[static_cast<std::size_t>(label)];
                const float own = (1.0f - weight) * nearness(labels.similarities[i]);
                items.push_back({own + weight * (std::max(0.0f, sum) / largest), label});
                sum = -1.0f;
            }
            for (const std::int32_t label : touched) {
                float& sum = sums[static_cast<std::size_t>(label)];
                if (sum >= 0) items.push_back({weight * (sum / largest), label});
                sum = -1.0f;
            }
            write_topk(items, k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
