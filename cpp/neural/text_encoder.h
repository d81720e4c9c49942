// Vectors of texts by an encoder of the BERT family: tokens in, the mean or the first of the last layer's vectors out.
//
// Texts stand one behind the other without padding: products see all tokens of a group, attention sees one text. A text's
// vector does not depend on the texts beside it nor on the number of threads, to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"

namespace ramify {

// Weights (n_out, n_in) of a dense layer, as files have them, with offsets (n_out).
struct DenseWeights {
    const float* weights;
    const float* offset;
    std::int64_t n_in, n_out;
};

struct NormWeights {
    const float* gain;
    const float* offset;
};

struct LayerWeights {
    DenseWeights query, key, value, out;
    NormWeights attention_norm;
    DenseWeights up, down;
    NormWeights norm;
};

struct EncoderShape {
    std::int64_t n_words, n_positions, width, n_heads, hidden;
    float epsilon;  // of the layer norms
};

class TextEncoder {
public:
    // words (n_words, width) is not copied and has to stay; positions (n_positions, width) are added to them.
    TextEncoder(const EncoderShape& shape, const float* words, const float* positions, const NormWeights& norm);

    void add_layer(const LayerWeights& weights);

    const EncoderShape& shape() const { return shape_; }

    // Vectors (n, width) of the texts [begin[i], begin[i + 1]) of tokens: the first token's, or the mean of all.
    void encode(const std::int32_t* tokens, const std::int64_t* begin, std::int64_t n, bool first, int threads, float* vectors) const;

private:
    using Table = LargeVector<float>;
    struct Dense {
        Table packed, offset;
        std::int64_t n_in, n_out;
    };
    struct Norm {
        std::vector<float> gain, offset;
    };
    struct Layer {
        Dense attend, out, up, down;  // attend: queries, keys and values side by side
        Norm attention_norm, norm;
    };
    struct Workspace;

    void encode_group(const std::int32_t* tokens, const std::int64_t* begin, std::int64_t first_text, std::int64_t end_text, bool first,
                      Workspace& space, float* vectors) const;
    void attention(const std::int64_t* begin, std::int64_t first_text, std::int64_t end_text, Workspace& space) const;
    Dense pack(const std::vector<DenseWeights>& parts, const std::vector<float>& scales) const;
    Norm copy(const NormWeights& norm) const;

    EncoderShape shape_;
    const float* words_;
    std::vector<float> positions_;
    Norm norm_;
    std::vector<Layer> layers_;
};

}  // namespace ramify
