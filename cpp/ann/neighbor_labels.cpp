#include "ann/neighbor_labels.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

struct Tally {
    double votes = 0;
    std::int32_t label = -1;
    std::int32_t count = 0;
    float nearest = 0;
};

struct VoteScratch {
    std::vector<std::int32_t> places;  // of each label in tallies, -1 where no sample has it
    std::vector<Tally> tallies;
    std::vector<Scored> items;
};
ScratchPool<VoteScratch> vote_scratch;

}  // namespace

void merge_neighbor_labels(const Found& labels, const Found& samples, const SampleLabels& sample_labels, float weight,
                           const std::uint8_t* allowed, std::int64_t rows, std::int64_t k, int threads,
                           std::int32_t* ids, float* scores) {
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
                const bool is_allowed = allowed == nullptr || allowed[label] != 0;
                if (sum >= 0 && is_allowed) items.push_back({weight * (sum / largest), label});
                sum = -1.0f;
            }
            write_topk(items, k, ids + row * k, scores + row * k);
        }
    });
}

void vote_neighbor_labels(const Found& samples, const SampleLabels& sample_labels, float power, float least,
                          const float* penalties, const std::uint8_t* allowed, std::int64_t rows, std::int64_t k,
                          int threads, const Votes& out) {
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const ScratchPool<VoteScratch>::Lease lease(vote_scratch);
        VoteScratch& s = *lease;
        if (static_cast<std::int64_t>(s.places.size()) < sample_labels.n_labels)
            s.places.resize(static_cast<std::size_t>(sample_labels.n_labels), -1);
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            s.tallies.clear();
            s.items.clear();
            double total = 0;
            for (std::int64_t i = row * samples.width; i < (row + 1) * samples.width; ++i) {
                const std::int32_t sample = samples.ids[i];
                const float similarity = samples.similarities[i];
                if (sample < 0 || !(similarity > 0)) continue;
                const double weight = sample_labels.weights == nullptr ? 1.0 : sample_labels.weights[sample];
                const double vote = weight * std::pow(static_cast<double>(similarity), static_cast<double>(power));
                total += vote;
                for (std::int64_t p = sample_labels.indptr[sample]; p < sample_labels.indptr[sample + 1]; ++p) {
                    const std::int32_t label = sample_labels.labels[p];
                    if (allowed != nullptr && allowed[label] == 0) continue;
                    std::int32_t& place = s.places[static_cast<std::size_t>(label)];
                    if (place < 0) {
                        place = static_cast<std::int32_t>(s.tallies.size());
                        s.tallies.push_back({0, label, 0, 0});
                    }
                    Tally& tally = s.tallies[static_cast<std::size_t>(place)];
                    tally.votes += vote;
                    tally.count += 1;
                    tally.nearest = std::max(tally.nearest, similarity);
                }
            }
            for (const Tally& tally : s.tallies) {
                const auto fraction = static_cast<float>(tally.votes / std::max(total, 1e-300));
                s.items.push_back({std::max(least, fraction) - penalties[tally.label], tally.label});
            }
            const std::int64_t n = topk(s.items.data(), static_cast<std::int64_t>(s.items.size()), k);
            write_row(s.items.data(), n, k, out.ids + row * k, out.votes + row * k);
            for (std::int64_t j = 0; j < k; ++j) {
                const Tally none{};
                const Tally& tally =
                    j < n ? s.tallies[static_cast<std::size_t>(s.places[static_cast<std::size_t>(s.items[j].id)])]
                          : none;
                out.counts[row * k + j] = static_cast<float>(tally.count);
                out.nearest[row * k + j] = tally.nearest;
            }
            for (const Tally& tally : s.tallies) s.places[static_cast<std::size_t>(tally.label)] = -1;
        }
    });
}

}  // namespace ramify
