// Boosted trees with any features, thresholds and masks: sums of leaves that do not depend on the other rows.
#include "linear/boosted.h"

#include "input.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_trees = input.between(0, 6), n_features = input.between(1, 8), n = input.between(0, 70);
    const auto indptr = input.pointers<std::int64_t>(n_trees, 31);
    const auto n_splits = static_cast<std::size_t>(indptr.back());
    std::vector<std::int32_t> features;
    for (std::size_t i = 0; i < n_splits; ++i)
        features.push_back(static_cast<std::int32_t>(input.take<std::uint8_t>() % n_features));
    const auto thresholds = input.numbers(indptr.back());
    const auto masks = input.array<std::uint32_t>(n_splits);
    const auto leaves = input.numbers(n_trees * boosted_leaves), columns = input.numbers(n_features * n);
    const BoostedView trees{n_trees, indptr.data(), features.data(), thresholds.data(), masks.data(), leaves.data()};
    std::vector<float> scores(static_cast<std::size_t>(n));
    score_boosted(trees, columns.data(), n, n_features, 1, scores.data());
    for (std::int64_t row = 0; row < n; ++row) {
        float sum = 0;
        for (std::int64_t tree = 0; tree < n_trees; ++tree) {
            std::uint32_t reachable = ~0u;
            for (auto s = static_cast<std::size_t>(indptr[static_cast<std::size_t>(tree)]);
                 s < static_cast<std::size_t>(indptr[static_cast<std::size_t>(tree) + 1]); ++s)
                if (columns[static_cast<std::size_t>(features[s] * n + row)] > thresholds[s]) reachable &= masks[s];
            std::int64_t leaf = 0;
            while (leaf < boosted_leaves - 1 && (reachable >> leaf & 1u) == 0) ++leaf;
            sum += leaves[static_cast<std::size_t>(tree * boosted_leaves + leaf)];
        }
        require(same(scores[static_cast<std::size_t>(row)], sum));
    }
    return 0;
}
