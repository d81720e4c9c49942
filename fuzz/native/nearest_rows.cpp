// Exact search through an inverted index with values of any kind, products of selected rows, and the votes of labels.
#include "matrix/nearest_rows.h"

#include "ann/neighbor_labels.h"
#include "input.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_columns = input.between(1, 12), rows = input.between(1, 20), k = input.between(1, 30);
    const std::int64_t n = input.take<std::uint8_t>() % 4 == 0 ? input.between(60, 300) : input.between(1, 40);
    auto indptr = input.pointers<std::int64_t>(n_columns, 20);
    const auto wide = input.columns(indptr, n);
    const std::vector<std::int32_t> samples(wide.begin(), wide.end());
    const auto values = input.numbers(static_cast<std::int64_t>(samples.size()));
    const PostingsView postings{n, n_columns, indptr.data(), samples.data(), values.data()};
    const SparseRows queries = input.rows(rows, n_columns, 8);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k));
    std::vector<float> products(ids.size());
    nearest_rows(postings, queries.view(), k, 1, ids.data(), products.data());
    require_ranking(ids.data(), products.data(), rows, k, n);
    for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<float> sums(static_cast<std::size_t>(n), 0.0f);
        queries.for_row(row, [&](std::size_t column, float value) {
            for (auto p = static_cast<std::size_t>(indptr[column]); p < static_cast<std::size_t>(indptr[column + 1]);
                 ++p)
                sums[static_cast<std::size_t>(samples[p])] += value * values[p];
        });
        const auto n_above = std::count_if(sums.begin(), sums.end(), [](float sum) { return sum > 0; });
        std::int64_t n_found = 0;
        for (std::int64_t j = 0; j < k; ++j) {
            const auto at = static_cast<std::size_t>(row * k + j);
            if (ids[at] < 0) continue;
            ++n_found;
            require(products[at] == sums[static_cast<std::size_t>(ids[at])] && products[at] > 0);
            if (j > 0 && products[at] == products[at - 1]) require(ids[at] > ids[at - 1]);
        }
        require(n_found == std::min<std::int64_t>(k, n_above));
        for (const float sum : sums)
            if (n_found == k && sum > products[static_cast<std::size_t>((row + 1) * k - 1)])
                require(std::find(products.begin() + row * k, products.begin() + (row + 1) * k, sum) !=
                        products.begin() + (row + 1) * k);
    }

    const SparseRows others = input.rows(n, n_columns, 5);
    std::vector<float> selected(ids.size());
    selected_products(queries.view(), others.view(), ids.data(), k, 1, selected.data());
    for (std::size_t at = 0; at < ids.size(); ++at) {
        float sum = ids[at] < 0 ? -std::numeric_limits<float>::infinity() : 0.0f;
        if (ids[at] >= 0) {
            const auto query = queries.dense(static_cast<std::int64_t>(at) / k);
            others.for_row(ids[at], [&](std::size_t column, float value) { sum += query[column] * value; });
        }
        require(same(selected[at], sum));
    }

    const std::int64_t n_labels = input.between(1, 60), width = input.between(1, 40);
    auto label_indptr = input.pointers<std::int64_t>(n, 4);
    const auto columns = input.columns(label_indptr, n_labels);
    const std::vector<std::int32_t> labels(columns.begin(), columns.end());
    const bool is_weighted = input.take<std::uint8_t>() % 2 == 0;
    const auto weights = input.numbers(is_weighted ? n : 0);
    const auto allowed = input.array<std::uint8_t>(static_cast<std::size_t>(n_labels));
    const std::vector<float> penalties(static_cast<std::size_t>(n_labels), 1e-4f);
    std::vector<std::int32_t> voted(static_cast<std::size_t>(rows * width));
    std::vector<float> votes(voted.size()), counts(voted.size()), nearest(voted.size());
    vote_neighbor_labels({k, ids.data(), products.data()},
                         {label_indptr.data(), labels.data(), n_labels, is_weighted ? weights.data() : nullptr},
                         input.number(), 1e-3f, penalties.data(),
                         input.take<std::uint8_t>() % 2 == 0 ? allowed.data() : nullptr, rows, width, 1,
                         {voted.data(), votes.data(), counts.data(), nearest.data()});
    require_ranking(voted.data(), votes.data(), rows, width, n_labels);
    for (std::size_t at = 0; at < voted.size(); ++at)
        require(voted[at] < 0 ? counts[at] == 0 : counts[at] >= 1 && counts[at] <= static_cast<float>(k));
    return 0;
}
