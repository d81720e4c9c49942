// Int8 quantization and IVF search.
#include "ann/ivf.h"
#include "ann/neighbor_labels.h"
#include "ann/quantize.h"
#include "bindings/common.h"

namespace ramify {

namespace {

using PyCodes = std::tuple<In2<std::int8_t>, In<float>>;         // codes, scales
using PyFound = std::tuple<In2<std::int32_t>, In2<float>>;       // ids, similarities
using PyLists = std::tuple<In<std::int64_t>, In<std::int32_t>>;  // indptr, labels

Codes codes_view(const PyCodes& codes) { return {std::get<0>(codes).data(), std::get<1>(codes).data()}; }
Found found_view(const PyFound& found) {
    const auto& [ids, similarities] = found;
    return {ssize(ids.shape(1)), ids.data(), similarities.data()};
}

std::tuple<Out<std::int8_t, 2>, Out<float>> py_quantize(In2<float> vectors, int threads) {
    const std::size_t n = vectors.shape(0), n_bytes = static_cast<std::size_t>(code_size(ssize(vectors.shape(1))));
    auto codes = std::make_unique_for_overwrite<std::int8_t[]>(n * n_bytes);
    auto scales = std::make_unique_for_overwrite<float[]>(n);
    without_gil(
        [&] { quantize(vectors.data(), ssize(n), ssize(vectors.shape(1)), codes.get(), scales.get(), threads); });
    return {give(std::move(codes), {n, n_bytes}), give(std::move(scales), {n})};
}

Ranking py_search_ivf(PyCodes centroids, In<std::int64_t> indptr, In<std::int32_t> ids, In2<float> vectors,
                      PyCodes codes, In2<float> queries, std::int64_t nprobe, std::int64_t k, bool ordered,
                      int threads) {
    const IvfIndex index{ssize(std::get<0>(centroids).shape(0)),
                         ssize(vectors.shape(1)),
                         codes_view(centroids),
                         indptr.data(),
                         ids.data(),
                         vectors.shape(0) > 0 ? vectors.data() : nullptr,
                         codes_view(codes)};
    return give_ranking(queries.shape(0), k, [&](std::int32_t* best_ids, float* scores) {
        search_ivf(index, queries.data(), ssize(queries.shape(0)), {nprobe, k, ordered}, threads, best_ids, scores);
    });
}

Ranking py_merge_neighbor_labels(PyFound labels, PyFound samples, PyLists sample_labels, std::int64_t n_labels,
                                 float weight, std::optional<In<std::uint8_t>> allowed, std::int64_t k, int threads) {
    const std::size_t n = std::get<0>(labels).shape(0);
    const SampleLabels of_samples{std::get<0>(sample_labels).data(), std::get<1>(sample_labels).data(), n_labels,
                                  nullptr};
    return give_ranking(n, k, [&](std::int32_t* ids, float* scores) {
        merge_neighbor_labels(found_view(labels), found_view(samples), of_samples, weight,
                              allowed ? allowed->data() : nullptr, ssize(n), k, threads, ids, scores);
    });
}

std::tuple<Out<std::int32_t, 2>, Out<float, 2>, Out<float, 2>, Out<float, 2>> py_vote_neighbor_labels(
    PyFound samples, PyLists sample_labels, std::optional<In<float>> weights, std::int64_t n_labels, float power,
    float least, In<float> penalties, std::optional<In<std::uint8_t>> allowed, std::int64_t k, int threads) {
    const std::size_t n = std::get<0>(samples).shape(0), width = static_cast<std::size_t>(k);
    const SampleLabels of_samples{std::get<0>(sample_labels).data(), std::get<1>(sample_labels).data(), n_labels,
                                  weights ? weights->data() : nullptr};
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
    auto votes = std::make_unique_for_overwrite<float[]>(n * width);
    auto counts = std::make_unique_for_overwrite<float[]>(n * width);
    auto nearest = std::make_unique_for_overwrite<float[]>(n * width);
    without_gil([&] {
        vote_neighbor_labels(found_view(samples), of_samples, power, least, penalties.data(),
                             allowed ? allowed->data() : nullptr, ssize(n), k, threads,
                             {ids.get(), votes.get(), counts.get(), nearest.get()});
    });
    return {give(std::move(ids), {n, width}), give(std::move(votes), {n, width}), give(std::move(counts), {n, width}),
            give(std::move(nearest), {n, width})};
}

}  // namespace

void bind_ann(nb::module_& m) {
    m.def("quantize", py_quantize, array("vectors"), nb::arg("threads"));
    m.def("search_ivf", py_search_ivf, array("centroids"), array("indptr"), array("ids"), array("vectors"),
          array("codes"), array("queries"), nb::arg("nprobe"), nb::arg("k"), nb::arg("ordered"), nb::arg("threads"));
    m.def("merge_neighbor_labels", py_merge_neighbor_labels, array("labels"), array("samples"), array("sample_labels"),
          nb::arg("n_labels"), nb::arg("weight"), array("allowed").none(), nb::arg("k"), nb::arg("threads"));
    m.def("vote_neighbor_labels", py_vote_neighbor_labels, array("samples"), array("sample_labels"),
          array("weights").none(), nb::arg("n_labels"), nb::arg("power"), nb::arg("least"), array("penalties"),
          array("allowed").none(), nb::arg("k"), nb::arg("threads"));
}

}  // namespace ramify
