// Encoders, the label graph, candidate scoring and Adam for the neural models.
#include <stdexcept>

#include "bindings/common.h"
#include "neural/adam.h"
#include "neural/bag_encoder.h"
#include "neural/edges.h"
#include "neural/explore.h"
#include "neural/gather.h"
#include "neural/graph_search.h"
#include "neural/path_loss.h"
#include "neural/rank_blended.h"
#include "neural/text_encoder.h"

namespace ramify {

namespace {

using PyDense = std::tuple<In2<float>, In<float>>;  // weights (n_out, n_in), bias (n_out)

// ---- bag encoder ----

Out<float, 2> py_embed_bags(const Csr& X, In2<float> words, In2<float> residual, In<float> bias, int threads) {
    const Csr::Arrays parts = X.arrays();
    const BagEncoder encoder{ssize(words.shape(1)), words.data(), residual.data(), bias.data()};
    return parts.visit(ssize(words.shape(0)), [&](const auto& view) {
        return give_matrix<float>(static_cast<std::size_t>(view.rows), words.shape(1),
                                  [&](float* out) { embed_bags(encoder, view, threads, out); });
    });
}

Out<float, 2> py_embed_dense(In2<float> h, In2<float> residual, In<float> bias, int threads) {
    const BagEncoder encoder{ssize(h.shape(1)), nullptr, residual.data(), bias.data()};
    return give_matrix<float>(h.shape(0), h.shape(1),
                              [&](float* out) { embed_dense(encoder, h.data(), ssize(h.shape(0)), threads, out); });
}

// ---- label graph ----

using PyGraph = std::tuple<In<std::int64_t>, In<std::int32_t>, In<float>>;         // indptr, labels, scores
using PyTruth = std::tuple<In<std::int64_t>, In<std::int32_t>, In<std::int32_t>>;  // indptr, labels, clusters
using PyEdges = std::tuple<InOut<float>, InOut<float>, InOut<float>>;              // logits, raw, scores
template <int Dims>
using PyMoments = std::tuple<InOut<float, Dims>, InOut<float, Dims>>;

GraphView graph_view(const PyGraph& graph, std::int64_t n_labels) {
    const auto& [indptr, labels, scores] = graph;
    return {ssize(indptr.shape(0)) - 1, n_labels, indptr.data(), labels.data(), scores.data()};
}

using PyShortlists =
    std::tuple<Out<std::int32_t, 2>, Out<float, 2>, Out<std::int32_t, 2>, Out<std::uint8_t, 2>, Out<float>,
               Out<std::int32_t>>;  // labels, scores, edges, targets, truth scores, truth edges

PyShortlists py_explore_graph(PyGraph graph, std::int64_t n_labels, In2<float> clusters, In2<float> order,
                              std::int64_t beam_size, std::int64_t width, std::optional<PyTruth> truth, int threads) {
    const std::size_t rows = clusters.shape(0), k = static_cast<std::size_t>(width);
    const std::size_t n_truth = truth ? std::get<1>(*truth).shape(0) : 0;
    auto labels = std::make_unique_for_overwrite<std::int32_t[]>(rows * k);
    auto scores = std::make_unique_for_overwrite<float[]>(rows * k);
    auto edges = std::make_unique_for_overwrite<std::int32_t[]>(rows * k);
    auto targets = std::make_unique_for_overwrite<std::uint8_t[]>(truth ? rows * k : 0);
    auto truth_scores = std::make_unique_for_overwrite<float[]>(n_truth);
    auto truth_edges = std::make_unique_for_overwrite<std::int32_t[]>(n_truth);
    without_gil([&] {
        const Shortlists out{width,
                             labels.get(),
                             scores.get(),
                             edges.get(),
                             truth ? targets.get() : nullptr,
                             truth_scores.get(),
                             truth_edges.get()};
        TrueLabels true_labels;
        if (truth) true_labels = {std::get<0>(*truth).data(), std::get<1>(*truth).data(), std::get<2>(*truth).data()};
        explore(graph_view(graph, n_labels), {clusters.data(), order.data(), ssize(rows)}, beam_size, true_labels, out,
                threads);
    });
    return {give(std::move(labels), {rows, k}),       give(std::move(scores), {rows, k}),
            give(std::move(edges), {rows, k}),        give(std::move(targets), {truth ? rows : 0, k}),
            give(std::move(truth_scores), {n_truth}), give(std::move(truth_edges), {n_truth})};
}

void py_scatter_path_gradients(In2<std::int32_t> edges, In2<float> gradients, In<std::int32_t> edge_cluster,
                               InOut<float, 2> d_clusters, InOut<double> d_edges) {
    nb::gil_scoped_release release;
    scatter_path_gradients(edges.data(), gradients.data(), ssize(edges.shape(0)), ssize(edges.shape(1)),
                           edge_cluster.data(), ssize(d_clusters.shape(1)), d_clusters.data(), d_edges.data());
}

std::tuple<double, Out<float, 2>, Out<float, 2>> py_path_loss(In2<std::int32_t> labels, In2<float> scores,
                                                              In2<float> logits, In2<std::uint8_t> targets,
                                                              In<float> weights, int threads) {
    const std::size_t rows = labels.shape(0), width = labels.shape(1);
    auto d_scores = std::make_unique_for_overwrite<float[]>(rows * width);
    auto d_logits = std::make_unique_for_overwrite<float[]>(rows * width);
    const double loss = without_gil([&] {
        return path_loss({ssize(rows), ssize(width), labels.data(), scores.data(), logits.data(), targets.data()},
                         weights.data(), d_scores.get(), d_logits.get(), threads);
    });
    return {loss, give(std::move(d_scores), {rows, width}), give(std::move(d_logits), {rows, width})};
}

EdgeTable edge_table(const In<std::int64_t>& indptr, const PyEdges& edges) {
    const auto& [logits, raw, scores] = edges;
    return {indptr.data(), logits.data(), raw.data(), scores.data()};
}

void py_score_edges(In<std::int64_t> indptr, PyEdges edges, float log_beta, int threads) {
    nb::gil_scoped_release release;
    score_edges(edge_table(indptr, edges), ssize(indptr.shape(0)) - 1, log_beta, threads);
}

void py_adam_edges(In<std::int64_t> indptr, In<double> gradients, PyEdges edges, PyMoments<1> moments,
                   In<std::int32_t> clusters, float log_beta, const AdamOptions& options, int threads) {
    nb::gil_scoped_release release;
    adam_edges(edge_table(indptr, edges), gradients.data(), {std::get<0>(moments).data(), std::get<1>(moments).data()},
               clusters.data(), ssize(clusters.shape(0)), log_beta, options, threads);
}

Ranking py_search_graph(PyGraph graph, PyDense clusters, PyDense labels, float log_alpha, std::int64_t beam_size,
                        std::int64_t shortlist_size, In2<float> embeddings, std::int64_t k, int threads) {
    const auto& [cluster_weights, cluster_bias] = clusters;
    const auto& [label_weights, label_bias] = labels;
    const GraphSearch model{graph_view(graph, ssize(label_weights.shape(0))),
                            cluster_weights.data(),
                            cluster_bias.data(),
                            label_weights.data(),
                            label_bias.data(),
                            log_alpha,
                            beam_size,
                            shortlist_size};
    return give_ranking(embeddings.shape(0), k, [&](std::int32_t* ids, float* scores) {
        search_graph(model, embeddings.data(), ssize(embeddings.shape(0)), ssize(embeddings.shape(1)), k, threads, ids,
                     scores);
    });
}

// ---- candidates ----

using PyPairs = std::tuple<In<std::int32_t>, In<std::int64_t>, In<std::int64_t>>;  // rows, indptr, positions

PairsView pairs_view(const PyPairs& pairs, std::size_t width) {
    const auto& [rows, indptr, positions] = pairs;
    return {ssize(rows.shape(0)), rows.data(), indptr.data(), positions.data(), ssize(width)};
}

std::tuple<Out<std::int32_t>, Out<std::int64_t>, Out<std::int64_t>> py_group_pairs(In2<std::int32_t> candidates,
                                                                                   std::int64_t n_rows) {
    Pairs pairs = without_gil(
        [&] { return group_pairs(candidates.data(), ssize(candidates.shape(0)), ssize(candidates.shape(1)), n_rows); });
    return {give(std::move(pairs.rows)), give(std::move(pairs.indptr)), give(std::move(pairs.positions))};
}

Out<float, 2> py_gather_dot(PyPairs pairs, std::int64_t width, In2<float> table, In<float> bias, In2<float> embeddings,
                            int threads) {
    const std::size_t n = embeddings.shape(0), k = static_cast<std::size_t>(width);
    auto out = std::make_unique<float[]>(n * k);  // zeros where there is no candidate
    without_gil([&] {
        gather_dot(pairs_view(pairs, k), table.data(), bias.data(), embeddings.data(), ssize(embeddings.shape(1)),
                   out.get(), threads);
    });
    return give(std::move(out), {n, k});
}

Out<float, 2> py_gather_dot_backward(PyPairs pairs, In2<float> table, In2<float> gradients, int threads) {
    return give_matrix<float>(gradients.shape(0), table.shape(1), [&](float* out) {
        gather_dot_backward(pairs_view(pairs, gradients.shape(1)), table.data(), gradients.data(),
                            ssize(gradients.shape(0)), ssize(table.shape(1)), out, threads);
    });
}

Ranking py_rank_blended(PyDense classifiers, float beta, bool by_row, In2<std::int32_t> candidates,
                        In2<float> similarities, In2<float> embeddings, std::int64_t k, int threads) {
    const auto& [weights, bias] = classifiers;
    const Classifiers dense{weights.data(), bias.data(), ssize(weights.shape(1))};
    const Candidates lists{ssize(candidates.shape(0)), ssize(candidates.shape(1)), candidates.data(),
                           similarities.data()};
    return give_ranking(candidates.shape(0), k, [&](std::int32_t* ids, float* scores) {
        rank_blended(dense, beta, by_row, lists, embeddings.data(), k, threads, ids, scores);
    });
}

// ---- Adam ----

void py_adam_rows(PyPairs pairs, In2<float> gradients, In2<float> embeddings, InOut<float, 2> table,
                  std::optional<InOut<float>> bias, In<std::int64_t> slots, PyMoments<2> moments,
                  const AdamOptions& options, int threads) {
    nb::gil_scoped_release release;
    adam_rows(pairs_view(pairs, gradients.shape(1)), gradients.data(), embeddings.data(), ssize(embeddings.shape(1)),
              table.data(), bias ? bias->data() : nullptr,
              {slots.data(), std::get<0>(moments).data(), std::get<1>(moments).data()}, options, threads);
}

void py_adam_dense(InOut<float> values, In<float> gradients, PyMoments<1> moments, const AdamOptions& options) {
    nb::gil_scoped_release release;
    adam_dense(values.data(), gradients.data(), std::get<0>(moments).data(), std::get<1>(moments).data(),
               ssize(values.shape(0)), options);
}

// ---- transformer ----

// An encoder together with the array that it reads the word embeddings from.
class PyTextEncoder {
public:
    using PyNorm = std::tuple<In<float>, In<float>>;  // gain, bias

    PyTextEncoder(In2<float> words, In2<float> positions, PyNorm norm, std::int64_t n_heads, std::int64_t hidden,
                  float epsilon)
        : words_(words),
          dim_(words.shape(1)),
          encoder_({ssize(words.shape(0)), ssize(positions.shape(0)), ssize(dim_), n_heads, hidden, epsilon},
                   words.data(), checked(positions.data(), positions.shape(1) == dim_), norm_of(norm)) {}

    void add_layer(PyDense query, PyDense key, PyDense value, PyDense out, PyNorm attention_norm, PyDense up,
                   PyDense down, PyNorm norm) {
        const auto hidden = static_cast<std::size_t>(encoder_.shape().hidden);
        encoder_.add_layer({dense(query, dim_, dim_), dense(key, dim_, dim_), dense(value, dim_, dim_),
                            dense(out, dim_, dim_), norm_of(attention_norm), dense(up, dim_, hidden),
                            dense(down, hidden, dim_), norm_of(norm)});
    }

    Out<float, 2> encode(In<std::int32_t> tokens, In<std::int64_t> indptr, bool first, int threads) const {
        const std::size_t n = indptr.shape(0) - 1;
        if (indptr.shape(0) < 1 || indptr.data()[0] != 0 || indptr.data()[n] != ssize(tokens.shape(0)))
            throw std::invalid_argument("indptr must run from 0 to the number of tokens");
        return give_matrix<float>(n, dim_, [&](float* embeddings) {
            encoder_.encode(tokens.data(), indptr.data(), ssize(n), first, threads, embeddings);
        });
    }

private:
    static const float* checked(const float* values, bool fits) {
        if (!fits) throw std::invalid_argument("the weights of the encoder do not fit together");
        return values;
    }
    DenseWeights dense(const PyDense& given, std::size_t n_in, std::size_t n_out) const {
        const auto& [weights, bias] = given;
        const bool fits = weights.shape(0) == n_out && weights.shape(1) == n_in && bias.shape(0) == n_out;
        return {checked(weights.data(), fits), bias.data(), ssize(n_in), ssize(n_out)};
    }
    NormWeights norm_of(const PyNorm& given) const {
        const auto& [gain, bias] = given;
        return {checked(gain.data(), gain.shape(0) == dim_ && bias.shape(0) == dim_), bias.data()};
    }

    In2<float> words_;
    std::size_t dim_;
    TextEncoder encoder_;
};

}  // namespace

void bind_neural(nb::module_& m) {
    m.def("embed_bags", py_embed_bags, nb::arg("X"), array("words"), array("residual"), array("bias"),
          nb::arg("threads"));
    m.def("embed_dense", py_embed_dense, array("h"), array("residual"), array("bias"), nb::arg("threads"));

    m.def("explore_graph", py_explore_graph, array("graph"), nb::arg("n_labels"), array("clusters"), array("order"),
          nb::arg("beam_size"), nb::arg("width"), array("truth").none(), nb::arg("threads"));
    m.def("scatter_path_gradients", py_scatter_path_gradients, array("edges"), array("gradients"),
          array("edge_cluster"), array("d_clusters"), array("d_edges"));
    m.def("path_loss", py_path_loss, array("labels"), array("scores"), array("logits"), array("targets"),
          array("weights"), nb::arg("threads"));
    m.def("score_edges", py_score_edges, array("indptr"), array("edges"), nb::arg("log_beta"), nb::arg("threads"));
    m.def("search_graph", py_search_graph, array("graph"), array("clusters"), array("labels"), nb::arg("log_alpha"),
          nb::arg("beam_size"), nb::arg("shortlist_size"), array("embeddings"), nb::arg("k"), nb::arg("threads"));

    m.def("group_pairs", py_group_pairs, array("candidates"), nb::arg("n_rows"));
    m.def("gather_dot", py_gather_dot, array("pairs"), nb::arg("width"), array("table"), array("bias"),
          array("embeddings"), nb::arg("threads"));
    m.def("gather_dot_backward", py_gather_dot_backward, array("pairs"), array("table"), array("gradients"),
          nb::arg("threads"));
    m.def("rank_blended", py_rank_blended, array("classifiers"), nb::arg("beta"), nb::arg("by_row"),
          array("candidates"), array("similarities"), array("embeddings"), nb::arg("k"), nb::arg("threads"));

    nb::class_<AdamOptions>(m, "AdamOptions")
        .def(nb::init<float, float, float, float, float, std::int64_t>(), nb::kw_only(), nb::arg("learning_rate"),
             nb::arg("beta1"), nb::arg("beta2"), nb::arg("epsilon"), nb::arg("weight_decay"), nb::arg("step"));
    m.def("adam_rows", py_adam_rows, array("pairs"), array("gradients"), array("embeddings"), array("table"),
          array("bias").none(), array("slots"), array("moments"), nb::arg("options"), nb::arg("threads"));
    m.def("adam_dense", py_adam_dense, array("values"), array("gradients"), array("moments"), nb::arg("options"));
    m.def("adam_edges", py_adam_edges, array("indptr"), array("gradients"), array("edges"), array("moments"),
          array("clusters"), nb::arg("log_beta"), nb::arg("options"), nb::arg("threads"));

    nb::class_<PyTextEncoder>(m, "TextEncoder")
        .def(nb::init<In2<float>, In2<float>, PyTextEncoder::PyNorm, std::int64_t, std::int64_t, float>(),
             array("words"), array("positions"), array("norm"), nb::arg("n_heads"), nb::arg("hidden"),
             nb::arg("epsilon"))
        .def("add_layer", &PyTextEncoder::add_layer, array("query"), array("key"), array("value"), array("out"),
             array("attention_norm"), array("up"), array("down"), array("norm"))
        .def("encode", &PyTextEncoder::encode, array("tokens"), array("indptr"), nb::arg("first"), nb::arg("threads"));
}

}  // namespace ramify
