// Clusters, linear rankers and the search.
#include "bindings/common.h"

#include "linear/beam.h"
#include "linear/kmeans.h"
#include "linear/ovr_solver.h"
#include "linear/packed.h"

namespace ramify {

namespace {

template <class Index>
Out<std::int32_t> py_balanced_halves(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_columns, int depth,
                                     bool spherical, int max_iterations, double tolerance, std::uint64_t seed, int threads) {
    std::vector<std::int32_t> order;
    {
        nb::gil_scoped_release release;
        order = balanced_halves(csr_view<Index>(indptr, indices, data.data(), n_columns), depth,
                                {spherical, max_iterations, tolerance, seed}, threads);
    }
    return give_vector(std::move(order));
}

template <class Index>
Out<std::int32_t> py_kmeans(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_columns, std::int64_t n_clusters,
                            bool balanced, bool spherical, int max_iterations, double tolerance, std::uint64_t seed, int threads) {
    std::vector<std::int32_t> clusters;
    {
        nb::gil_scoped_release release;
        clusters = kmeans(csr_view<Index>(indptr, indices, data.data(), n_columns), n_clusters, balanced,
                          {spherical, max_iterations, tolerance, seed}, threads);
    }
    return give_vector(std::move(clusters));
}

using LongCsr = std::tuple<In<std::int64_t>, In<std::int64_t>, std::optional<In<float>>>;

CsrView<std::int64_t> long_view(const LongCsr& matrix, std::int64_t cols) {
    const auto& [indptr, indices, data] = matrix;
    return csr_view<std::int64_t>(indptr, indices, data ? data->data() : nullptr, cols);
}

template <class Index>
nb::tuple py_fit_ovr(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_sparse, In2<float> dense,
                     LongCsr positives, std::optional<LongCsr> negatives, In<std::int64_t> clusters,
                     std::optional<LongCsr> start, int loss, In<float> positive_costs, float negative_cost, float bias,
                     float tolerance, int max_passes, float threshold, std::int64_t max_weights, std::uint64_t seed,
                     int threads, std::optional<nb::callable> progress) {
    OvrProblem<Index> problem;
    problem.sparse = csr_view<Index>(indptr, indices, data.data(), n_sparse);
    problem.dense = dense.data();
    problem.n_dense = static_cast<std::int64_t>(dense.shape(1));
    problem.positives = long_view(positives, problem.sparse.rows);
    if (negatives) problem.negatives = long_view(*negatives, problem.sparse.rows);
    if (start) problem.start = long_view(*start, n_sparse + problem.n_dense + 1);
    problem.positive_costs = positive_costs.data();
    problem.clusters = clusters.data();
    problem.n_clusters = static_cast<std::int64_t>(clusters.shape(0)) - 1;
    const SolverOptions options{static_cast<Loss>(loss), negative_cost, bias, tolerance, max_passes, threshold, seed};
    std::function<void(std::int64_t)> report;
    if (progress)
        report = [&](std::int64_t done) {
            nb::gil_scoped_acquire gil;
            (*progress)(done);
        };
    CsrRows rows;
    SolverCounts counts;
    {
        nb::gil_scoped_release release;
        rows = fit_ovr(problem, options, max_weights, threads, report, counts);
    }
    return nb::make_tuple(give_rows(std::move(rows)), counts.visits, counts.passes, counts.unfinished);
}

template <class Index>
nb::tuple py_pack_weights(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_features, In<std::int64_t> children, int threads) {
    std::vector<std::int32_t> first_piece;
    std::vector<std::int64_t> pieces;
    PackedWeights packed;
    {
        nb::gil_scoped_release release;
        make_pieces(children.data(), static_cast<std::int64_t>(children.shape(0)) - 1, first_piece, pieces);
        packed = pack_weights(csr_view<Index>(indptr, indices, data.data(), n_features), n_features, pieces.data(), static_cast<std::int64_t>(pieces.size()) - 1, threads);
    }
    return nb::make_tuple(give_vector(std::move(packed.heads)), give_vector(std::move(packed.table)), give_vector(std::move(packed.codebook)));
}

// A tree of packed levels over arrays that Python keeps alive (memory-mapped, mostly).
class PyBeamTree {
public:
    PyBeamTree(std::int64_t n_sparse, std::optional<In<std::int32_t>> labels, std::int64_t n_labels, bool repeats)
        : n_sparse_(n_sparse), labels_(labels) {
        model_.labels = labels ? labels->data() : nullptr;
        model_.n_labels = n_labels;
        model_.repeats = repeats && labels.has_value();  // nodes never repeat
    }

    // Sizes are checked here; what the table says is checked by the search, as far as it follows it.
    void add_level(In<std::int64_t> children, In<std::uint32_t> heads, In<std::uint8_t> table, In<float> codebook,
                   In<float> bias, In2<float> dense, int transform, float power) {
        const std::int64_t n_above = model_.levels.empty() ? 1 : model_.levels.back().n_nodes;
        const auto n_parents = static_cast<std::int64_t>(children.shape(0)) - 1;
        if (n_parents != n_above || children.data()[0] != 0 || !std::is_sorted(children.data(), children.data() + n_parents + 1) ||
            children.data()[n_parents] > std::numeric_limits<std::int32_t>::max())
            throw std::invalid_argument("the levels of the tree do not fit together");
        BeamLevel level;
        level.n_parents = n_parents;
        level.n_nodes = children.data()[n_parents];
        level.children = children.data();
        const auto n_nodes = static_cast<std::size_t>(level.n_nodes);
        if (heads.shape(0) != static_cast<std::size_t>(n_sparse_) + 1 || codebook.shape(0) != 256 || bias.shape(0) != n_nodes ||
            dense.shape(0) != n_nodes || static_cast<std::int64_t>(table.shape(0)) < table_padding ||
            (!model_.levels.empty() && static_cast<std::int64_t>(dense.shape(1)) != model_.levels.back().n_dense))
            throw std::invalid_argument("the weights of a level do not fit its nodes");
        make_pieces(level.children, n_parents, level.first_piece, level.pieces);
        level.weights = {n_sparse_, heads.data(), table.data(), static_cast<std::int64_t>(table.shape(0)), codebook.data(),
                         static_cast<std::int64_t>(level.pieces.size()) - 1};
        level.bias = bias.data();
        level.dense = dense.data();
        level.n_dense = static_cast<std::int64_t>(dense.shape(1));
        level.transform = static_cast<Transform>(transform);
        level.power = power;
        model_.levels.push_back(std::move(level));
        kept_.emplace_back(children, heads, table, codebook, bias, dense);
    }

    template <class Index>
    nb::tuple search(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense, std::int64_t depth,
                     std::int64_t beam_size, std::int64_t k, int threads) const {
        const QueryRows<Index> queries = rows_of(indptr, indices, data, dense);
        if (depth < 1 || depth > static_cast<std::int64_t>(model_.levels.size()) || beam_size < 1 || k < 1)
            throw std::invalid_argument("depth, beam and k must be at least 1, and the tree that deep");
        if (labels_ && static_cast<std::int64_t>(labels_->shape(0)) != model_.levels.back().n_nodes)
            throw std::invalid_argument("the labels of the tree do not fit its last level");
        const auto n = static_cast<std::size_t>(queries.sparse.rows), width = static_cast<std::size_t>(k);
        auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
        auto scores = std::make_unique_for_overwrite<float[]>(n * width);
        {
            nb::gil_scoped_release release;
            beam_search(model_, queries, depth, beam_size, k, threads, ids.get(), scores.get());
        }
        return nb::make_tuple(give_new(std::move(ids), {n, width}), give_new(std::move(scores), {n, width}));
    }

    template <class Index>
    Out<float> selected(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense, In<std::int64_t> rows,
                        In<std::int32_t> labels, In<std::int64_t> place_begin, In<std::int32_t> places, int threads) const {
        const QueryRows<Index> queries = rows_of(indptr, indices, data, dense);
        auto scores = std::make_unique_for_overwrite<float[]>(labels.shape(0));
        {
            nb::gil_scoped_release release;
            score_selected(model_, queries, rows.data(), labels.data(), place_begin.data(), places.data(), threads, scores.get());
        }
        return give_new(std::move(scores), {labels.shape(0)});
    }

private:
    template <class Index>
    QueryRows<Index> rows_of(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense) const {
        const std::int64_t n_dense = model_.levels.empty() ? 0 : model_.levels.back().n_dense;
        if (static_cast<std::int64_t>(dense.shape(1)) != n_dense || dense.shape(0) + 1 != indptr.shape(0))
            throw std::invalid_argument("the dense part of the query does not fit the model");
        return {csr_view<Index>(indptr, indices, data.data(), n_sparse_), dense.data()};
    }

    BeamModel model_;
    std::int64_t n_sparse_;
    std::optional<In<std::int32_t>> labels_;
    std::vector<std::tuple<In<std::int64_t>, In<std::uint32_t>, In<std::uint8_t>, In<float>, In<float>, In2<float>>> kept_;
};

}  // namespace

void bind_rankers(nb::module_& m) {
    m.def("balanced_halves", py_balanced_halves<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"),
          nb::arg("depth"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("balanced_halves", py_balanced_halves<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"),
          nb::arg("depth"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("kmeans", py_kmeans<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("n_clusters"),
          nb::arg("balanced"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("kmeans", py_kmeans<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("n_clusters"),
          nb::arg("balanced"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("pack_weights", py_pack_weights<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_features"),
          nb::arg("children"), nb::arg("threads"));
    m.def("pack_weights", py_pack_weights<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_features"),
          nb::arg("children"), nb::arg("threads"));
    nb::class_<PyBeamTree>(m, "BeamTree")
        .def(nb::init<std::int64_t, std::optional<In<std::int32_t>>, std::int64_t, bool>(), nb::arg("n_sparse"),
             nb::arg("labels").none(), nb::arg("n_labels"), nb::arg("repeats"))
        .def("add_level", &PyBeamTree::add_level, nb::arg("children"), nb::arg("heads"), nb::arg("table"), nb::arg("codebook"),
             nb::arg("bias"), nb::arg("dense"), nb::arg("transform"), nb::arg("power"))
        .def("search", &PyBeamTree::search<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("dense"),
             nb::arg("depth"), nb::arg("beam_size"), nb::arg("k"), nb::arg("threads"))
        .def("search", &PyBeamTree::search<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("dense"),
             nb::arg("depth"), nb::arg("beam_size"), nb::arg("k"), nb::arg("threads"))
        .def("score_selected", &PyBeamTree::selected<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
             nb::arg("dense"), nb::arg("rows"), nb::arg("labels"), nb::arg("place_begin"), nb::arg("places"), nb::arg("threads"))
        .def("score_selected", &PyBeamTree::selected<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
             nb::arg("dense"), nb::arg("rows"), nb::arg("labels"), nb::arg("place_begin"), nb::arg("places"), nb::arg("threads"));
    m.def("fit_ovr", py_fit_ovr<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_sparse"), nb::arg("dense"), nb::arg("positives"), nb::arg("negatives").none(), nb::arg("clusters"), nb::arg("start").none(), nb::arg("loss"), nb::arg("positive_costs"), nb::arg("negative_cost"), nb::arg("bias"), nb::arg("tolerance"), nb::arg("max_passes"), nb::arg("threshold"), nb::arg("max_weights"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none());
    m.def("fit_ovr", py_fit_ovr<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_sparse"), nb::arg("dense"), nb::arg("positives"), nb::arg("negatives").none(), nb::arg("clusters"), nb::arg("start").none(), nb::arg("loss"), nb::arg("positive_costs"), nb::arg("negative_cost"), nb::arg("bias"), nb::arg("tolerance"), nb::arg("max_passes"), nb::arg("threshold"), nb::arg("max_weights"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace ramify
