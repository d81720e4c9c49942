#include "neural/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/isa.h"
#include "core/parallel.h"
#include "core/scratch.h"

namespace ramify {

namespace {

constexpr std::int64_t group_tokens = 384;  // go through a layer together, which reads its weights once for them
constexpr std::int64_t block_rows = 96;     // whose hidden states stay in cache

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// Packs the columns [0, n_out) of a matrix (n_in, n_out) whose entry (k, j) is at k * in_stride + j * out_stride.
void pack_panels(const float* w, std::int64_t n_in, std::int64_t n_out, std::int64_t in_stride, std::int64_t out_stride,
                 float* packed) {
    const std::int64_t panel = hot().layers.panel_width;
    for (std::int64_t first = 0; first < n_out; first += panel) {
        const std::int64_t columns = std::min(panel, n_out - first);
        for (std::int64_t k = 0; k < n_in; ++k, packed += panel) {
            for (std::int64_t j = 0; j < columns; ++j) packed[j] = w[k * in_stride + (first + j) * out_stride];
            std::fill(packed + columns, packed + panel, 0.0f);
        }
    }
}

}  // namespace

struct TextEncoder::Workspace {
    LargeBuffer<float> states, qkv, mixed, inner, scores, keys, values;
};

TextEncoder::TextEncoder(const EncoderShape& shape, const float* words, const float* positions, const NormWeights& norm)
    : shape_(shape),
      words_(words),
      positions_(positions, positions + shape.n_positions * shape.dim),
      norm_(copy(norm)) {
    if (shape.n_heads < 1 || shape.dim % shape.n_heads != 0)
        throw std::invalid_argument("dimension " + std::to_string(shape.dim) + " is not a multiple of the " +
                                    std::to_string(shape.n_heads) + " attention heads");
}

TextEncoder::Norm TextEncoder::copy(const NormWeights& norm) const {
    return {{norm.gain, norm.gain + shape_.dim}, {norm.bias, norm.bias + shape_.dim}};
}

// Several dense layers with the same input as one.
TextEncoder::Dense TextEncoder::pack(const std::vector<DenseWeights>& parts, const std::vector<float>& scales) const {
    const std::int64_t panel = hot().layers.panel_width, n_in = parts.front().n_in;
    std::int64_t n_out = 0;
    for (const DenseWeights& part : parts) n_out += part.n_out;
    std::vector<float> together(size_of(n_out * n_in));
    Dense made{Table(size_of(packed_size(n_in, n_out, panel))), Table(size_of(n_out)), n_in, n_out};
    std::int64_t row = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t numbers = parts[p].n_out * n_in;
        std::transform(parts[p].weights, parts[p].weights + numbers, together.begin() + row * n_in,
                       [&](float x) { return x * scales[p]; });
        std::transform(parts[p].bias, parts[p].bias + parts[p].n_out, made.bias.begin() + row,
                       [&](float x) { return x * scales[p]; });
        row += parts[p].n_out;
    }
    pack_panels(together.data(), n_in, n_out, 1, n_in, made.packed.data());
    return made;
}

void TextEncoder::add_layer(const LayerWeights& weights) {
    // The scale of the attention logits, 1 / √(dim / heads), is folded into the query weights.
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.dim / shape_.n_heads));
    layers_.push_back({pack({weights.query, weights.key, weights.value}, {scale, 1, 1}), pack({weights.out}, {1}),
                       pack({weights.up}, {1}), pack({weights.down}, {1}), copy(weights.attention_norm),
                       copy(weights.norm)});
}

void TextEncoder::encode(const std::int32_t* tokens, const std::int64_t* indptr, std::int64_t n, bool first,
                         int threads, float* embeddings) const {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t length = indptr[i + 1] - indptr[i];
        if (length < 1 || length > shape_.n_positions)
            throw std::invalid_argument("text " + std::to_string(i) + " has " + std::to_string(length) +
                                        " tokens; the encoder takes 1 to " + std::to_string(shape_.n_positions));
    }
    for (std::int64_t t = indptr[0]; t < indptr[n]; ++t)
        if (tokens[t] < 0 || tokens[t] >= shape_.n_words)
            throw std::invalid_argument("token " + std::to_string(tokens[t]) +
                                        " is outside the encoder's vocabulary of " + std::to_string(shape_.n_words));
    std::vector<std::int64_t> groups{0};
    for (std::int64_t i = 1; i <= n; ++i)
        if (i == n || indptr[i + 1] - indptr[groups.back()] > group_tokens) groups.push_back(i);
    const auto n_groups = static_cast<std::int64_t>(groups.size()) - 1;
    ScratchPool<Workspace> workspaces;
    parallel_for(n_groups, threads, [&](std::int64_t g, int) {
        const ScratchPool<Workspace>::Lease space(workspaces);
        encode_group(tokens, indptr, groups[size_of(g)], groups[size_of(g + 1)], first, *space, embeddings);
    });
}

void TextEncoder::encode_group(const std::int32_t* tokens, const std::int64_t* indptr, std::int64_t first_text,
                               std::int64_t end_text, bool first, Workspace& space, float* embeddings) const {
    const LayerKernels& kernels = hot().layers;
    const std::int64_t dim = shape_.dim, start = indptr[first_text], rows = indptr[end_text] - start;
    space.states.reserve(size_of(rows * dim));
    space.qkv.reserve(size_of(rows * 3 * dim));
    space.mixed.reserve(size_of(rows * dim));
    space.inner.reserve(size_of(std::min(rows, block_rows) * shape_.hidden));
    float* states = space.states.data();
    for (std::int64_t i = first_text; i < end_text; ++i) {
        for (std::int64_t t = indptr[i]; t < indptr[i + 1]; ++t) {
            const float *word = words_ + tokens[t] * dim, *position = positions_.data() + (t - indptr[i]) * dim;
            float* state = states + (t - start) * dim;
            for (std::int64_t j = 0; j < dim; ++j) state[j] = word[j] + position[j];
        }
    }
    const auto normalize = [&](float* from, std::int64_t count, const Norm& norm) {
        kernels.layer_norm(from, count, dim, norm.gain.data(), norm.bias.data(), shape_.epsilon);
    };
    const auto apply = [&](const Dense& dense, const float* from, std::int64_t count, float* to, Output output) {
        kernels.multiply({from, dense.n_in, count, dense.packed.data(), dense.n_in, dense.n_out, dense.bias.data(), to,
                          dense.n_out, output});
    };
    normalize(states, rows, norm_);
    for (const Layer& layer : layers_) {
        apply(layer.qkv, states, rows, space.qkv.data(), Output::set);
        attention(indptr, first_text, end_text, space);
        apply(layer.out, space.mixed.data(), rows, states, Output::add);
        normalize(states, rows, layer.attention_norm);
        for (std::int64_t row = 0; row < rows; row += block_rows) {
            const std::int64_t count = std::min(block_rows, rows - row);
            apply(layer.up, states + row * dim, count, space.inner.data(), Output::gelu);
            apply(layer.down, space.inner.data(), count, states + row * dim, Output::add);
            normalize(states + row * dim, count, layer.norm);
        }
    }
    for (std::int64_t i = first_text; i < end_text; ++i) {
        float* embedding = embeddings + i * dim;
        const float* state = states + (indptr[i] - start) * dim;
        std::copy(state, state + dim, embedding);
        const std::int64_t length = indptr[i + 1] - indptr[i];
        if (first || length == 1) continue;
        for (std::int64_t t = 1; t < length; ++t) hot().add_scaled(1.0f, state + t * dim, dim, embedding);
        const float scale = 1.0f / static_cast<float>(length);
        for (std::int64_t j = 0; j < dim; ++j) embedding[j] *= scale;
    }
}

// Self-attention within each text, head by head: softmax(Q Kᵀ) V, from `qkv` to `mixed`.
void TextEncoder::attention(const std::int64_t* indptr, std::int64_t first_text, std::int64_t end_text,
                            Workspace& space) const {
    const LayerKernels& kernels = hot().layers;
    const std::int64_t dim = shape_.dim, stride = 3 * dim, part = dim / shape_.n_heads, panel = kernels.panel_width;
    for (std::int64_t i = first_text; i < end_text; ++i) {
        const std::int64_t length = indptr[i + 1] - indptr[i], row = indptr[i] - indptr[first_text];
        const std::int64_t across = (length + panel - 1) / panel * panel;
        space.scores.reserve(size_of(length * across));
        space.keys.reserve(size_of(part * across));
        space.values.reserve(size_of(packed_size(length, part, panel)));
        for (std::int64_t head = 0; head < shape_.n_heads; ++head) {
            const float* query = space.qkv.data() + row * stride + head * part;
            pack_panels(query + dim, part, length, 1, stride, space.keys.data());
            pack_panels(query + 2 * dim, length, part, stride, 1, space.values.data());
            kernels.multiply({query, stride, length, space.keys.data(), part, length, nullptr, space.scores.data(),
                              across, Output::set});
            kernels.softmax(space.scores.data(), length, length, across);
            kernels.multiply({space.scores.data(), across, length, space.values.data(), length, part, nullptr,
                              space.mixed.data() + row * dim + head * part, dim, Output::set});
        }
    }
}

}  // namespace ramify
