// What the binding files share: arrays as views, CSR matrices of either index width, results as NumPy arrays.
//
// Only the files in bindings/ include nanobind. Array arguments are never converted: a wrong dtype or a non-contiguous
// array is a TypeError. Sizes that belong together are checked here or in src/ramify/native.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "core/csr.h"

namespace ramify {

namespace nb = nanobind;

// Arguments: arrays that are read, and arrays that are changed in place.
template <class T, int Dims = 1>
using In = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = In<T, 2>;
template <class T, int Dims = 1>
using InOut = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

// An array argument, by name; never converted.
inline auto array(const char* name) { return nb::arg(name).noconvert(); }

inline std::int64_t ssize(std::size_t n) { return static_cast<std::int64_t>(n); }

// Results.
template <class T, int Dims = 1>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<Dims>>;

template <class T, std::size_t Dims>
Out<T, Dims> give(std::unique_ptr<T[]> data, const std::size_t (&shape)[Dims]) {
    T* values = data.release();
    return Out<T, Dims>(values, Dims, shape,
                        nb::capsule(values, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}
template <class T, std::size_t Dims>
Out<T, Dims> give(std::vector<T>&& items, const std::size_t (&shape)[Dims]) {
    auto* kept = new std::vector<T>(std::move(items));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T, Dims>(kept->data(), Dims, shape, owner);
}
template <class T>
Out<T> give(std::vector<T>&& items) {
    const std::size_t shape[1] = {items.size()};
    return give(std::move(items), shape);
}

// Runs body() while other Python threads may run.
template <class Body>
decltype(auto) without_gil(Body&& body) {
    nb::gil_scoped_release release;
    return body();
}

// A matrix (n, m) that fill(values) writes.
template <class T, class Fill>
Out<T, 2> give_matrix(std::size_t n, std::size_t m, Fill&& fill) {
    auto values = std::make_unique_for_overwrite<T[]>(n * m);
    without_gil([&] { fill(values.get()); });
    return give(std::move(values), {n, m});
}

// Ids and scores (n, k) that fill(ids, scores) writes.
using Ranking = std::tuple<Out<std::int32_t, 2>, Out<float, 2>>;
template <class Fill>
Ranking give_ranking(std::size_t n, std::int64_t k, Fill&& fill) {
    if (k < 0 || k > std::numeric_limits<std::int32_t>::max() ||
        (k > 0 && n > std::numeric_limits<std::size_t>::max() / sizeof(float) / static_cast<std::size_t>(k)))
        throw std::invalid_argument("k = " + std::to_string(k) + " is negative, or more than a ranking can hold");
    const auto width = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
    auto scores = std::make_unique_for_overwrite<float[]>(n * width);
    without_gil([&] { fill(ids.get(), scores.get()); });
    return {give(std::move(ids), {n, width}), give(std::move(scores), {n, width})};
}

// The rows that make() returns, as indptr, indices and data. scipy wants both index arrays of one type: indptr is int32
// like indices if its values allow it.
using CsrParts = std::tuple<std::variant<Out<std::int32_t>, Out<std::int64_t>>, Out<std::int32_t>, Out<float>>;
template <class Make>
CsrParts give_rows(Make&& make) {
    CsrRows rows = without_gil(make);
    const std::size_t nnz[1] = {static_cast<std::size_t>(rows.indptr.back())};
    std::variant<Out<std::int32_t>, Out<std::int64_t>> indptr;
    if (rows.indptr.back() <= std::numeric_limits<std::int32_t>::max()) {
        indptr = give(std::vector<std::int32_t>(rows.indptr.begin(), rows.indptr.end()));
    } else {
        indptr = give(std::move(rows.indptr));
    }
    return {std::move(indptr), give(std::move(rows.indices), nnz), give(std::move(rows.data), nnz)};
}

// ---- CSR arguments, with 32-bit or 64-bit indices ----

using IndexArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls body(CsrView<Index>) with the index type of the arrays.
template <class Body>
decltype(auto) with_csr(const IndexArray& indptr, const IndexArray& indices, const float* data, std::int64_t cols,
                        Body&& body) {
    const auto is = [&](nb::dlpack::dtype type) { return indptr.dtype() == type && indices.dtype() == type; };
    const auto view = [&]<class Index>(Index) {
        return CsrView<Index>{ssize(indptr.shape(0)) - 1, cols, static_cast<const Index*>(indptr.data()),
                              static_cast<const Index*>(indices.data()), data};
    };
    if (is(nb::dtype<std::int32_t>())) return body(view(std::int32_t{}));
    if (is(nb::dtype<std::int64_t>())) return body(view(std::int64_t{}));
    throw nb::type_error("the index arrays of a CSR matrix must both be int32 or both be int64");
}

inline bool has_indptr(PyObject* object) {
    static PyObject* const name = PyUnicode_InternFromString("indptr");
    return PyObject_HasAttr(object, name) != 0;
}

// A scipy CSR matrix.
class Csr : public nb::object {
public:
    NB_OBJECT(Csr, nb::object, "scipy.sparse.csr_matrix", has_indptr)

    struct Arrays {
        IndexArray indptr, indices;
        std::optional<In<float>> data;

        template <class Body>
        decltype(auto) visit(std::int64_t cols, Body&& body) const {
            return with_csr(indptr, indices, data ? data->data() : nullptr, cols, body);
        }
    };

    // The arrays of the matrix; those of a pattern have no data.
    Arrays arrays() const {
        Arrays parts = pattern();
        static PyObject* const name = PyUnicode_InternFromString("data");
        parts.data = part<In<float>>(name, "the data of a CSR matrix must be a contiguous float32 array");
        return parts;
    }
    Arrays pattern() const {
        static PyObject* const indptr = PyUnicode_InternFromString("indptr");
        static PyObject* const indices = PyUnicode_InternFromString("indices");
        const char* const message = "the index arrays of a CSR matrix must be contiguous";
        return {part<IndexArray>(indptr, message), part<IndexArray>(indices, message), std::nullopt};
    }

private:
    template <class Array>
    Array part(PyObject* name, const char* message) const {
        PyObject* value = PyObject_GetAttr(ptr(), name);
        if (value == nullptr) throw nb::python_error();
        Array found;
        const bool fits = nb::try_cast(nb::steal(value), found, false);
        if (!fits) throw nb::type_error(message);
        return found;
    }
};

void bind_text(nb::module_& m);
void bind_names(nb::module_& m);
void bind_xmc_text(nb::module_& m);
void bind_matrix(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_neural(nb::module_& m);
void bind_ann(nb::module_& m);

}  // namespace ramify
