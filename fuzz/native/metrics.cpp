// Metrics and selection over rankings of any content: sums that agree with the hits, and rankings in order.
#include "matrix/metrics.h"
#include "input.h"
#include "matrix/csr_topk.h"
#include "matrix/rankings.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t rows = input.between(1, 8), width = input.between(1, 20), n_labels = input.between(1, 300);
    auto indptr = input.pointers<std::int32_t>(rows, input.take<std::uint8_t>() % 4 == 0 ? 120 : 8);
    const auto indices = input.columns(indptr, n_labels);
    const auto values = input.numbers(static_cast<std::int64_t>(indices.size()));
    const CsrView<std::int32_t> truth{rows, n_labels, indptr.data(), indices.data(), values.data()};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * width));
    for (auto& id : ids) {
        const auto byte = input.take<std::uint8_t>();
        id = byte == 255 ? -1 : byte == 254 ? input.take<std::int32_t>() : static_cast<std::int32_t>(byte % n_labels);
    }
    const auto scores = input.numbers(rows * width);

    std::vector<std::uint8_t> hit(ids.size());
    const RankingView ranking{ids.data(), rows, width};
    ranking_hits(ranking, truth, 1, hit.data());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t j = 0; j < width; ++j) {
            const auto i = static_cast<std::size_t>(row * width + j);
            const bool expected =
                std::binary_search(indices.begin() + indptr[static_cast<std::size_t>(row)],
                                   indices.begin() + indptr[static_cast<std::size_t>(row) + 1], ids[i]);
            require(hit[i] == expected);
        }

    const std::int64_t n_groups = input.between(1, 5);
    std::vector<std::int64_t> cutoffs;
    for (std::int64_t n = input.between(1, 4), last = 0; n > 0; --n)
        cutoffs.push_back(last += input.take<std::uint8_t>() == 255 ? std::int64_t{1} << 60 : input.between(1, 30));
    std::vector<double> weights;
    std::vector<std::uint8_t> groups;
    for (std::int64_t i = 0; i < n_labels; ++i) {
        weights.push_back(input.number());
        groups.push_back(static_cast<std::uint8_t>(input.take<std::uint8_t>() % n_groups));
    }
    // A ranking of labels that exist, each once in a row, is what `Ranking` guarantees.
    std::vector<std::int32_t> valid = ids;
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t j = 0; j < width; ++j) {
            const auto begin = valid.begin() + row * width;
            std::int32_t& id = begin[j];
            if (id < 0 || id >= n_labels || std::find(begin, begin + j, id) != begin + j) id = -1;
        }
    const RankingSums sums =
        ranking_sums({valid.data(), rows, width}, truth, cutoffs.data(), static_cast<std::int64_t>(cutoffs.size()),
                     weights.data(), groups.data(), n_groups, 1);
    double hits = 0, expected = 0;
    for (std::int64_t group = 0; group < n_groups; ++group)
        hits += sums.hits[static_cast<std::size_t>(group) * cutoffs.size()];
    ranking_hits({valid.data(), rows, width}, truth, 1, hit.data());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t j = 0; j < std::min(width, cutoffs[0]); ++j)
            expected += hit[static_cast<std::size_t>(row * width + j)];
    require(hits == expected);

    const std::int64_t k = input.between(1, 30);
    std::vector<std::int32_t> best(static_cast<std::size_t>(rows * k));
    std::vector<float> best_scores(best.size());
    csr_topk(truth, k, 1, best.data(), best_scores.data());
    require_ranking(best.data(), best_scores.data(), rows, k, n_labels);
    largest_entries(truth, k, 1);
    list_topk(valid.data(), scores.data(), rows, width, k, 1, best.data(), best_scores.data());
    require_ranking(best.data(), best_scores.data(), rows, k, n_labels);
    if (rows % 2 == 0) {
        blend_rankings(valid.data(), scores.data(), 2, rows / 2, width, k, 1, best.data(), best_scores.data());
        require_ranking(best.data(), best_scores.data(), rows / 2, k, n_labels);
    }
    return 0;
}
