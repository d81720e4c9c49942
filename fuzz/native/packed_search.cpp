// Beam search over a weight table of arbitrary bytes: an answer or DamagedTable. In a batch, every row gets the answer
// that it gets alone, or the table is refused.
#include <cmath>
#include <optional>

#include "input.h"
#include "linear/beam_batch.h"

using namespace ramify;

namespace {

// Arrays of a level, of arbitrary bytes.
struct Weights {
    std::vector<std::uint32_t> starts;
    std::vector<std::uint8_t> table;
    std::vector<float> bias, dense;

    Weights(Input& input, std::int64_t n_features, std::int64_t n_nodes, std::int64_t n_dense) {
        const std::int64_t size = input.between(0, 600);
        starts = input.array<std::uint32_t>(static_cast<std::size_t>(n_features) + 1);
        for (auto& start : starts)
            if (start % 8 != 0) start %= static_cast<std::uint32_t>(size / 4 + 2);
        if (input.take<std::uint8_t>() % 4 != 0) std::sort(starts.begin(), starts.end());
        table = input.array<std::uint8_t>(static_cast<std::size_t>(size + table_padding));
        bias.assign(static_cast<std::size_t>(n_nodes), 0.25f);
        for (std::int64_t i = 0; i < n_nodes * n_dense; ++i) dense.push_back(static_cast<float>(i % 7) - 3.0f);
    }
};

BeamLevel make_level(Input& input, const std::vector<std::int64_t>& children, std::int64_t n_features,
                     std::int64_t n_dense, const Weights& arrays) {
    BeamLevel level;
    level.n_parents = static_cast<std::int64_t>(children.size()) - 1;
    level.n_nodes = children.back();
    level.children = children.data();
    make_chunks(level.children, level.n_parents, level.first_chunk, level.chunks);
    level.weights = {n_features,
                     arrays.starts.data(),
                     arrays.table.data(),
                     static_cast<std::int64_t>(arrays.table.size()),
                     0.01f,
                     static_cast<int>(input.between(min_mantissa_bits, max_mantissa_bits)),
                     level.n_nodes,
                     static_cast<std::int64_t>(level.chunks.size()) - 1};
    level.bias = arrays.bias.data();
    level.dense = arrays.dense.data();
    level.n_dense = n_dense;
    level.transform = static_cast<Transform>(input.between(0, 2));
    level.power = static_cast<float>(input.between(1, 5));
    level.max_bias = 0.25f;
    level.max_weight = 1e4f;
    return level;
}

// Rows that have all features, or those of a bitmap, which some rows turn.
template <class Index>
struct Queries {
    std::int64_t n_features, n_dense;
    std::vector<Index> indptr{0}, indices;
    std::vector<float> values, dense;

    Queries(Input& input, std::int64_t n, std::int64_t features, std::int64_t dense_features)
        : n_features(features), n_dense(dense_features) {
        const auto chosen = input.take<std::uint64_t>();
        const std::int64_t turn = input.between(0, 8);
        for (std::int64_t row = 0; row < n; ++row) {
            for (std::int64_t f = 0; f < n_features; ++f)
                if (chosen == 0 || (chosen >> ((f + turn * row) % 64) & 1) != 0)
                    indices.push_back(static_cast<Index>(f)), values.push_back(1.0f + static_cast<float>(row % 3));
            indptr.push_back(static_cast<Index>(indices.size()));
            for (std::int64_t i = 0; i < n_dense; ++i) dense.push_back(static_cast<float>((row + i) % 5) - 2.0f);
        }
    }
    // n rows from the row `first` on; a view of a matrix begins with 0.
    Queries rows(std::int64_t first, std::int64_t n) const {
        Queries part = *this;
        const auto begin = indptr.begin() + first;
        part.indptr.assign(begin, begin + n + 1);
        for (Index& i : part.indptr) i -= *begin;
        part.indices.assign(indices.begin() + *begin, indices.begin() + *(begin + n));
        part.values.assign(values.begin() + *begin, values.begin() + *(begin + n));
        part.dense.assign(dense.begin() + first * n_dense, dense.begin() + (first + n) * n_dense);
        return part;
    }
};

struct Found {
    std::vector<std::int32_t> ids;
    std::vector<float> scores;
};

template <class Index>
std::optional<Found> search(const BeamModel& model, const Queries<Index>& queries, const BeamOptions& options) {
    const auto n = static_cast<std::int64_t>(queries.indptr.size()) - 1;
    Found found{std::vector<std::int32_t>(static_cast<std::size_t>(n * options.k)),
                std::vector<float>(static_cast<std::size_t>(n * options.k))};
    const QueryRows<Index> rows{
        {n, queries.n_features, queries.indptr.data(), queries.indices.data(), queries.values.data()},
        queries.dense.data()};
    BatchWeights weights(model.levels.size());
    try {
        beam_search(model, rows, options, 1, weights, found.ids.data(), found.scores.data());
    } catch (const DamagedTable&) {
        return std::nullopt;
    }
    return found;
}

template <class Index>
void search_and_compare(Input& input, const BeamModel& model, const BeamOptions& options, std::int64_t n,
                        std::int64_t n_features, std::int64_t n_dense) {
    const Queries<Index> queries(input, n, n_features, n_dense);
    const auto found = search(model, queries, options);
    if (!found || n < min_batch_rows) return;
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
        const auto alone = search(model, queries.rows(row, 1), options);
        require(alone.has_value());
        for (std::int64_t j = 0; j < options.k; ++j) {
            const auto at = static_cast<std::size_t>(row * options.k + j), i = static_cast<std::size_t>(j);
            require(found->ids[at] == alone->ids[i] && same(found->scores[at], alone->scores[i]));
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_features = input.between(1, 40), n_clusters = input.between(0, 12),
                       n_dense = std::max<std::int64_t>(0, input.between(0, 8) - 5);
    const bool is_batch = input.take<std::uint8_t>() % 16 == 15;  // which is slow; short inputs end in zeros
    const std::int64_t n_rows = is_batch ? 257 : input.between(1, 3);
    const std::vector<std::int64_t> root{0, n_clusters};
    std::vector<std::int64_t> children{0};
    for (std::int64_t c = 0; c < n_clusters; ++c) {
        const std::uint8_t width = input.take<std::uint8_t>();
        children.push_back(children.back() + (width == 255 ? 700 : width % 40));
    }
    const Weights upper(input, n_features, n_clusters, n_dense), lower(input, n_features, children.back(), n_dense);
    BeamModel model;
    model.levels.push_back(make_level(input, root, n_features, n_dense, upper));
    model.levels.push_back(make_level(input, children, n_features, n_dense, lower));
    model.n_labels = children.back();
    const auto kind = input.take<std::uint8_t>() % 4;
    std::vector<std::int32_t> labels;
    if (kind == 1 && model.n_labels > 0) {  // every label has two leaves, but perhaps the last
        for (std::int64_t leaf = 0; leaf < children.back(); ++leaf)
            labels.push_back(static_cast<std::int32_t>(leaf / 2));
        model.labels = labels.data();
        model.repeats = true;
        model.n_labels = (model.n_labels + 1) / 2;
    }
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(n_clusters + children.back()));
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
    BeamOptions options{2, input.between(1, 15), input.between(1, 20)};
    if (kind == 2) options.mask = mask.data();
    if (kind == 3) options.max_gap = 0.5f;
    if (input.take<std::uint8_t>() % 8 == 7)
        search_and_compare<std::int64_t>(input, model, options, n_rows, n_features, n_dense);
    else search_and_compare<std::int32_t>(input, model, options, n_rows, n_features, n_dense);
    return 0;
}
