// Sparse products, rankings and their metrics.
#include "bindings/common.h"

#include "matrix/metrics.h"
#include "matrix/spmm.h"
#include "core/topk.h"

namespace ramify {

namespace {

template <class Index>
bool py_is_canonical(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_rows, std::int64_t n_columns) {
    if (static_cast<std::int64_t>(indptr.shape(0)) != n_rows + 1) return false;
    return is_canonical(csr_view<Index>(indptr, indices, data.data(), n_columns),
                        static_cast<std::int64_t>(std::min(indices.shape(0), data.shape(0))));
}

template <class Index>
nb::tuple py_spmm(In<Index> a_indptr, In<Index> a_indices, In<float> a_data, In<Index> b_indptr, In<Index> b_indices,
                  In<float> b_data, std::int64_t n_columns, bool unit_rows, int threads) {
    const auto a = csr_view<Index>(a_indptr, a_indices, a_data.data(), static_cast<std::int64_t>(b_indptr.shape(0)) - 1);
    const auto b = csr_view<Index>(b_indptr, b_indices, b_data.data(), n_columns);
    CsrRows rows;
    {
        nb::gil_scoped_release release;
        rows = spmm(a, b, unit_rows, threads);
    }
    return give_rows(std::move(rows));
}

template <class Index>
Out<float> py_spmm_dense(In<Index> a_indptr, In<Index> a_indices, In<float> a_data, In2<float> b, int threads) {
    const auto a = csr_view<Index>(a_indptr, a_indices, a_data.data(), static_cast<std::int64_t>(b.shape(0)));
    const auto m = static_cast<std::size_t>(a.rows), q = b.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(m * q);
    {
        nb::gil_scoped_release release;
        spmm_dense(a, b.data(), static_cast<std::int64_t>(q), threads, out.get());
    }
    return give_new(std::move(out), {m, q});
}

template <class Index>
Out<std::uint8_t> py_hits(In2<std::int32_t> ids, In<Index> indptr, In<Index> indices, std::int64_t n_labels, int threads) {
    const RankingView ranking{ids.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1))};
    auto hit = std::make_unique_for_overwrite<std::uint8_t[]>(ids.size());
    {
        nb::gil_scoped_release release;
        ranking_hits(ranking, csr_view<Index>(indptr, indices, nullptr, n_labels), threads, hit.get());
    }
    return give_new(std::move(hit), {ids.shape(0), ids.shape(1)});
}

template <class Index>
nb::dict py_sums(In2<std::int32_t> ids, In<Index> indptr, In<Index> indices, std::int64_t n_labels,
                 In<std::int64_t> cutoffs, In<double> weights, In<std::uint8_t> groups, std::int64_t n_groups, int threads) {
    const RankingView ranking{ids.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1))};
    RankingSums sums;
    {
        nb::gil_scoped_release release;
        sums = ranking_sums(ranking, csr_view<Index>(indptr, indices, nullptr, n_labels), cutoffs.data(),
                            static_cast<std::int64_t>(cutoffs.shape(0)), weights.data(), groups.data(), n_groups, threads);
    }
    const std::size_t g = static_cast<std::size_t>(n_groups), k = cutoffs.shape(0);
    nb::dict result;
    result["hits"] = give_vector(std::move(sums.hits), {g, k});
    result["ndcg"] = give_vector(std::move(sums.ndcg), {g, k});
    result["recall"] = give_vector(std::move(sums.recall), {g, k});
    result["weighted_hits"] = give_vector(std::move(sums.weighted_hits), {g, k});
    result["weighted_ndcg"] = give_vector(std::move(sums.weighted_ndcg), {g, k});
    result["best_weighted_hits"] = give_vector(std::move(sums.best_weighted_hits));
    result["best_weighted_ndcg"] = give_vector(std::move(sums.best_weighted_ndcg));
    result["first_rank"] = give_vector(std::move(sums.first_rank));
    result["n_rows"] = sums.n_rows;
    return result;
}

// Ids and scores (n, k) that `fill` writes, as arrays of Python.
template <class Fill>
nb::tuple give_ranking(std::size_t n, std::int64_t k, Fill fill) {
    const auto width = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
    auto scores = std::make_unique_for_overwrite<float[]>(n * width);
    {
        nb::gil_scoped_release release;
        fill(ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, width}), give_new(std::move(scores), {n, width}));
}

template <class Index>
nb::tuple py_topk(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t k, int threads) {
    const CsrView<Index> matrix = csr_view<Index>(indptr, indices, data.data(), 0);
    return give_ranking(static_cast<std::size_t>(matrix.rows), k,
                        [&](std::int32_t* best_ids, float* best_scores) { csr_topk(matrix, k, threads, best_ids, best_scores); });
}

template <class Index>
nb::tuple py_largest_entries(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n, int threads) {
    CsrRows rows;
    {
        nb::gil_scoped_release release;
        rows = largest_entries(csr_view<Index>(indptr, indices, data.data(), 0), n, threads);
    }
    return give_rows(std::move(rows));
}

nb::tuple py_blend_rankings(nb::ndarray<const std::int32_t, nb::ndim<3>, nb::c_contig> ids,
                            nb::ndarray<const float, nb::ndim<3>, nb::c_contig> scores, std::int64_t k, int threads) {
    return give_ranking(ids.shape(1), k, [&](std::int32_t* best_ids, float* best_scores) {
        blend_rankings(ids.data(), scores.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1)),
                       static_cast<std::int64_t>(ids.shape(2)), k, threads, best_ids, best_scores);
    });
}

nb::tuple py_list_topk(nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig> ids,
                       nb::ndarray<const float, nb::ndim<2>, nb::c_contig> scores, std::int64_t k, int threads) {
    return give_ranking(ids.shape(0), k, [&](std::int32_t* best_ids, float* best_scores) {
        list_topk(ids.data(), scores.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1)), k, threads,
                  best_ids, best_scores);
    });
}

}  // namespace

void bind_matrices(nb::module_& m) {
    m.def("ranking_hits", py_hits<std::int32_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"), nb::arg("threads"));
    m.def("ranking_hits", py_hits<std::int64_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"), nb::arg("threads"));
    m.def("ranking_sums", py_sums<std::int32_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"),
          nb::arg("cutoffs"), nb::arg("weights"), nb::arg("groups"), nb::arg("n_groups"), nb::arg("threads"));
    m.def("ranking_sums", py_sums<std::int64_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"),
          nb::arg("cutoffs"), nb::arg("weights"), nb::arg("groups"), nb::arg("n_groups"), nb::arg("threads"));
    m.def("is_canonical", py_is_canonical<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_rows"), nb::arg("n_columns"));
    m.def("is_canonical", py_is_canonical<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_rows"), nb::arg("n_columns"));
    m.def("spmm", py_spmm<std::int32_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b_indptr"),
          nb::arg("b_indices"), nb::arg("b_data"), nb::arg("n_columns"), nb::arg("unit_rows"), nb::arg("threads"));
    m.def("spmm", py_spmm<std::int64_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b_indptr"),
          nb::arg("b_indices"), nb::arg("b_data"), nb::arg("n_columns"), nb::arg("unit_rows"), nb::arg("threads"));
    m.def("spmm_dense", py_spmm_dense<std::int32_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b"), nb::arg("threads"));
    m.def("spmm_dense", py_spmm_dense<std::int64_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b"), nb::arg("threads"));
    m.def("largest_entries", py_largest_entries<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n"), nb::arg("threads"));
    m.def("largest_entries", py_largest_entries<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n"), nb::arg("threads"));
    m.def("blend_rankings", py_blend_rankings, nb::arg("ids"), nb::arg("scores"), nb::arg("k"), nb::arg("threads"));
    m.def("list_topk", py_list_topk, nb::arg("ids"), nb::arg("scores"), nb::arg("k"), nb::arg("threads"));
    m.def("csr_topk", py_topk<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("k"), nb::arg("threads"));
    m.def("csr_topk", py_topk<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("k"), nb::arg("threads"));
}

}  // namespace ramify
