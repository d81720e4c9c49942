#include "neural/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/isa.h"
#include "core/parallel.h"

namespace ramify {

namespace {

constexpr std::int64_t group_tokens = 384;  // that go through a layer together: its weights come from far only so often
constexpr std::int64_t block_rows = 96;     // whose inner vectors stay in the cache

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// Packs the columns [0, n_out) of a matrix (n_in, n_out) whose entry (k, j) is at k * in_stride + j * out_stride.
void pack_panels(const float* w, std::int64_t n_in, std::int64_t n_out, std::int64_t in_stride, std::int64_t out_stride, float* packed) {
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
    LargeBuffer<float> states, attended, mixed, inner, scores, keys, values;
};

TextEncoder::TextEncoder(const EncoderShape& shape, const float* words, const float* positions, const NormWeights& norm)
    : shape_(shape), words_(words), positions_(positions, positions + shape.n_positions * shape.width), norm_(copy(norm)) {
    if (shape.n_heads < 1 || shape.width % shape.n_heads != 0)
        throw std::invalid_argument("vectors of " + std::to_string(shape.width) + " numbers cannot be shared by " +
                                    std::to_string(shape.n_heads) + " heads");
}

TextEncoder::Norm TextEncoder::copy(const NormWeights& norm) const {
    return {{norm.gain, norm.gain + shape_.width}, {norm.offset, norm.offset + shape_.width}};
}

// Several dense layers of one input as one.
TextEncoder::Dense TextEncoder::pack(const std::vector<DenseWeights>& parts, const std::vector<float>& scales) const {
    const std::int64_t panel = hot().layers.panel_width, n_in = parts.front().n_in;
    std::int64_t n_out = 0;
    for (const DenseWeights& part : parts) n_out += part.n_out;
    std::vector<float> together(size_of(n_out * n_in));
    Dense made{Table(size_of(packed_size(n_in, n_out, panel))), Table(size_of(n_out)), n_in, n_out};
    std::int64_t row = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t numbers = parts[p].n_out * n_in;
        std::transform(parts[p].weights, parts[p].weights + numbers, together.begin() + row * n_in, [&](float x) { return x * scales[p]; });
        std::transform(parts[p].offset, parts[p].offset + parts[p].n_out, made.offset.begin() + row, [&](float x) { return x * scales[p]; });
        row += parts[p].n_out;
    }
    pack_panels(together.data(), n_in, n_out, 1, n_in, made.packed.data());
    return made;
}

void TextEncoder::add_layer(const LayerWeights& weights) {
    // What queries are divided by stands in their weights.
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.width / shape_.n_heads));
    layers_.push_back({pack({weights.query, weights.key, weights.value}, {scale, 1, 1}), pack({weights.out}, {1}), pack({weights.up}, {1}),
                       pack({weights.down}, {1}), copy(weights.attention_norm), copy(weights.norm)});
}

void TextEncoder::encode(const std::int32_t* tokens, const std::int64_t* begin, std::int64_t n, bool first, int threads, float* vectors) const {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t length = begin[i + 1] - begin[i];
        if (length < 1 || length > shape_.n_positions)
            throw std::invalid_argument("text " + std::to_string(i) + " has " + std::to_string(length) + " tokens; the encoder reads 1 to " +
                                        std::to_string(shape_.n_positions));
    }
    for (std::int64_t t = begin[0]; t < begin[n]; ++t)
        if (tokens[t] < 0 || tokens[t] >= shape_.n_words)
            throw std::invalid_argument("token " + std::to_string(tokens[t]) + " is none of the encoder's " + std::to_string(shape_.n_words));
    std::vector<std::int64_t> groups{0};
    for (std::int64_t i = 1; i <= n; ++i)
        if (i == n || begin[i + 1] - begin[groups.back()] > group_tokens) groups.push_back(i);
    const auto n_groups = static_cast<std::int64_t>(groups.size()) - 1;
    std::vector<Workspace> spaces(size_of(worker_count(n_groups, threads)));
    parallel_for(n_groups, threads, [&](std::int64_t g, int worker) {
        encode_group(tokens, begin, groups[size_of(g)], groups[size_of(g + 1)], first, spaces[size_of(worker)], vectors);
    });
}

void TextEncoder::encode_group(const std::int32_t* tokens, const std::int64_t* begin, std::int64_t first_text, std::int64_t end_text, bool first,
                               Workspace& space, float* vectors) const {
    const LayerKernels& kernels = hot().layers;
    const std::int64_t width = shape_.width, start = begin[first_text], rows = begin[end_text] - start;
    space.states.reserve(size_of(rows * width));
    space.attended.reserve(size_of(rows * 3 * width));
    space.mixed.reserve(size_of(rows * width));
    space.inner.reserve(size_of(std::min(rows, block_rows) * shape_.hidden));
    float* states = space.states.data();
    for (std::int64_t i = first_text; i < end_text; ++i) {
        for (std::int64_t t = begin[i]; t < begin[i + 1]; ++t) {
            const float *word = words_ + tokens[t] * width, *position = positions_.data() + (t - begin[i]) * width;
            float* state = states + (t - start) * width;
            for (std::int64_t j = 0; j < width; ++j) state[j] = word[j] + position[j];
        }
    }
    const auto normalize = [&](float* from, std::int64_t count, const Norm& norm) {
        kernels.layer_norm(from, count, width, norm.gain.data(), norm.offset.data(), shape_.epsilon);
    };
    const auto apply = [&](const Dense& dense, const float* from, std::int64_t count, float* to, Finish finish) {
        kernels.multiply({from, dense.n_in, count, dense.packed.data(), dense.n_in, dense.n_out, dense.offset.data(), to, dense.n_out, finish});
    };
    normalize(states, rows, norm_);
    for (const Layer& layer : layers_) {
        apply(layer.attend, states, rows, space.attended.data(), Finish::set);
        attention(begin, first_text, end_text, space);
        apply(layer.out, space.mixed.data(), rows, states, Finish::add);
        normalize(states, rows, layer.attention_norm);
        for (std::int64_t row = 0; row < rows; row += block_rows) {
            const std::int64_t count = std::min(block_rows, rows - row);
            apply(layer.up, states + row * width, count, space.inner.data(), Finish::gelu);
            apply(layer.down, space.inner.data(), count, states + row * width, Finish::add);
            normalize(states + row * width, count, layer.norm);
        }
    }
    for (std::int64_t i = first_text; i < end_text; ++i) {
        float* vector = vectors + i * width;
        const float* state = states + (begin[i] - start) * width;
        std::copy(state, state + width, vector);
        const std::int64_t length = begin[i + 1] - begin[i];
        if (first || length == 1) continue;
        for (std::int64_t t = 1; t < length; ++t) hot().add_scaled(1.0f, state + t * width, width, vector);
        const float scale = 1.0f / static_cast<float>(length);
        for (std::int64_t j = 0; j < width; ++j) vector[j] *= scale;
    }
}

// What each token takes from the tokens of its text, head by head, from `attended` to `mixed`.
void TextEncoder::attention(const std::int64_t* begin, std::int64_t first_text, std::int64_t end_text, Workspace& space) const {
    const LayerKernels& kernels = hot().layers;
    const std::int64_t width = shape_.width, stride = 3 * width, part = width / shape_.n_heads, panel = kernels.panel_width;
    for (std::int64_t i = first_text; i < end_text; ++i) {
        const std::int64_t length = begin[i + 1] - begin[i], row = begin[i] - begin[first_text];
        const std::int64_t across = (length + panel - 1) / panel * panel;
        space.scores.reserve(size_of(length * across));
        space.keys.reserve(size_of(part * across));
        space.values.reserve(size_of(packed_size(length, part, panel)));
        for (std::int64_t head = 0; head < shape_.n_heads; ++head) {
            const float* query = space.attended.data() + row * stride + head * part;
            pack_panels(query + width, part, length, 1, stride, space.keys.data());
            pack_panels(query + 2 * width, length, part, stride, 1, space.values.data());
            kernels.multiply({query, stride, length, space.keys.data(), part, length, nullptr, space.scores.data(), across, Finish::set});
            kernels.softmax(space.scores.data(), length, length, across);
            kernels.multiply({space.scores.data(), across, length, space.values.data(), length, part, nullptr,
                              space.mixed.data() + row * width + head * part, width, Finish::set});
        }
    }
}

}  // namespace ramify
