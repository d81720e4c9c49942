// What the files of the border to Python share: arrays as views, results as arrays. Only bindings*.cpp know of Python;
// sizes that belong together are checked there or in src/ramify/base/native.py.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "core/csr.h"

namespace ramify {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T>;

template <class T>
Out<T> give(T* data, std::initializer_list<std::size_t> shape, void (*destroy)(void*) noexcept) {
    return Out<T>(data, shape, nb::capsule(data, destroy));
}
template <class T>
Out<T> give_new(std::unique_ptr<T[]> data, std::initializer_list<std::size_t> shape) {
    return give(data.release(), shape, [](void* p) noexcept { delete[] static_cast<T*>(p); });
}
template <class T>
Out<T> give_vector(std::vector<T>&& items, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(items));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(kept->data(), shape, owner);
}
template <class T>
Out<T> give_vector(std::vector<T>&& items) {
    const std::size_t n = items.size();
    return give_vector(std::move(items), {n});
}

// scipy wants both index arrays of one type; it widens them itself in the rare case that needs it.
inline nb::tuple give_rows(CsrRows&& rows) {
    const auto nnz = static_cast<std::size_t>(rows.indptr.back());
    nb::object indptr;
    if (rows.indptr.back() <= std::numeric_limits<std::int32_t>::max()) {
        indptr = nb::cast(give_vector(std::vector<std::int32_t>(rows.indptr.begin(), rows.indptr.end())));
    } else {
        indptr = nb::cast(give_vector(std::move(rows.indptr)));
    }
    return nb::make_tuple(indptr, give_new(std::move(rows.indices), {nnz}), give_new(std::move(rows.data), {nnz}));
}

template <class Index>
CsrView<Index> csr_view(In<Index> indptr, In<Index> indices, const float* data, std::int64_t cols) {
    return {static_cast<std::int64_t>(indptr.shape(0)) - 1, cols, indptr.data(), indices.data(), data};
}

void bind_text(nb::module_& m);
void bind_matrices(nb::module_& m);
void bind_rankers(nb::module_& m);
void bind_neural(nb::module_& m);

}  // namespace ramify
