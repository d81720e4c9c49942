// IVF search over codes, centroids and vectors of any value, and what is made of its results.
#include "ann/ivf.h"
#include "ann/neighbor_labels.h"
#include "input.h"
#include "neural/rank_blended.h"

using namespace ramify;

namespace {

Codes codes_of(Input& input, std::int64_t n, std::int64_t dim, std::vector<std::int8_t>& codes,
               std::vector<float>& scales) {
    codes = input.array<std::int8_t>(static_cast<std::size_t>(n * code_size(dim)));
    if (input.take<std::uint8_t>() % 2 == 0)  // as `quantize` makes them; a model directory may have others
        for (std::size_t i = 0; i < codes.size(); ++i)
            if (static_cast<std::int64_t>(i) % code_size(dim) >= dim) codes[i] = 0;
    scales = input.numbers(n);
    return {codes.data(), scales.data()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t nlist = input.between(1, 9), dim = input.between(1, 40), rows = input.between(1, 10);
    const bool is_wide = input.take<std::uint8_t>() % 16 == 0;
    auto indptr = input.pointers<std::int64_t>(nlist, is_wide ? 255 : 12);
    const std::int64_t n = indptr.back();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(ids.size() - 1 - i);
    std::vector<std::int8_t> centroid_codes, codes;
    std::vector<float> centroid_scales, scales;
    const auto queries = input.numbers(rows * dim);
    IvfIndex index;
    index.nlist = nlist, index.dim = dim, index.indptr = indptr.data(), index.ids = ids.data();
    index.centroids = codes_of(input, nlist, dim, centroid_codes, centroid_scales);
    index.codes = codes_of(input, n, dim, codes, scales);
    const bool has_vectors = input.take<std::uint8_t>() % 2 == 0;
    const auto vectors = input.numbers(has_vectors ? n * dim : 0);
    if (has_vectors && n > 0) index.vectors = vectors.data();
    const std::int64_t k = input.between(1, 40);
    const IvfOptions options{input.between(1, 12), k, input.take<std::uint8_t>() % 2 == 0};
    std::vector<std::int32_t> found(static_cast<std::size_t>(rows * k)), one_id(static_cast<std::size_t>(k));
    std::vector<float> products(found.size()), one_product(one_id.size());
    search_ivf(index, queries.data(), rows, options, 1, found.data(), products.data());
    require_ranking(found.data(), products.data(), rows, k, n, options.ordered);
    for (std::int64_t row = 0; row < rows; ++row) {
        search_ivf(index, queries.data() + row * dim, 1, options, 1, one_id.data(), one_product.data());
        for (std::int64_t j = 0; j < k; ++j)
            require(one_id[static_cast<std::size_t>(j)] == found[static_cast<std::size_t>(row * k + j)] &&
                    same(one_product[static_cast<std::size_t>(j)], products[static_cast<std::size_t>(row * k + j)]));
    }

    std::vector<std::int8_t> quantized(static_cast<std::size_t>(rows * code_size(dim)));
    std::vector<float> steps(static_cast<std::size_t>(rows));
    quantize(queries.data(), rows, dim, quantized.data(), steps.data(), 1);

    // The results as labels and as samples that have labels.
    if (n == 0) return 0;
    auto label_indptr = input.pointers<std::int64_t>(n, 4);
    const std::int64_t n_labels = std::max<std::int64_t>(n, 30);
    const auto columns = input.columns(label_indptr, n_labels);
    const std::vector<std::int32_t> labels(columns.begin(), columns.end());
    const Found near{k, found.data(), products.data()};
    const std::int64_t width = input.between(1, 50);
    std::vector<std::int32_t> merged(static_cast<std::size_t>(rows * width));
    std::vector<float> merged_scores(merged.size());
    merge_neighbor_labels(near, near, {label_indptr.data(), labels.data(), n_labels}, input.number(), nullptr, rows,
                          width, 1, merged.data(), merged_scores.data());
    require_ranking(merged.data(), merged_scores.data(), rows, width, n_labels);

    const auto weights = input.numbers(std::min<std::int64_t>(n_labels, 30) * dim);
    std::vector<float> table(static_cast<std::size_t>(n_labels * dim), 0.5f), bias(static_cast<std::size_t>(n_labels));
    std::copy(weights.begin(), weights.end(), table.begin());
    std::vector<std::int32_t> best(static_cast<std::size_t>(rows * k));
    std::vector<float> best_scores(best.size());
    rank_blended({table.data(), bias.data(), dim}, input.number(), input.between(0, 1) == 1,
                 {rows, width, merged.data(), merged_scores.data()}, queries.data(), k, 1, best.data(),
                 best_scores.data());
    require_ranking(best.data(), best_scores.data(), rows, k, n_labels);
    return 0;
}
