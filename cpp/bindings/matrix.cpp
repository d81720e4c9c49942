// Sparse and dense matrix kernels, top-k selection and ranking metrics.
#include <algorithm>
#include <span>

#include "bindings/common.h"
#include "matrix/csr_topk.h"
#include "matrix/dense.h"
#include "matrix/metrics.h"
#include "matrix/nearest_rows.h"
#include "matrix/rankings.h"
#include "matrix/spmm.h"
#include "matrix/take_rows.h"

namespace ramify {

namespace {

RankingView ranking_view(const In2<std::int32_t>& ids) {
    return {ids.data(), ssize(ids.shape(0)), ssize(ids.shape(1))};
}

bool py_is_canonical(const Csr& matrix, std::int64_t n_rows, std::int64_t n_columns, float limit) {
    const Csr::Arrays parts = matrix.arrays();
    if (ssize(parts.indptr.shape(0)) != n_rows + 1) return false;
    const std::int64_t nnz = ssize(std::min(parts.indices.shape(0), parts.data->shape(0)));
    return parts.visit(n_columns, [&](const auto& view) { return is_canonical(view, nnz, limit); });
}

CsrParts py_spmm(const Csr& a, const Csr& b, std::int64_t n_columns, bool unit_norm, int threads) {
    const Csr::Arrays left = a.arrays(), right = b.arrays();
    return right.visit(n_columns, [&]<class Index>(const CsrView<Index>& b_view) {
        if (left.indptr.dtype() != nb::dtype<Index>() || left.indices.dtype() != nb::dtype<Index>())
            throw nb::type_error("the index arrays of both CSR matrices must have the same type");
        const CsrView<Index> a_view{ssize(left.indptr.shape(0)) - 1, b_view.rows,
                                    static_cast<const Index*>(left.indptr.data()),
                                    static_cast<const Index*>(left.indices.data()), left.data->data()};
        return give_rows([&] { return spmm(a_view, b_view, unit_norm, threads); });
    });
}

Ranking py_nearest_rows(In<std::int64_t> indptr, In<std::int32_t> samples, In<float> values, std::int64_t n_samples,
                        const Csr& queries, std::int64_t k, int threads) {
    const Csr::Arrays parts = queries.arrays();
    const PostingsView postings{n_samples, ssize(indptr.shape(0)) - 1, indptr.data(), samples.data(), values.data()};
    return parts.visit(postings.n_columns, [&](const auto& view) {
        return give_ranking(static_cast<std::size_t>(view.rows), k, [&](std::int32_t* ids, float* products) {
            nearest_rows(postings, view, k, threads, ids, products);
        });
    });
}

Out<float, 2> py_selected_products(const Csr& queries, const Csr& rows, std::int64_t n_columns, In2<std::int32_t> ids,
                                   int threads) {
    const Csr::Arrays left = queries.arrays(), right = rows.arrays();
    return right.visit(n_columns, [&]<class Index>(const CsrView<Index>& row_view) {
        if (left.indptr.dtype() != nb::dtype<Index>() || left.indices.dtype() != nb::dtype<Index>())
            throw nb::type_error("the index arrays of both CSR matrices must have the same type");
        const CsrView<Index> query_view{ssize(left.indptr.shape(0)) - 1, n_columns,
                                        static_cast<const Index*>(left.indptr.data()),
                                        static_cast<const Index*>(left.indices.data()), left.data->data()};
        return give_matrix<float>(ids.shape(0), ids.shape(1), [&](float* out) {
            selected_products(query_view, row_view, ids.data(), ssize(ids.shape(1)), threads, out);
        });
    });
}

Out<float, 2> py_spmm_dense(const Csr& a, In2<float> b, int threads) {
    const Csr::Arrays parts = a.arrays();
    return parts.visit(ssize(b.shape(0)), [&](const auto& view) {
        return give_matrix<float>(static_cast<std::size_t>(view.rows), b.shape(1),
                                  [&](float* out) { spmm_dense(view, b.data(), ssize(b.shape(1)), threads, out); });
    });
}

Out<std::uint8_t, 2> py_ranking_hits(In2<std::int32_t> ids, const Csr& truth, std::int64_t n_labels, int threads) {
    const Csr::Arrays parts = truth.pattern();
    return parts.visit(n_labels, [&](const auto& view) {
        return give_matrix<std::uint8_t>(ids.shape(0), ids.shape(1), [&](std::uint8_t* hit) {
            ranking_hits(ranking_view(ids), view, threads, hit);
        });
    });
}

nb::typed<nb::dict, nb::str, nb::object> py_ranking_sums(In2<std::int32_t> ids, const Csr& truth,
                                                         In<std::int64_t> cutoffs, In<double> weights,
                                                         In<std::uint8_t> groups, std::int64_t n_groups, int threads) {
    const Csr::Arrays parts = truth.pattern();
    RankingSums sums = parts.visit(ssize(weights.shape(0)), [&](const auto& view) {
        nb::gil_scoped_release release;
        return ranking_sums(ranking_view(ids), view, cutoffs.data(), ssize(cutoffs.shape(0)), weights.data(),
                            groups.data(), n_groups, threads);
    });
    const std::size_t shape[2] = {static_cast<std::size_t>(n_groups), cutoffs.shape(0)};
    nb::dict result;
    result["hits"] = give(std::move(sums.hits), shape);
    result["ndcg"] = give(std::move(sums.ndcg), shape);
    result["recall"] = give(std::move(sums.recall), shape);
    result["weighted_hits"] = give(std::move(sums.weighted_hits), shape);
    result["weighted_ndcg"] = give(std::move(sums.weighted_ndcg), shape);
    result["best_weighted_hits"] = give(std::move(sums.best_weighted_hits));
    result["best_weighted_ndcg"] = give(std::move(sums.best_weighted_ndcg));
    result["first_rank"] = give(std::move(sums.first_rank));
    result["n_rows"] = sums.n_rows;
    return nb::borrow<nb::typed<nb::dict, nb::str, nb::object>>(result);
}

Ranking py_csr_topk(const Csr& matrix, std::int64_t k, int threads) {
    const Csr::Arrays parts = matrix.arrays();
    return parts.visit(0, [&](const auto& view) {
        return give_ranking(static_cast<std::size_t>(view.rows), k,
                            [&](std::int32_t* ids, float* scores) { csr_topk(view, k, threads, ids, scores); });
    });
}

CsrParts py_largest_entries(const Csr& matrix, std::int64_t n, int threads) {
    const Csr::Arrays parts = matrix.arrays();
    return parts.visit(0,
                       [&](const auto& view) { return give_rows([&] { return largest_entries(view, n, threads); }); });
}

// Rows, ascending and inside the matrices, of several matrices below each other, whose index arrays are int32.
CsrParts py_take_rows(const std::vector<Csr>& matrices, In<std::int64_t> rows, int threads) {
    std::vector<Csr::Arrays> arrays;
    std::vector<CsrView<std::int32_t>> parts;
    std::vector<std::int64_t> first_rows;
    std::int64_t n_rows = 0;
    for (const Csr& matrix : matrices) {
        const Csr::Arrays& found = arrays.emplace_back(matrix.arrays());
        if (found.indptr.dtype() != nb::dtype<std::int32_t>() || found.indices.dtype() != nb::dtype<std::int32_t>())
            throw nb::type_error("the index arrays of the CSR matrices must be int32");
        first_rows.push_back(n_rows);
        parts.push_back({ssize(found.indptr.shape(0)) - 1, 0, static_cast<const std::int32_t*>(found.indptr.data()),
                         static_cast<const std::int32_t*>(found.indices.data()), found.data->data()});
        n_rows += parts.back().rows;
    }
    const std::span<const std::int64_t> taken(rows.data(), rows.shape(0));
    std::int64_t before = -1;
    for (const std::int64_t row : taken) {
        if (row <= before || row >= n_rows) throw std::invalid_argument("rows must ascend and lie inside the matrices");
        before = row;
    }
    return give_rows([&] {
        return take_rows<std::int32_t>(std::span<const CsrView<std::int32_t>>(parts), first_rows.data(), taken,
                                       threads);
    });
}

Ranking py_blend_rankings(In<std::int32_t, 3> ids, In<float, 3> scores, std::int64_t k, int threads) {
    return give_ranking(ids.shape(1), k, [&](std::int32_t* best_ids, float* best_scores) {
        blend_rankings(ids.data(), scores.data(), ssize(ids.shape(0)), ssize(ids.shape(1)), ssize(ids.shape(2)), k,
                       threads, best_ids, best_scores);
    });
}

Ranking py_list_topk(In2<std::int32_t> ids, In2<float> scores, std::int64_t k, int threads) {
    return give_ranking(ids.shape(0), k, [&](std::int32_t* best_ids, float* best_scores) {
        list_topk(ids.data(), scores.data(), ssize(ids.shape(0)), ssize(ids.shape(1)), k, threads, best_ids,
                  best_scores);
    });
}

Out<float, 2> py_dense_products(In2<float> table, In2<float> vectors, int threads) {
    return give_matrix<float>(vectors.shape(0), table.shape(0), [&](float* out) {
        dense_products(table.data(), ssize(table.shape(0)), vectors.data(), ssize(vectors.shape(0)),
                       ssize(vectors.shape(1)), out, threads);
    });
}

Out<float, 2> py_unit_rows(In2<float> vectors, int threads) {
    return give_matrix<float>(vectors.shape(0), vectors.shape(1), [&](float* out) {
        unit_rows(vectors.data(), ssize(vectors.shape(0)), ssize(vectors.shape(1)), out, threads);
    });
}

}  // namespace

void bind_matrix(nb::module_& m) {
    m.def("is_canonical", py_is_canonical, nb::arg("matrix"), nb::arg("n_rows"), nb::arg("n_columns"),
          nb::arg("limit"));
    m.def("spmm", py_spmm, nb::arg("a"), nb::arg("b"), nb::arg("n_columns"), nb::arg("unit_norm"), nb::arg("threads"));
    m.def("nearest_rows", py_nearest_rows, array("indptr"), array("samples"), array("values"), nb::arg("n_samples"),
          nb::arg("queries"), nb::arg("k"), nb::arg("threads"));
    m.def("selected_products", py_selected_products, nb::arg("queries"), nb::arg("rows"), nb::arg("n_columns"),
          array("ids"), nb::arg("threads"));
    m.def("spmm_dense", py_spmm_dense, nb::arg("a"), array("b"), nb::arg("threads"));
    m.def("ranking_hits", py_ranking_hits, array("ids"), nb::arg("truth"), nb::arg("n_labels"), nb::arg("threads"));
    m.def("ranking_sums", py_ranking_sums, array("ids"), nb::arg("truth"), array("cutoffs"), array("weights"),
          array("groups"), nb::arg("n_groups"), nb::arg("threads"));
    m.def("csr_topk", py_csr_topk, nb::arg("matrix"), nb::arg("k"), nb::arg("threads"));
    m.def("largest_entries", py_largest_entries, nb::arg("matrix"), nb::arg("n"), nb::arg("threads"));
    m.def("take_rows", py_take_rows, nb::arg("matrices"), array("rows"), nb::arg("threads"));
    m.def("blend_rankings", py_blend_rankings, array("ids"), array("scores"), nb::arg("k"), nb::arg("threads"));
    m.def("list_topk", py_list_topk, array("ids"), array("scores"), nb::arg("k"), nb::arg("threads"));
    m.def("dense_products", py_dense_products, array("table"), array("vectors"), nb::arg("threads"));
    m.def("unit_rows", py_unit_rows, array("vectors"), nb::arg("threads"));
}

}  // namespace ramify
