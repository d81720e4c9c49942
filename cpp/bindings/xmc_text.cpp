// The parser of the XMC text format.
#include "text/xmc_text.h"

#include "bindings/common.h"

namespace ramify {

namespace {

struct PyXmcText {
    XmcTextParser parser;

    PyXmcText(std::int64_t n_features, std::int64_t n_labels, bool with_labels, std::int64_t first_line, int threads)
        : parser({n_features, n_labels, with_labels}, first_line, threads) {}

    std::int64_t feed(In<std::uint8_t> chunk, bool last, bool stop_at_bad) {
        nb::gil_scoped_release release;
        return parser.feed(reinterpret_cast<const char*>(chunk.data()), static_cast<std::int64_t>(chunk.shape(0)), last,
                           stop_at_bad);
    }

    std::vector<std::tuple<std::int64_t, nb::str>> bad_lines() const {
        std::vector<std::tuple<std::int64_t, nb::str>> lines;
        for (const auto& [line, reason] : parser.bad_lines()) {  // it quotes the line, whose bytes may be anything
            PyObject* text =
                PyUnicode_DecodeUTF8(reason.data(), static_cast<Py_ssize_t>(reason.size()), "backslashreplace");
            if (text == nullptr) throw nb::python_error();
            lines.emplace_back(line, nb::steal<nb::str>(text));
        }
        return lines;
    }

    template <class T>
    static Out<T> give_growing(GrowingArray<T>& items) {
        const std::size_t shape[1] = {items.size()};
        T* values = items.release();
        return Out<T>(values, 1, shape, nb::capsule(values, [](void* p) noexcept { std::free(p); }));
    }

    // Row ends of the labels, labels, row ends of the features, features, values.
    std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<std::int64_t>, Out<std::int32_t>, Out<float>> finish() {
        return {give_growing(parser.label_ends), give_growing(parser.labels), give_growing(parser.feature_ends),
                give_growing(parser.features), give_growing(parser.values)};
    }
};

}  // namespace

void bind_xmc_text(nb::module_& m) {
    nb::class_<PyXmcText>(m, "XmcText")
        .def(nb::init<std::int64_t, std::int64_t, bool, std::int64_t, int>(), nb::arg("n_features"),
             nb::arg("n_labels"), nb::arg("with_labels"), nb::arg("first_line"), nb::arg("threads"))
        .def("feed", &PyXmcText::feed, array("chunk"), nb::arg("last"), nb::arg("stop_at_bad"))
        .def("n_bad", [](const PyXmcText& self) { return static_cast<std::int64_t>(self.parser.bad_rows().size()); })
        .def("bad_rows", [](const PyXmcText& self) { return give(std::vector<std::int64_t>(self.parser.bad_rows())); })
        .def("bad_lines", &PyXmcText::bad_lines)
        .def("finish", &PyXmcText::finish);
}

}  // namespace ramify
