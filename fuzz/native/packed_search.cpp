// Beam search over a weight table of arbitrary bytes: an answer or DamagedTable, below and above 256 rows.
#include <cmath>

#include "input.h"
#include "linear/beam_batch.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_features = input.between(1, 40), n_clusters = input.between(1, 12);
    const bool is_batch = input.take<std::uint8_t>() % 16 == 15;  // which is slow; short inputs end in zeros
    const std::int64_t n_rows = is_batch ? 257 : input.between(1, 3);
    std::vector<std::int64_t> root{0, n_clusters}, children{0};
    for (std::int64_t c = 0; c < n_clusters; ++c) {
        const std::uint8_t width = input.take<std::uint8_t>();
        children.push_back(children.back() + (width == 255 ? 700 : width % 40));
    }
    BeamModel model;
    std::vector<std::vector<std::uint32_t>> starts;
    std::vector<std::vector<std::uint8_t>> tables;
    std::vector<std::vector<float>> biases;
    for (const auto* pointers : {&root, &children}) {
        const std::int64_t table_size = input.between(0, 600);
        starts.push_back(input.array<std::uint32_t>(static_cast<std::size_t>(n_features) + 1));
        for (auto& start : starts.back())
            if (start % 8 != 0) start %= static_cast<std::uint32_t>(table_size / 4 + 2);
        if (input.take<std::uint8_t>() % 4 != 0) std::sort(starts.back().begin(), starts.back().end());
        tables.push_back(input.array<std::uint8_t>(static_cast<std::size_t>(table_size + table_padding)));
        biases.emplace_back(static_cast<std::size_t>(pointers->back()), 0.25f);
    }
    std::int64_t t = 0;
    for (const auto* pointers : {&root, &children}) {
        BeamLevel level;
        level.n_parents = static_cast<std::int64_t>(pointers->size()) - 1;
        level.n_nodes = pointers->back();
        level.children = pointers->data();
        make_chunks(level.children, level.n_parents, level.first_chunk, level.chunks);
        level.weights = {n_features,
                         starts[static_cast<std::size_t>(t)].data(),
                         tables[static_cast<std::size_t>(t)].data(),
                         static_cast<std::int64_t>(tables[static_cast<std::size_t>(t)].size()),
                         0.01f,
                         static_cast<int>(input.between(min_mantissa_bits, max_mantissa_bits)),
                         level.n_nodes,
                         static_cast<std::int64_t>(level.chunks.size()) - 1};
        level.bias = biases[static_cast<std::size_t>(t)].data();
        level.transform = static_cast<Transform>(input.between(0, 2));
        level.power = static_cast<float>(input.between(1, 5));
        level.max_bias = 0.25f;
        level.max_weight = 1e4f;
        model.levels.push_back(std::move(level));
        ++t;
    }
    model.n_labels = children.back();
    // All rows have the same features: every one of them, or some.
    const std::uint64_t chosen = input.take<std::uint64_t>();
    std::vector<std::int32_t> indptr{0}, indices;
    std::vector<float> values;
    for (std::int64_t row = 0; row < n_rows; ++row) {
        for (std::int32_t f = 0; f < n_features; ++f)
            if (chosen == 0 || (chosen >> f & 1) != 0) indices.push_back(f), values.push_back(1.0f);
        indptr.push_back(static_cast<std::int32_t>(indices.size()));
    }
    const std::int64_t k = input.between(1, 20);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n_rows * k));
    std::vector<float> scores(ids.size());
    const QueryRows<std::int32_t> queries{{n_rows, n_features, indptr.data(), indices.data(), values.data()}, nullptr};
    try {
        BatchWeights weights(model.levels.size());
        beam_search(model, queries, {2, input.between(1, 15), k}, 1, weights, ids.data(), scores.data());
    } catch (const DamagedTable&) {
    }
    return 0;
}
