// What deep models share: bags of word vectors, the graph from clusters to labels, products with chosen rows, vectors in lists.
#include "neural/bag.h"
#include "bindings/common.h"
#include "neural/gather.h"
#include "neural/shortlist.h"
#include "neural/text_encoder.h"
#include "ann/vector_lists.h"
#include "ann/votes.h"

namespace ramify {

namespace {

template <class T>
using Changed = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Changed2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::int64_t size_of(std::size_t n) { return static_cast<std::int64_t>(n); }

GraphView graph_view(const In<std::int64_t>& begin, const In<std::int32_t>& labels, const In<float>& scores, std::int64_t n_labels) {
    return {size_of(begin.shape(0)) - 1, n_labels, begin.data(), labels.data(), scores.data()};
}

using Truth = std::tuple<In<std::int64_t>, In<std::int32_t>, In<std::int32_t>>;  // begin, labels, parents

nb::tuple py_explore(In<std::int64_t> begin, In<std::int32_t> labels, In<float> edge_scores, std::int64_t n_labels, In2<float> clusters,
                     In2<float> order, std::int64_t beam, std::int64_t width, std::optional<Truth> truth, int threads) {
    const std::size_t rows = clusters.shape(0), k = static_cast<std::size_t>(width), n_truth = truth ? std::get<1>(*truth).shape(0) : 0;
    auto found = std::make_unique_for_overwrite<std::int32_t[]>(rows * k);
    auto scores = std::make_unique_for_overwrite<float[]>(rows * k);
    auto edges = std::make_unique_for_overwrite<std::int32_t[]>(rows * k);
    auto targets = std::make_unique_for_overwrite<std::uint8_t[]>(truth ? rows * k : 0);
    auto truth_scores = std::make_unique_for_overwrite<float[]>(n_truth);
    auto truth_edges = std::make_unique_for_overwrite<std::int32_t[]>(n_truth);
    {
        nb::gil_scoped_release release;
        Shortlists out{width, found.get(), scores.get(), edges.get()};
        if (truth) out.targets = targets.get(), out.truth_scores = truth_scores.get(), out.truth_edges = truth_edges.get();
        explore(graph_view(begin, labels, edge_scores, n_labels), clusters.data(), order.data(), size_of(rows), beam,
                truth ? std::get<0>(*truth).data() : nullptr, truth ? std::get<1>(*truth).data() : nullptr,
                truth ? std::get<2>(*truth).data() : nullptr, out, threads);
    }
    return nb::make_tuple(give_new(std::move(found), {rows, k}), give_new(std::move(scores), {rows, k}), give_new(std::move(edges), {rows, k}),
                          give_new(std::move(targets), {truth ? rows : 0, k}), give_new(std::move(truth_scores), {n_truth}),
                          give_new(std::move(truth_edges), {n_truth}));
}

void py_spread_gradients(In2<std::int32_t> edges, In2<float> gradients, In<std::int32_t> edge_cluster, Changed2<float> by_cluster,
                         Changed<double> by_edge) {
    nb::gil_scoped_release release;
    spread_gradients(edges.data(), gradients.data(), size_of(edges.shape(0)), size_of(edges.shape(1)), edge_cluster.data(),
                     size_of(by_cluster.shape(1)), by_cluster.data(), by_edge.data());
}

nb::tuple py_path_loss(In2<std::int32_t> labels, In2<float> scores, In2<float> logits, In2<std::uint8_t> targets, float weight, int threads) {
    const std::size_t rows = labels.shape(0), width = labels.shape(1);
    auto d_scores = std::make_unique_for_overwrite<float[]>(rows * width);
    auto d_logits = std::make_unique_for_overwrite<float[]>(rows * width);
    double loss = 0;
    {
        nb::gil_scoped_release release;
        loss = path_loss(labels.data(), scores.data(), logits.data(), targets.data(), size_of(rows), size_of(width), weight, d_scores.get(),
                         d_logits.get(), threads);
    }
    return nb::make_tuple(loss, give_new(std::move(d_scores), {rows, width}), give_new(std::move(d_logits), {rows, width}));
}

nb::tuple py_group_pairs(In2<std::int32_t> lists, std::int64_t n_rows) {
    Pairs pairs;
    {
        nb::gil_scoped_release release;
        pairs = group_pairs(lists.data(), size_of(lists.shape(0)), size_of(lists.shape(1)), n_rows);
    }
    return nb::make_tuple(give_vector(std::move(pairs.rows)), give_vector(std::move(pairs.begin)), give_vector(std::move(pairs.places)));
}

using PyPairs = std::tuple<In<std::int32_t>, In<std::int64_t>, In<std::int64_t>>;

PairsView pairs_view(const PyPairs& pairs, std::size_t width) {
    const auto& [rows, begin, places] = pairs;
    return {size_of(rows.shape(0)), rows.data(), begin.data(), places.data(), size_of(width)};
}

using PyAdam = std::tuple<float, float, float, float, float, std::int64_t>;

AdamOptions adam_options(const PyAdam& adam) {
    const auto& [rate, beta1, beta2, epsilon, weight_decay, step] = adam;
    return {rate, beta1, beta2, epsilon, weight_decay, step};
}

void py_score_edges(In<std::int64_t> begin, Changed<float> logits, Changed<float> raw, Changed<float> scores, float log_beta, int threads) {
    nb::gil_scoped_release release;
    score_edges({begin.data(), nullptr, logits.data(), raw.data(), scores.data()}, size_of(begin.shape(0)) - 1, log_beta, threads);
}

void py_step_edges(In<std::int64_t> begin, In<double> gradients, Changed<float> logits, Changed<float> raw, Changed<float> scores,
                   Changed<float> first, Changed<float> second, In<std::int32_t> clusters, float log_beta, PyAdam adam, int threads) {
    nb::gil_scoped_release release;
    step_edges({begin.data(), gradients.data(), logits.data(), raw.data(), scores.data(), first.data(), second.data()}, clusters.data(),
               size_of(clusters.shape(0)), log_beta, adam_options(adam), threads);
}

Out<float> py_gather_dot(PyPairs pairs, std::int64_t width, In2<float> table, In<float> offset, In2<float> vectors, int threads) {
    const std::size_t n = vectors.shape(0), k = static_cast<std::size_t>(width);
    auto out = std::make_unique<float[]>(n * k);
    {
        nb::gil_scoped_release release;
        gather_dot(pairs_view(pairs, k), table.data(), offset.data(), vectors.data(), size_of(vectors.shape(1)), out.get(), threads);
    }
    return give_new(std::move(out), {n, k});
}

Out<float> py_gather_dot_back(PyPairs pairs, In2<float> table, In2<float> gradients, int threads) {
    const std::size_t n = gradients.shape(0), d = table.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(n * d);
    {
        nb::gil_scoped_release release;
        gather_dot_back(pairs_view(pairs, gradients.shape(1)), table.data(), gradients.data(), size_of(n), size_of(d), out.get(), threads);
    }
    return give_new(std::move(out), {n, d});
}

nb::tuple py_rank_lists(In2<float> table, In<float> offset, float beta, In2<std::int32_t> lists, In2<float> evidence, In2<float> vectors,
                        std::int64_t k, int threads) {
    const std::size_t n = lists.shape(0), top = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * top);
    auto scores = std::make_unique_for_overwrite<float[]>(n * top);
    {
        nb::gil_scoped_release release;
        const ListRanking ranking{table.data(), offset.data(), size_of(table.shape(1)), beta};
        rank_lists(ranking, lists.data(), evidence.data(), size_of(lists.shape(1)), vectors.data(), size_of(n), k, threads, ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, top}), give_new(std::move(scores), {n, top}));
}

template <class Index>
Out<float> py_score_lists(In<std::int64_t> begin, In<std::int32_t> features, In<float> weights, In2<float> dense_weights, In<float> offset,
                          In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_columns, In2<float> dense,
                          In2<std::int32_t> lists, int threads) {
    const std::size_t n = lists.shape(0), width = lists.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(n * width);
    {
        nb::gil_scoped_release release;
        const LinearRows classifiers{begin.data(), features.data(), weights.data(), dense_weights.data(), size_of(dense_weights.shape(1)), offset.data()};
        score_lists(classifiers, csr_view<Index>(indptr, indices, data.data(), n_columns), dense.data(), lists.data(), size_of(width), out.get(), threads);
    }
    return give_new(std::move(out), {n, width});
}

void py_row_adam(PyPairs pairs, In2<float> gradients, In2<float> vectors, Changed2<float> table, std::optional<Changed<float>> offset,
                 In<std::int64_t> slots,
                 Changed2<float> first, Changed2<float> second, PyAdam adam, int threads) {
    nb::gil_scoped_release release;
    row_adam(pairs_view(pairs, gradients.shape(1)), gradients.data(), vectors.data(), size_of(vectors.shape(1)), table.data(),
             offset ? offset->data() : nullptr, slots.data(), first.data(), second.data(), adam_options(adam), threads);
}

void py_flat_adam(Changed<float> values, In<float> gradients, Changed<float> first, Changed<float> second, PyAdam adam) {
    nb::gil_scoped_release release;
    flat_adam(values.data(), gradients.data(), first.data(), second.data(), size_of(values.shape(0)), adam_options(adam));
}

template <class Index>
Out<float> py_encode_bags(In<Index> indptr, In<Index> indices, In<float> data, In2<float> words, In2<float> residual, In<float> offset, int threads) {
    const std::size_t n = indptr.shape(0) - 1, d = words.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(n * d);
    {
        nb::gil_scoped_release release;
        encode_bags({size_of(d), words.data(), residual.data(), offset.data()},
                    csr_view<Index>(indptr, indices, data.data(), size_of(words.shape(0))), threads, out.get());
    }
    return give_new(std::move(out), {n, d});
}

Out<float> py_encode_dense(In2<float> h, In2<float> residual, In<float> offset, int threads) {
    const std::size_t n = h.shape(0), d = h.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(n * d);
    {
        nb::gil_scoped_release release;
        encode_dense({size_of(d), nullptr, residual.data(), offset.data()}, h.data(), size_of(n), threads, out.get());
    }
    return give_new(std::move(out), {n, d});
}

nb::tuple py_search_graph(In<std::int64_t> begin, In<std::int32_t> labels, In<float> edge_scores, In2<float> cluster_weights,
                          In<float> cluster_offsets, In2<float> label_weights, In<float> label_offsets, float log_alpha, std::int64_t beam,
                          std::int64_t width, In2<float> vectors, std::int64_t k, int threads) {
    const std::size_t n = vectors.shape(0), top = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * top);
    auto scores = std::make_unique_for_overwrite<float[]>(n * top);
    {
        nb::gil_scoped_release release;
        const GraphSearch model{graph_view(begin, labels, edge_scores, size_of(label_weights.shape(0))), cluster_weights.data(), cluster_offsets.data(),
                                label_weights.data(), label_offsets.data(), log_alpha, beam, width};
        search_graph(model, vectors.data(), size_of(n), size_of(vectors.shape(1)), k, threads, ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, top}), give_new(std::move(scores), {n, top}));
}

Out<float> py_unit_vectors(In2<float> vectors, int threads) {
    auto units = std::make_unique_for_overwrite<float[]>(vectors.shape(0) * vectors.shape(1));
    {
        nb::gil_scoped_release release;
        unit_vectors(vectors.data(), size_of(vectors.shape(0)), size_of(vectors.shape(1)), units.get(), threads);
    }
    return give_new(std::move(units), {vectors.shape(0), vectors.shape(1)});
}

Out<float> py_all_products(In2<float> table, In2<float> vectors, int threads) {
    const std::size_t n = vectors.shape(0), rows = table.shape(0);
    auto products = std::make_unique_for_overwrite<float[]>(n * rows);
    {
        nb::gil_scoped_release release;
        all_products(table.data(), size_of(rows), vectors.data(), size_of(n), size_of(vectors.shape(1)), products.get(), threads);
    }
    return give_new(std::move(products), {n, rows});
}

nb::tuple py_encode_vectors(In2<float> vectors, int threads) {
    const std::size_t n = vectors.shape(0), bytes = static_cast<std::size_t>(code_width(size_of(vectors.shape(1))));
    auto codes = std::make_unique_for_overwrite<std::int8_t[]>(n * bytes);
    auto steps = std::make_unique_for_overwrite<float[]>(n);
    {
        nb::gil_scoped_release release;
        encode_vectors(vectors.data(), size_of(n), size_of(vectors.shape(1)), codes.get(), steps.get(), threads);
    }
    return nb::make_tuple(give_new(std::move(codes), {n, bytes}), give_new(std::move(steps), {n}));
}

nb::tuple py_search_lists(In2<std::int8_t> middles, In<float> middle_steps, In<std::int64_t> begin, In<std::int32_t> names, In2<float> vectors,
                          In2<std::int8_t> codes, In<float> steps, In2<float> queries, std::int64_t n_read, std::int64_t k, bool ordered, int threads) {
    const std::size_t n = queries.shape(0), top = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * top);
    auto scores = std::make_unique_for_overwrite<float[]>(n * top);
    {
        nb::gil_scoped_release release;
        const VectorLists lists{size_of(middles.shape(0)), size_of(vectors.shape(1)), {middles.data(), middle_steps.data()}, begin.data(), names.data(),
                                vectors.shape(0) > 0 ? vectors.data() : nullptr, {codes.data(), steps.data()}};
        search_lists(lists, queries.data(), size_of(n), n_read, k, ordered, threads, ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, top}), give_new(std::move(scores), {n, top}));
}

nb::tuple py_merge_votes(In2<std::int32_t> label_ids, In2<float> label_similarities, In2<std::int32_t> point_ids, In2<float> point_similarities,
                         In<std::int64_t> begin, In<std::int32_t> labels, std::int64_t n_labels, float share, std::int64_t k, int threads) {
    const std::size_t n = label_ids.shape(0), top = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * top);
    auto scores = std::make_unique_for_overwrite<float[]>(n * top);
    {
        nb::gil_scoped_release release;
        merge_votes({size_of(label_ids.shape(1)), label_ids.data(), label_similarities.data()},
                    {size_of(point_ids.shape(1)), point_ids.data(), point_similarities.data()}, {begin.data(), labels.data(), n_labels}, share,
                    size_of(n), k, threads, ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, top}), give_new(std::move(scores), {n, top}));
}

// An encoder together with the array that it reads the vectors of words from.
class PyTextEncoder {
public:
    using Norm = std::tuple<In<float>, In<float>>;    // gain, offset
    using Dense = std::tuple<In2<float>, In<float>>;  // weights (n_out, n_in), offset

    PyTextEncoder(In2<float> words, In2<float> positions, Norm norm, std::int64_t n_heads, std::int64_t hidden, float epsilon)
        : words_(words),
          width_(words.shape(1)),
          encoder_({size_of(words.shape(0)), size_of(positions.shape(0)), size_of(width_), n_heads, hidden, epsilon}, words.data(),
                   checked(positions.data(), positions.shape(1) == width_), norm_of(norm)) {}

    void add_layer(Dense query, Dense key, Dense value, Dense out, Norm attention_norm, Dense up, Dense down, Norm norm) {
        const auto hidden = static_cast<std::size_t>(encoder_.shape().hidden);
        encoder_.add_layer({dense(query, width_, width_), dense(key, width_, width_), dense(value, width_, width_), dense(out, width_, width_),
                            norm_of(attention_norm), dense(up, width_, hidden), dense(down, hidden, width_), norm_of(norm)});
    }

    Out<float> encode(In<std::int32_t> tokens, In<std::int64_t> begin, bool first, int threads) const {
        const std::size_t n = begin.shape(0) - 1;
        if (begin.shape(0) < 1 || begin.data()[0] != 0 || begin.data()[n] != size_of(tokens.shape(0)))
            throw std::invalid_argument("texts do not begin at the first token and end with the last");
        auto vectors = std::make_unique_for_overwrite<float[]>(n * width_);
        {
            nb::gil_scoped_release release;
            encoder_.encode(tokens.data(), begin.data(), size_of(n), first, threads, vectors.get());
        }
        return give_new(std::move(vectors), {n, width_});
    }

private:
    static const float* checked(const float* values, bool fits) {
        if (!fits) throw std::invalid_argument("weights of an encoder that do not fit together");
        return values;
    }
    DenseWeights dense(const Dense& given, std::size_t n_in, std::size_t n_out) const {
        const auto& [weights, offset] = given;
        const bool fits = weights.shape(0) == n_out && weights.shape(1) == n_in && offset.shape(0) == n_out;
        return {checked(weights.data(), fits), offset.data(), size_of(n_in), size_of(n_out)};
    }
    NormWeights norm_of(const Norm& given) const {
        const auto& [gain, offset] = given;
        return {checked(gain.data(), gain.shape(0) == width_ && offset.shape(0) == width_), offset.data()};
    }

    In2<float> words_;
    std::size_t width_;
    TextEncoder encoder_;
};

}  // namespace

void bind_neural(nb::module_& m) {
    m.def("explore", py_explore, nb::arg("begin"), nb::arg("labels"), nb::arg("edge_scores"), nb::arg("n_labels"), nb::arg("clusters"),
          nb::arg("order"), nb::arg("beam"), nb::arg("width"), nb::arg("truth").none(), nb::arg("threads"));
    m.def("spread_gradients", py_spread_gradients, nb::arg("edges"), nb::arg("gradients"), nb::arg("edge_cluster"), nb::arg("by_cluster"),
          nb::arg("by_edge"));
    m.def("path_loss", py_path_loss, nb::arg("labels"), nb::arg("scores"), nb::arg("logits"), nb::arg("targets"), nb::arg("weight"),
          nb::arg("threads"));
    m.def("score_lists", py_score_lists<std::int32_t>, nb::arg("begin"), nb::arg("features"), nb::arg("weights"), nb::arg("dense_weights"), nb::arg("offset"), nb::arg("indptr"),
          nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("dense"), nb::arg("lists"), nb::arg("threads"));
    m.def("score_lists", py_score_lists<std::int64_t>, nb::arg("begin"), nb::arg("features"), nb::arg("weights"), nb::arg("dense_weights"), nb::arg("offset"), nb::arg("indptr"),
          nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("dense"), nb::arg("lists"), nb::arg("threads"));
    m.def("score_edges", py_score_edges, nb::arg("begin"), nb::arg("logits"), nb::arg("raw"), nb::arg("scores"), nb::arg("log_beta"),
          nb::arg("threads"));
    m.def("step_edges", py_step_edges, nb::arg("begin"), nb::arg("gradients"), nb::arg("logits"), nb::arg("raw"), nb::arg("scores"),
          nb::arg("first"), nb::arg("second"), nb::arg("clusters"), nb::arg("log_beta"), nb::arg("adam"), nb::arg("threads"));
    m.def("group_pairs", py_group_pairs, nb::arg("lists"), nb::arg("n_rows"));
    m.def("gather_dot", py_gather_dot, nb::arg("pairs"), nb::arg("width"), nb::arg("table"), nb::arg("offset"), nb::arg("vectors"),
          nb::arg("threads"));
    m.def("gather_dot_back", py_gather_dot_back, nb::arg("pairs"), nb::arg("table"), nb::arg("gradients"), nb::arg("threads"));
    m.def("rank_lists", py_rank_lists, nb::arg("table"), nb::arg("offset"), nb::arg("beta"), nb::arg("lists"), nb::arg("evidence"),
          nb::arg("vectors"), nb::arg("k"), nb::arg("threads"));
    m.def("row_adam", py_row_adam, nb::arg("pairs"), nb::arg("gradients"), nb::arg("vectors"), nb::arg("table"), nb::arg("offset").none(),
          nb::arg("slots"), nb::arg("first"), nb::arg("second"), nb::arg("adam"), nb::arg("threads"));
    m.def("flat_adam", py_flat_adam, nb::arg("values"), nb::arg("gradients"), nb::arg("first"), nb::arg("second"), nb::arg("adam"));
    m.def("encode_bags", py_encode_bags<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("words"),
          nb::arg("residual"), nb::arg("offset"), nb::arg("threads"));
    m.def("encode_bags", py_encode_bags<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("words"),
          nb::arg("residual"), nb::arg("offset"), nb::arg("threads"));
    m.def("encode_dense", py_encode_dense, nb::arg("h"), nb::arg("residual"), nb::arg("offset"), nb::arg("threads"));
    m.def("search_graph", py_search_graph, nb::arg("begin"), nb::arg("labels"), nb::arg("edge_scores"), nb::arg("cluster_weights"),
          nb::arg("cluster_offsets"), nb::arg("label_weights"), nb::arg("label_offsets"), nb::arg("log_alpha"), nb::arg("beam"),
          nb::arg("width"), nb::arg("vectors"), nb::arg("k"), nb::arg("threads"));
    m.def("merge_votes", py_merge_votes, nb::arg("label_ids"), nb::arg("label_similarities"), nb::arg("point_ids"),
          nb::arg("point_similarities"), nb::arg("begin"), nb::arg("labels"), nb::arg("n_labels"), nb::arg("share"), nb::arg("k"), nb::arg("threads"));
    m.def("unit_vectors", py_unit_vectors, nb::arg("vectors"), nb::arg("threads"));
    m.def("all_products", py_all_products, nb::arg("table"), nb::arg("vectors"), nb::arg("threads"));
    m.def("encode_vectors", py_encode_vectors, nb::arg("vectors"), nb::arg("threads"));
    m.def("search_lists", py_search_lists, nb::arg("middles"), nb::arg("middle_steps"), nb::arg("begin"), nb::arg("names"), nb::arg("vectors"),
          nb::arg("codes"), nb::arg("steps"), nb::arg("queries"), nb::arg("n_read"), nb::arg("k"), nb::arg("ordered"), nb::arg("threads"));
    nb::class_<PyTextEncoder>(m, "TextEncoder")
        .def(nb::init<In2<float>, In2<float>, PyTextEncoder::Norm, std::int64_t, std::int64_t, float>(), nb::arg("words"), nb::arg("positions"),
             nb::arg("norm"), nb::arg("n_heads"), nb::arg("hidden"), nb::arg("epsilon"))
        .def("add_layer", &PyTextEncoder::add_layer, nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("out"),
             nb::arg("attention_norm"), nb::arg("up"), nb::arg("down"), nb::arg("norm"))
        .def("encode", &PyTextEncoder::encode, nb::arg("tokens"), nb::arg("begin"), nb::arg("first"), nb::arg("threads"));
}

}  // namespace ramify
