// Clustering, one-vs-rest linear classifiers and beam search.
#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "bindings/common.h"
#include "linear/balanced_2means.h"
#include "linear/beam.h"
#include "linear/beam_batch.h"
#include "linear/bilinear.h"
#include "linear/boosted.h"
#include "linear/candidates.h"
#include "linear/kmeans.h"
#include "linear/ovr_solver.h"
#include "linear/packed.h"

namespace ramify {

namespace {

Out<std::int32_t> py_balanced_2means(const Csr& rows, std::int64_t n_columns, int depth, const KMeansOptions& options,
                                     int threads) {
    const Csr::Arrays parts = rows.arrays();
    return give(parts.visit(n_columns, [&](const auto& view) {
        return without_gil([&] { return balanced_2means(view, depth, options, threads); });
    }));
}

Out<std::int32_t> py_kmeans(const Csr& rows, std::int64_t n_columns, std::int64_t n_clusters, bool balanced,
                            const KMeansOptions& options, int threads) {
    const Csr::Arrays parts = rows.arrays();
    return give(parts.visit(n_columns, [&](const auto& view) {
        return without_gil([&] { return kmeans(view, n_clusters, balanced, options, threads); });
    }));
}

using LongCsr = std::tuple<In<std::int64_t>, In<std::int64_t>, std::optional<In<float>>>;  // indptr, indices, data

CsrView<std::int64_t> long_view(const LongCsr& matrix, std::int64_t cols) {
    const auto& [indptr, indices, data] = matrix;
    return {ssize(indptr.shape(0)) - 1, cols, indptr.data(), indices.data(), data ? data->data() : nullptr};
}

// first_label, n_labels, n_rows, is_wide, begin, end
using CutTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t, std::int64_t>;

CsrParts py_fit_ovr(const Csr& sparse, std::int64_t n_sparse, In2<float> dense, LongCsr positives,
                    std::optional<LongCsr> negatives, In<std::int64_t> clusters, In<float> positive_costs,
                    const SolverOptions& options, std::tuple<std::int64_t, std::int64_t> part,
                    std::optional<CutTuple> cut_of, int threads, const std::function<void(std::int64_t)>& progress) {
    const Csr::Arrays parts = sparse.arrays();
    const auto [index, n_parts] = part;
    if (n_parts < 1 || n_parts > 1'000'000 || index < 0 || index >= n_parts)
        throw std::invalid_argument("there is no such part of the labels");
    OvrCut cut;
    if (cut_of) {
        const auto [first_label, n_labels, n_rows, is_wide, begin, end] = *cut_of;
        cut = {first_label, n_labels, n_rows, is_wide, begin, end};
    }
    return parts.visit(n_sparse, [&]<class Index>(const CsrView<Index>& view) {
        OvrProblem<Index> problem;
        problem.sparse = view;
        problem.dense = dense.data();
        problem.n_dense = ssize(dense.shape(1));
        problem.positives = long_view(positives, view.rows);
        if (negatives) problem.negatives = long_view(*negatives, view.rows);
        problem.positive_costs = positive_costs.data();
        problem.clusters = clusters.data();
        problem.n_clusters = ssize(clusters.shape(0)) - 1;
        problem.part = index;
        problem.n_parts = n_parts;
        if (cut_of) problem.cut = &cut;
        return give_rows([&] { return fit_ovr(problem, options, threads, progress); });
    });
}

std::tuple<Out<std::uint32_t>, Out<std::uint8_t>, Out<float>> py_pack_weights(
    const Csr& weights, std::int64_t n_features, In<std::int64_t> children,
    std::optional<std::tuple<float, float>> magnitudes, int threads) {
    const Csr::Arrays parts = weights.arrays();
    Magnitudes given;
    if (magnitudes) std::tie(given.smallest, given.largest) = *magnitudes;
    PackedWeights packed = parts.visit(n_features, [&](const auto& view) {
        nb::gil_scoped_release release;
        std::vector<std::int32_t> first_chunk;
        std::vector<std::int64_t> chunks;
        make_chunks(children.data(), ssize(children.shape(0)) - 1, first_chunk, chunks);
        return pack_weights(view, n_features, chunks.data(), ssize(chunks.size()) - 1, threads,
                            magnitudes ? &given : nullptr);
    });
    return {give(std::move(packed.block_starts)), give(std::move(packed.table)), give(std::move(packed.codebook))};
}

Transform transform_of(int transform) {
    if (transform < 0 || transform > 2)
        throw std::invalid_argument("transform must be 0 (noop), 1 (sigmoid) or 2 (hinge)");
    return static_cast<Transform>(transform);
}

std::tuple<Out<std::uint32_t>, Out<std::uint8_t>> py_pack_features(const Csr& weights, std::int64_t n_positions,
                                                                   int threads) {
    const Csr::Arrays parts = weights.arrays();
    PackedFeatures packed = parts.visit(
        n_positions, [&](const auto& view) { return without_gil([&] { return pack_features(view, threads); }); });
    return {give(std::move(packed.block_starts)), give(std::move(packed.blocks))};
}

// block_starts, blocks, positions, dense, bias
using ClassifierArrays = std::tuple<In<std::uint32_t>, In<std::uint8_t>, In<std::int32_t>, In2<float>, In<float>>;

// Calls body(classifiers, queries) once the shapes are checked. The contents of the blocks are checked as far as they
// are followed.
template <class Body>
decltype(auto) with_candidates(const ClassifierArrays& arrays, float dense_norm, const Csr& X,
                               const In2<float>& X_dense, const In2<std::int32_t>& candidates, Body&& body) {
    const auto& [block_starts, blocks, positions, dense, bias] = arrays;
    const std::int64_t n_features = ssize(block_starts.shape(0)) - 1;
    const std::size_t n = positions.shape(0);
    const Csr::Arrays parts = X.arrays();
    if (n_features < 0 || dense.shape(0) != n || bias.shape(0) != n || X_dense.shape(1) != dense.shape(1) ||
        X_dense.shape(0) != candidates.shape(0) || parts.indptr.shape(0) != candidates.shape(0) + 1)
        throw std::invalid_argument("the classifiers, their features and their candidates do not fit together");
    const LinearClassifiers classifiers{
        {n_features, ssize(n), block_starts.data(), blocks.data(), ssize(blocks.shape(0))},
        positions.data(),
        dense.data(),
        ssize(dense.shape(1)),
        bias.data()};
    return parts.visit(n_features, [&]<class Index>(const CsrView<Index>& view) {
        return body(classifiers, CandidateQueries<Index>{view, X_dense.data(), dense_norm, candidates.data(),
                                                         ssize(candidates.shape(1))});
    });
}

Out<float, 2> py_score_candidates(ClassifierArrays classifiers, float dense_norm, const Csr& X, In2<float> X_dense,
                                  In2<std::int32_t> candidates, int threads) {
    return with_candidates(
        classifiers, dense_norm, X, X_dense, candidates, [&](const LinearClassifiers& rows, const auto& queries) {
            return give_matrix<float>(candidates.shape(0), candidates.shape(1),
                                      [&](float* out) { score_candidates(rows, queries, out, threads); });
        });
}

// feature, threshold, left, right, value, depth
using TreeArrays = std::tuple<In<std::int32_t>, In<double>, In<std::int32_t>, In<std::int32_t>, In<float>, int>;

ScoreTree tree_of(const TreeArrays& arrays) {
    const auto& [feature, threshold, left, right, value, depth] = arrays;
    const auto is_below = [&](const In<std::int32_t>& array, std::int64_t bound) {
        return array.shape(0) == value.shape(0) &&
               std::all_of(array.data(), array.data() + array.shape(0), [&](auto x) { return 0 <= x && x < bound; });
    };
    const std::int64_t n = ssize(value.shape(0));
    if (n == 0 || threshold.shape(0) != value.shape(0) || !is_below(feature, ScoreTree::n_features) ||
        !is_below(left, n) || !is_below(right, n))
        throw std::invalid_argument("the nodes of the decision tree do not fit together");
    return {feature.data(), threshold.data(), left.data(), right.data(), value.data(), depth};
}

Ranking py_rank_candidates(ClassifierArrays classifiers, float dense_norm, const Csr& X, In2<float> X_dense,
                           In2<std::int32_t> candidates, In2<float> log_scores, float power, int transform,
                           float transform_power, std::optional<TreeArrays> tree, float tree_weight,
                           In<std::int64_t> counts, std::int64_t k, int threads) {
    if (log_scores.shape(0) != candidates.shape(0) || log_scores.shape(1) != candidates.shape(1) ||
        counts.shape(0) != std::get<2>(classifiers).shape(0) || k < 1)
        throw std::invalid_argument("the candidates, their scores and the labels do not fit together");
    CandidateBlend blend{power, transform_of(transform), transform_power, std::nullopt, tree_weight, counts.data()};
    if (tree) blend.tree = tree_of(*tree);
    return with_candidates(classifiers, dense_norm, X, X_dense, candidates,
                           [&](const LinearClassifiers& rows, const auto& queries) {
                               return give_ranking(candidates.shape(0), k, [&](std::int32_t* ids, float* scores) {
                                   rank_candidates(rows, blend, queries, log_scores.data(), k, ids, scores, threads);
                               });
                           });
}

// A tree of packed levels over arrays that Python keeps alive (mostly memory-mapped).
class PyBeamTree {
public:
    PyBeamTree(std::int64_t n_sparse, std::optional<In<std::int32_t>> labels, std::int64_t n_labels, bool repeats)
        : n_sparse_(n_sparse), labels_(labels) {
        model_.labels = labels ? labels->data() : nullptr;
        model_.n_labels = n_labels;
        model_.repeats = repeats && labels.has_value();  // nodes never repeat
    }

    // Sizes are checked here; the contents of the table are checked by the search, as far as it follows them.
    void add_level(In<std::int64_t> children, In<std::uint32_t> block_starts, In<std::uint8_t> table,
                   In<float> codebook, In<float> bias, In2<float> dense, int transform, float power, bool is_norm) {
        const std::int64_t n_above = model_.levels.empty() ? 1 : model_.levels.back().n_nodes;
        const auto n_parents = ssize(children.shape(0)) - 1;
        if (n_parents != n_above || children.data()[0] != 0 ||
            !std::is_sorted(children.data(), children.data() + n_parents + 1) ||
            children.data()[n_parents] > std::numeric_limits<std::int32_t>::max())
            throw std::invalid_argument("the levels of the tree do not fit together");
        BeamLevel level;
        level.n_parents = n_parents;
        level.n_nodes = children.data()[n_parents];
        level.children = children.data();
        const auto n_nodes = static_cast<std::size_t>(level.n_nodes);
        if (block_starts.shape(0) != static_cast<std::size_t>(n_sparse_) + 1 || codebook.shape(0) != 256 ||
            bias.shape(0) != n_nodes || dense.shape(0) != n_nodes || ssize(table.shape(0)) < table_padding ||
            (!model_.levels.empty() && ssize(dense.shape(1)) != model_.levels.back().n_dense))
            throw std::invalid_argument("the weights of a level do not fit its nodes");
        make_chunks(level.children, n_parents, level.first_chunk, level.chunks);
        level.weights.n_features = n_sparse_;
        level.weights.block_starts = block_starts.data();
        level.weights.table = table.data();
        level.weights.table_size = ssize(table.shape(0));
        read_codebook(codebook.data(), level.weights.scale, level.weights.mantissa_bits);
        level.weights.n_nodes = level.n_nodes;
        level.weights.n_chunks = ssize(level.chunks.size()) - 1;
        level.bias = bias.data();
        level.dense = dense.data();
        level.n_dense = ssize(dense.shape(1));
        level.transform = transform_of(transform);
        level.power = power;
        level.is_norm = is_norm;
        bool is_finite = true;
        for (std::size_t i = 0; i < n_nodes; ++i) {
            level.max_bias = std::max(level.max_bias, bias.data()[i]);
            is_finite &= std::isfinite(bias.data()[i]);
        }
        if (!is_finite) throw std::invalid_argument("the constant terms of a level are not all finite");
        for (std::size_t i = 0; i < 256; ++i)
            level.max_weight = std::max(level.max_weight, std::abs(codebook.data()[i]));
        model_.levels.push_back(std::move(level));
        batch_weights_ = std::make_unique<BatchWeights>(model_.levels.size());
        kept_.emplace_back(children, block_starts, table, codebook, bias, dense);
    }

    Ranking search(IndexArray indptr, IndexArray indices, In<float> data, In2<float> dense, std::int64_t depth,
                   std::int64_t beam_size, std::int64_t k, float max_gap, int threads,
                   std::optional<In<std::uint8_t>> mask) const {
        check_queries(indptr, dense);
        std::int64_t n_nodes = 0;
        for (const BeamLevel& level : model_.levels) n_nodes += level.n_nodes;
        if (mask && ssize(mask->shape(0)) != n_nodes)
            throw std::invalid_argument("the mask does not have one entry for each node of the tree");
        if (depth < 1 || depth > ssize(model_.levels.size()) || beam_size < 1 || k < 1)
            throw std::invalid_argument(
                "depth, beam_size and k must be at least 1, and depth at most the depth of the tree");
        if (labels_ && ssize(labels_->shape(0)) != model_.levels.back().n_nodes)
            throw std::invalid_argument("the labels of the tree do not fit its last level");
        std::int64_t most_nodes = 1;  // a wider beam cannot be filled
        for (const BeamLevel& level : model_.levels) most_nodes = std::max(most_nodes, level.n_nodes);
        beam_size = std::min(beam_size, most_nodes);
        return with_csr(indptr, indices, data.data(), n_sparse_, [&]<class Index>(const CsrView<Index>& view) {
            return give_ranking(static_cast<std::size_t>(view.rows), k, [&](std::int32_t* ids, float* scores) {
                beam_search(model_, QueryRows<Index>{view, dense.data()},
                            {depth, beam_size, k, max_gap, mask ? mask->data() : nullptr}, threads, *batch_weights_,
                            ids, scores);
            });
        });
    }

    Out<float> score_selected(IndexArray indptr, IndexArray indices, In<float> data, In2<float> dense,
                              In<std::int64_t> label_indptr, In<std::int32_t> labels, In<std::int64_t> leaf_indptr,
                              In<std::int32_t> leaves, int threads) const {
        check_queries(indptr, dense);
        std::vector<float> scores(labels.shape(0));
        with_csr(indptr, indices, data.data(), n_sparse_, [&]<class Index>(const CsrView<Index>& view) {
            nb::gil_scoped_release release;
            ramify::score_selected(model_, QueryRows<Index>{view, dense.data()}, label_indptr.data(), labels.data(),
                                   leaf_indptr.data(), leaves.data(), threads, scores.data());
        });
        return give(std::move(scores));
    }

private:
    void check_queries(const IndexArray& indptr, const In2<float>& dense) const {
        const std::int64_t n_dense = model_.levels.empty() ? 0 : model_.levels.back().n_dense;
        if (ssize(dense.shape(1)) != n_dense || dense.shape(0) + 1 != indptr.shape(0))
            throw std::invalid_argument("the dense features of the queries do not fit the model");
    }

    BeamModel model_;
    std::unique_ptr<BatchWeights> batch_weights_;
    std::int64_t n_sparse_;
    std::optional<In<std::int32_t>> labels_;
    std::vector<std::tuple<In<std::int64_t>, In<std::uint32_t>, In<std::uint8_t>, In<float>, In<float>, In2<float>>>
        kept_;
};

Out<float> py_score_boosted(In<std::int64_t> indptr, In<std::int32_t> features, In<float> thresholds,
                            In<std::uint32_t> masks, In2<float> leaves, In2<float> columns, int threads) {
    const BoostedView trees{ssize(leaves.shape(0)), indptr.data(), features.data(),
                            thresholds.data(),      masks.data(),  leaves.data()};
    const std::size_t d = columns.shape(0), n = columns.shape(1);
    auto scores = std::make_unique_for_overwrite<float[]>(n);
    without_gil([&] { score_boosted(trees, columns.data(), ssize(n), ssize(d), threads, scores.get()); });
    return give(std::move(scores), {n});
}

// Weights (nnz of W), weight of common terms, and bias.
std::tuple<Out<float>, float, float> py_fit_bilinear(const Csr& X, const Csr& Z, const Csr& pairs, In<float> costs,
                                                     const Csr& W, float positive_cost, float negative_cost,
                                                     float tolerance, int max_epochs, std::uint64_t seed) {
    const auto narrow = nb::dtype<std::int32_t>();
    const auto view = [&](const Csr::Arrays& parts, std::int64_t cols) {
        if (parts.indptr.dtype() != narrow || parts.indices.dtype() != narrow)
            throw nb::type_error("the index arrays of the CSR matrices must be int32");
        return CsrView<std::int32_t>{ssize(parts.indptr.shape(0)) - 1, cols,
                                     static_cast<const std::int32_t*>(parts.indptr.data()),
                                     static_cast<const std::int32_t*>(parts.indices.data()), parts.data->data()};
    };
    const Csr::Arrays x = X.arrays(), z = Z.arrays(), p = pairs.arrays(), w = W.arrays();
    const std::int64_t d = ssize(w.indptr.shape(0)) - 1, n_labels = ssize(z.indptr.shape(0)) - 1;
    const auto terms = static_cast<const std::int32_t*>(z.indices.data());
    const std::size_t n_entries = z.indices.shape(0);
    const std::int64_t e = n_entries == 0 ? 0 : *std::max_element(terms, terms + n_entries) + std::int64_t{1};
    const auto linked = static_cast<const std::int32_t*>(w.indices.data());
    const std::size_t n_weights = w.indices.shape(0);
    const std::int64_t last = n_weights == 0 ? 0 : *std::max_element(linked, linked + n_weights) + std::int64_t{1};
    std::vector<float> weights(n_weights);
    const BilinearOptions options{positive_cost, negative_cost, tolerance, max_epochs, seed};
    const BilinearShared shared = without_gil([&] {
        return fit_bilinear(view(x, d), view(z, std::max(e, last)), view(p, n_labels), costs.data(),
                            view(w, std::max(e, last)), options, weights.data());
    });
    return {give(std::move(weights)), shared.direct, shared.bias};
}

}  // namespace

void bind_linear(nb::module_& m) {
    m.def("score_boosted", py_score_boosted, array("indptr"), array("features"), array("thresholds"), array("masks"),
          array("leaves"), array("columns"), nb::arg("threads"));
    m.def("fit_bilinear", py_fit_bilinear, nb::arg("X"), nb::arg("Z"), nb::arg("pairs"), array("costs"), nb::arg("W"),
          nb::arg("positive_cost"), nb::arg("negative_cost"), nb::arg("tolerance"), nb::arg("max_epochs"),
          nb::arg("seed"));
    m.attr("MARGIN_BONUS") = margin_bonus;

    nb::class_<KMeansOptions>(m, "KMeansOptions")
        .def(nb::init<bool, int, double, std::uint64_t>(), nb::kw_only(), nb::arg("spherical"),
             nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"));
    m.def("balanced_2means", py_balanced_2means, nb::arg("rows"), nb::arg("n_columns"), nb::arg("depth"),
          nb::arg("options"), nb::arg("threads"));
    m.def("kmeans", py_kmeans, nb::arg("rows"), nb::arg("n_columns"), nb::arg("n_clusters"), nb::arg("balanced"),
          nb::arg("options"), nb::arg("threads"));

    nb::enum_<Loss>(m, "Loss")
        .value("squared_hinge", Loss::squared_hinge)
        .value("hinge", Loss::hinge)
        .value("logistic", Loss::logistic)
        .value("dead_zone_logistic", Loss::dead_zone_logistic);
    nb::class_<SolverOptions>(m, "SolverOptions")
        .def(nb::init<Loss, float, float, float, bool, float, int, int, float, float, std::int64_t, std::uint64_t>(),
             nb::kw_only(), nb::arg("loss"), nb::arg("negative_cost"), nb::arg("bias"), nb::arg("dead_zone"),
             nb::arg("positive_features"), nb::arg("tolerance"), nb::arg("max_epochs"), nb::arg("max_full_epochs"),
             nb::arg("negative_fraction"), nb::arg("threshold"), nb::arg("max_weights"), nb::arg("seed"));
    m.attr("MIN_SAMPLED_ROWS") = min_sampled_rows;
    m.def("fit_ovr", py_fit_ovr, nb::arg("sparse"), nb::arg("n_sparse"), array("dense"), array("positives"),
          array("negatives").none(), array("clusters"), array("positive_costs"), nb::arg("options"), nb::arg("part"),
          nb::arg("cut").none(), nb::arg("threads"), nb::arg("progress").none());
    m.def("ovr_job_size", ovr_job_size, nb::arg("n_labels"));

    m.def("pack_weights", py_pack_weights, nb::arg("weights"), nb::arg("n_features"), array("children"),
          nb::arg("magnitudes").none(), nb::arg("threads"));
    m.def("pack_features", py_pack_features, nb::arg("weights"), nb::arg("n_positions"), nb::arg("threads"));
    m.def("score_candidates", py_score_candidates, array("classifiers"), nb::arg("dense_norm"), nb::arg("X"),
          array("X_dense"), array("candidates"), nb::arg("threads"));
    m.def("rank_candidates", py_rank_candidates, array("classifiers"), nb::arg("dense_norm"), nb::arg("X"),
          array("X_dense"), array("candidates"), array("log_scores"), nb::kw_only(), nb::arg("power"),
          nb::arg("transform"), nb::arg("transform_power"), array("tree").none(), nb::arg("tree_weight"),
          array("counts"), nb::arg("k"), nb::arg("threads"));
    nb::class_<PyBeamTree>(m, "BeamTree")
        .def(nb::init<std::int64_t, std::optional<In<std::int32_t>>, std::int64_t, bool>(), nb::arg("n_sparse"),
             array("labels").none(), nb::arg("n_labels"), nb::arg("repeats"))
        .def("add_level", &PyBeamTree::add_level, nb::kw_only(), array("children"), array("block_starts"),
             array("blocks"), array("codebook"), array("bias"), array("dense"), nb::arg("transform"), nb::arg("power"),
             nb::arg("is_norm"))
        .def("search", &PyBeamTree::search, array("indptr"), array("indices"), array("data"), array("dense"),
             nb::arg("depth"), nb::arg("beam_size"), nb::arg("k"), nb::kw_only(), nb::arg("max_gap"),
             nb::arg("threads"), nb::arg("mask") = nb::none())
        .def("score_selected", &PyBeamTree::score_selected, array("indptr"), array("indices"), array("data"),
             array("dense"), array("label_indptr"), array("labels"), array("leaf_indptr"), array("leaves"),
             nb::arg("threads"));
}

}  // namespace ramify
