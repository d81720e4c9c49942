// Encoders with weights of any value: embeddings of texts and of bags that do not depend on the other rows.
#include <optional>

#include "input.h"
#include "neural/bag_encoder.h"
#include "neural/text_encoder.h"

using namespace ramify;

namespace {

void fuzz_transformer(Input& input) {
    const std::int64_t n_heads = input.between(1, 4), dim = n_heads * input.between(1, 20);
    const EncoderShape shape{input.between(1, 30), input.between(1, 40), dim, n_heads, input.between(1, 70), 1e-5f};
    // Weights: a few numbers again and again, so that short inputs reach everything.
    const auto pool = input.numbers(64);
    std::size_t at = input.take<std::uint8_t>();
    std::vector<std::vector<float>> kept;
    kept.reserve(64);
    const auto weights = [&](std::int64_t n) {
        std::vector<float>& table = kept.emplace_back(static_cast<std::size_t>(n));
        for (float& weight : table) weight = pool[at++ * 7 % pool.size()];
        return static_cast<const float*>(table.data());
    };
    const auto dense = [&](std::int64_t n_in, std::int64_t n_out) {
        return DenseWeights{weights(n_in * n_out), weights(n_out), n_in, n_out};
    };
    const auto norm = [&] { return NormWeights{weights(dim), weights(dim)}; };
    TextEncoder encoder(shape, weights(shape.n_words * dim), weights(shape.n_positions * dim), norm());
    for (std::int64_t n_layers = input.between(0, 2); n_layers > 0; --n_layers)
        encoder.add_layer({dense(dim, dim), dense(dim, dim), dense(dim, dim), dense(dim, dim), norm(),
                           dense(dim, shape.hidden), dense(shape.hidden, dim), norm()});
    const std::int64_t n = input.between(0, 6);
    const auto indptr = input.pointers<std::int64_t>(n, static_cast<std::uint8_t>(shape.n_positions + 2));
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < indptr.back(); ++i)
        tokens.push_back(static_cast<std::int32_t>(input.between(0, shape.n_words - 1)));
    if (input.take<std::uint8_t>() % 8 == 0 && !tokens.empty()) tokens[0] = input.take<std::int32_t>();
    const bool first = input.take<std::uint8_t>() % 2 == 0;
    std::vector<float> embeddings(static_cast<std::size_t>(n * dim)), one(static_cast<std::size_t>(dim));
    try {
        encoder.encode(tokens.data(), indptr.data(), n, first, 1, embeddings.data());
    } catch (const std::exception&) {
        return;  // a token that does not exist, a text that is too long
    }
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t alone[] = {0, indptr[static_cast<std::size_t>(i) + 1] - indptr[static_cast<std::size_t>(i)]};
        encoder.encode(tokens.data() + indptr[static_cast<std::size_t>(i)], alone, 1, first, 1, one.data());
        for (std::int64_t j = 0; j < dim; ++j)
            require(same(one[static_cast<std::size_t>(j)], embeddings[static_cast<std::size_t>(i * dim + j)]));
    }
}

void fuzz_bags(Input& input) {
    const std::int64_t n_features = input.between(1, 50), dim = input.between(1, 70), rows = input.between(1, 40);
    auto indptr = input.pointers<std::int32_t>(rows, 20);
    const auto indices = input.columns(indptr, n_features);
    const auto values = input.numbers(static_cast<std::int64_t>(indices.size()));
    const auto words = input.numbers(n_features * dim), residual = input.numbers(dim * dim), bias = input.numbers(dim);
    const BagEncoder encoder{dim, words.data(), residual.data(), bias.data()};
    std::vector<float> all(static_cast<std::size_t>(rows * dim)), one(static_cast<std::size_t>(dim)), dense(all.size());
    embed_bags(encoder, CsrView<std::int32_t>{rows, n_features, indptr.data(), indices.data(), values.data()}, 1,
               all.data());
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int32_t begin = indptr[static_cast<std::size_t>(row)];
        const std::int32_t alone[] = {0, indptr[static_cast<std::size_t>(row) + 1] - begin};
        embed_bags(encoder, CsrView<std::int32_t>{1, n_features, alone, indices.data() + begin, values.data() + begin},
                   1, one.data());
        for (std::int64_t j = 0; j < dim; ++j)
            require(same(one[static_cast<std::size_t>(j)], all[static_cast<std::size_t>(row * dim + j)]));
    }
    embed_dense(encoder, all.data(), rows, 1, dense.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    if (input.take<std::uint8_t>() % 2 == 0) fuzz_transformer(input);
    else fuzz_bags(input);
    return 0;
}
