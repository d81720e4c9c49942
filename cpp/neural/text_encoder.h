// Transformer encoder of the BERT family (Devlin et al. 2019) for inference: tokens in, the mean or the first of the
// last layer's token states out.
//
// Texts are packed one behind the other without padding: products see all tokens of a group, attention sees one text.
// The embedding of a text does not depend on the other texts or the number of threads, to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"

namespace ramify {

// A dense layer: weights (n_out, n_in), as in the files of PyTorch, and bias (n_out).
struct DenseWeights {
    const float* weights;
    const float* bias;
    std::int64_t n_in, n_out;
};

struct NormWeights {
    const float* gain;
    const float* bias;
};

struct LayerWeights {
    DenseWeights query, key, value, out;
    NormWeights attention_norm;
    DenseWeights up, down;
    NormWeights norm;
};

struct EncoderShape {
    std::int64_t n_words, n_positions, dim, n_heads, hidden;
    float epsilon;  // of the layer norms
};

class TextEncoder {
public:
    // words (n_words, dim) is not copied and must outlive the encoder; positions (n_positions, dim) are added to them.
    TextEncoder(const EncoderShape& shape, const float* words, const float* positions, const NormWeights& norm);

    void add_layer(const LayerWeights& weights);

    const EncoderShape& shape() const { return shape_; }

    // Embeddings (n, dim) of n texts, text i with tokens[indptr[i]] ... tokens[indptr[i + 1] - 1]: the state of the
    // first token, or the mean of all.
    void encode(const std::int32_t* tokens, const std::int64_t* indptr, std::int64_t n, bool first, int threads,
                float* embeddings) const;

private:
    using Table = LargeVector<float>;
    struct Dense {
        Table packed, bias;
        std::int64_t n_in, n_out;
    };
    struct Norm {
        std::vector<float> gain, bias;
    };
    struct Layer {
        Dense qkv, out, up, down;  // qkv: queries, keys and values side by side
        Norm attention_norm, norm;
    };
    struct Workspace;

    void encode_group(const std::int32_t* tokens, const std::int64_t* indptr, std::int64_t first_text,
                      std::int64_t end_text, bool first, Workspace& space, float* embeddings) const;
    void attention(const std::int64_t* indptr, std::int64_t first_text, std::int64_t end_text, Workspace& space) const;
    Dense pack(const std::vector<DenseWeights>& parts, const std::vector<float>& scales) const;
    Norm copy(const NormWeights& norm) const;

    EncoderShape shape_;
    const float* words_;
    std::vector<float> positions_;
    Norm norm_;
    std::vector<Layer> layers_;
};

}  // namespace ramify
