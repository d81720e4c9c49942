// Tokenization, TF-IDF and the XMC text parser.
#include "bindings/common.h"
#include "core/parallel.h"
#include "text/analyzer.h"
#include "text/corpus_counts.h"
#include "text/tfidf.h"
#include "text/vocabulary.h"
#include "text/xmc_text.h"

namespace ramify {

namespace {

std::uint32_t classify(std::uint32_t c) {
    std::uint32_t entry = Py_UNICODE_TOLOWER(static_cast<Py_UCS4>(c)) & UnicodeTable::lower_mask;
    if (Py_UNICODE_ISALNUM(static_cast<Py_UCS4>(c)) || c == '_') entry |= UnicodeTable::word_flag;
    if (Py_UNICODE_ISSPACE(static_cast<Py_UCS4>(c))) entry |= UnicodeTable::space_flag;
    return entry;
}

std::shared_ptr<const UnicodeTable> unicode_table() {
    static const auto table = std::make_shared<const UnicodeTable>(classify);
    return table;
}

// The lower case of İ is longer than the letter, that of Σ depends on its neighbors.
template <class Unit>
bool has_special_lower_case(const void* text, std::int64_t n) {
    const Unit* units = static_cast<const Unit*>(text);
    bool found = false;
    for (std::int64_t i = 0; i < n; ++i)
        found |= (units[i] == 0x130) | (units[i] == 0x3a3);  // no early exit, so that it vectorizes
    return found;
}
bool has_special_lower_case(const TextView& text) {
    if (text.width == 1) return false;
    return text.width == 2 ? has_special_lower_case<std::uint16_t>(text.data, text.length)
                           : has_special_lower_case<std::uint32_t>(text.data, text.length);
}

// Views of Python strings. It owns references, so that the strings outlive the work while other Python threads run.
class Texts {
public:
    using List = nb::typed<nb::list, nb::str>;

    Texts(const nb::list& texts, bool lowercase, int threads)
        : kept_(nb::steal<nb::tuple>(PyList_AsTuple(texts.ptr()))) {
        if (!kept_.is_valid()) throw nb::python_error();
        views_.resize(nb::len(kept_));
        for (std::size_t i = 0; i < views_.size(); ++i) {
            PyObject* text = PyTuple_GET_ITEM(kept_.ptr(), static_cast<Py_ssize_t>(i));
            if (!PyUnicode_Check(text))
                throw nb::type_error(
                    ("text " + std::to_string(i) + " is " + Py_TYPE(text)->tp_name + ", not str").c_str());
            views_[i] = view_of(text);
        }
        if (!lowercase) return;
        for (const std::size_t i : special_texts(threads)) {
            // The method of str, not of the text: that of a subclass may return anything.
            const nb::handle text = PyTuple_GET_ITEM(kept_.ptr(), static_cast<Py_ssize_t>(i));
            lowered_.push_back(nb::handle(reinterpret_cast<PyObject*>(&PyUnicode_Type)).attr("lower")(text));
            views_[i] = view_of(lowered_.back().ptr());
        }
    }
    const std::vector<TextView>& views() const { return views_; }

private:
    // The texts that Python has to convert to lower case, in order.
    std::vector<std::size_t> special_texts(int threads) const {
        constexpr std::size_t block_size = 256;
        std::vector<std::vector<std::size_t>> blocks(views_.size() / block_size + 1);
        const auto scan = [&](std::int64_t b, int) {
            const auto begin = static_cast<std::size_t>(b) * block_size;
            for (std::size_t i = begin; i < std::min(views_.size(), begin + block_size); ++i)
                if (has_special_lower_case(views_[i])) blocks[static_cast<std::size_t>(b)].push_back(i);
        };
        if (blocks.size() == 1) {
            scan(0, 0);
            return std::move(blocks[0]);
        }
        without_gil([&] { parallel_for(ssize(blocks.size()), threads, scan); });
        std::vector<std::size_t> found;
        for (const auto& block : blocks) found.insert(found.end(), block.begin(), block.end());
        return found;
    }

    static TextView view_of(PyObject* text) {
        return {PyUnicode_DATA(text), static_cast<std::int64_t>(PyUnicode_GET_LENGTH(text)),
                static_cast<int>(PyUnicode_KIND(text))};
    }

    nb::tuple kept_;
    std::vector<nb::object> lowered_;
    std::vector<TextView> views_;
};

struct PyAnalyzer {
    AnalyzerSpec spec;

    PyAnalyzer(const std::string& unit, int min_n, int max_n, bool lowercase, int min_token,
               const std::vector<std::string>& stop_words) {
        spec.unit = unit == "word" ? TermUnit::word : unit == "char" ? TermUnit::chars : TermUnit::chars_in_words;
        spec.min_n = min_n;
        spec.max_n = max_n;
        spec.lowercase = lowercase;
        spec.min_token = min_token;
        spec.unicode = unicode_table();
        for (std::string word : stop_words) {
            const std::size_t n = word.size();
            word.resize(n + term_padding);
            spec.stop_words.find_or_add(reinterpret_cast<const std::uint8_t*>(word.data()), n);
        }
    }
};

struct FieldCorpus {
    Texts texts;
    std::vector<float> weights;
    Corpus corpus;

    FieldCorpus(const nb::list& list, std::vector<float> field_weights, bool lowercase, int threads)
        : texts(list, lowercase, threads), weights(std::move(field_weights)) {
        const auto n_fields = static_cast<std::int64_t>(weights.size());
        if (n_fields == 0 || texts.views().size() % weights.size() != 0)
            throw std::invalid_argument("every document needs one text for each field");
        corpus = {texts.views().data(), static_cast<std::int64_t>(texts.views().size()) / n_fields, n_fields,
                  weights.data()};
    }
};

Weighting make_weighting(bool binary, bool sublinear, const std::string& norm, const double* idf) {
    const auto kind = norm == "l1" ? Weighting::Norm::l1 : norm == "l2" ? Weighting::Norm::l2 : Weighting::Norm::none;
    return {binary, sublinear, kind, idf};
}

Out<std::uint8_t> give_bytes(SlotTable&& slots) {
    auto* kept = new SlotTable(std::move(slots));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<SlotTable*>(p); });
    const std::size_t shape[1] = {kept->size() * sizeof(Slot)};
    return Out<std::uint8_t>(kept->data(), 1, shape, owner);
}

struct PyCorpusCounts {
    CorpusCounts counts;

    static PyCorpusCounts make(const PyAnalyzer& analyzer, Texts::List texts, std::vector<float> weights, bool with_tf,
                               int threads) {
        FieldCorpus corpus(texts, std::move(weights), analyzer.spec.lowercase, threads);
        nb::gil_scoped_release release;
        return {CorpusCounts(analyzer.spec, corpus.corpus, with_tf, threads)};
    }
};

HashKey hash_key_of(In<std::uint64_t> parts) {
    if (parts.shape(0) != 3) throw std::invalid_argument("the key of a vocabulary's hash has three parts");
    return {parts(0), parts(1), parts(2)};
}

// The hash table of a vocabulary whose arrays are valid.
Out<std::uint8_t> term_slots(In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint64_t> hash_key) {
    const HashKey key = hash_key_of(hash_key);
    return give_bytes(without_gil([&] {
        std::vector<std::uint8_t> padded(bytes.data(), bytes.data() + bytes.shape(0));
        padded.resize(padded.size() + term_padding);
        return make_slots(offsets.data(), padded.data(), static_cast<std::int64_t>(offsets.shape(0)) - 1, key);
    }));
}

// A finished vocabulary with its weights, over arrays that Python keeps alive (mostly memory-mapped).
class PyTfidf {
public:
    PyTfidf(const PyAnalyzer& analyzer, In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots,
            In<std::uint64_t> hash_key, std::optional<In<double>> idf, bool binary, bool sublinear,
            const std::string& norm)
        : analyzer_(analyzer), offsets_(offsets), bytes_(bytes), slots_(slots), idf_(idf) {
        if (offsets.shape(0) < 1 || slots.shape(0) % sizeof(Slot) != 0)
            throw std::invalid_argument("the vocabulary's arrays have impossible sizes");
        if (reinterpret_cast<std::uintptr_t>(slots.data()) % alignof(Slot) != 0)
            throw std::invalid_argument("the vocabulary's hash table is not aligned");
        vocabulary_ = {static_cast<std::int64_t>(offsets.shape(0)) - 1,
                       offsets.data(),
                       bytes.data(),
                       reinterpret_cast<const Slot*>(slots.data()),
                       slots.shape(0) / sizeof(Slot),
                       hash_key_of(hash_key)};
        if (idf && static_cast<std::int64_t>(idf->shape(0)) != vocabulary_.n_terms)
            throw std::invalid_argument("the vocabulary and its idf weights differ in length");
        check_vocabulary(vocabulary_, bytes.shape(0));
        weighting_ = make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr);
    }

    CsrParts transform(Texts::List texts, std::vector<float> weights, int threads) const {
        FieldCorpus corpus(texts, std::move(weights), analyzer_.spec.lowercase, threads);
        return give_rows([&] { return tfidf_rows(analyzer_.spec, vocabulary_, weighting_, corpus.corpus, threads); });
    }

private:
    PyAnalyzer analyzer_;
    In<std::uint64_t> offsets_;
    In<std::uint8_t> bytes_, slots_;
    std::optional<In<double>> idf_;
    VocabularyView vocabulary_;
    Weighting weighting_;
};

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

void bind_text(nb::module_& m) {
    nb::class_<PyAnalyzer>(m, "Analyzer")
        .def(nb::init<const std::string&, int, int, bool, int, const std::vector<std::string>&>(), nb::arg("unit"),
             nb::arg("min_n"), nb::arg("max_n"), nb::arg("lowercase"), nb::arg("min_token"), nb::arg("stop_words"));
    nb::class_<PyCorpusCounts>(m, "CorpusCounts")
        .def_static("count", PyCorpusCounts::make, nb::arg("analyzer"), nb::arg("texts"), nb::arg("field_weights"),
                    nb::arg("with_tf"), nb::arg("threads"))
        .def(
            "select",
            [](PyCorpusCounts& self, std::int64_t min_df, std::int64_t max_df, int threads) {
                nb::gil_scoped_release release;
                self.counts.select(min_df, max_df, threads);
            },
            nb::arg("min_df"), nb::arg("max_df"), nb::arg("threads"))
        .def("document_frequency",
             [](PyCorpusCounts& self) { return give(std::vector<std::int64_t>(self.counts.document_frequency())); })
        .def("term_frequency",
             [](PyCorpusCounts& self) { return give(std::vector<double>(self.counts.term_frequency())); })
        .def(
            "freeze",
            [](PyCorpusCounts& self, std::optional<In<std::uint8_t>> keep) {
                if (keep && keep->shape(0) != self.counts.document_frequency().size())
                    throw std::invalid_argument("keep must have one entry for each selected term");
                FrozenVocabulary frozen =
                    without_gil([&] { return self.counts.freeze(keep ? keep->data() : nullptr); });
                return std::tuple(give(std::move(frozen.offsets)), give(std::move(frozen.bytes)));
            },
            array("keep").none())
        .def(
            "rows",
            [](PyCorpusCounts& self, std::optional<In<double>> idf, bool binary, bool sublinear,
               const std::string& norm, int threads) {
                const Weighting weighting = make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr);
                return give_rows([&] { return self.counts.rows(weighting, threads); });
            },
            array("idf").none(), nb::arg("binary"), nb::arg("sublinear"), nb::arg("norm"), nb::arg("threads"));
    m.def("term_slots", term_slots, array("offsets"), array("bytes"), array("hash_key"));
    nb::class_<PyTfidf>(m, "Tfidf")
        .def(nb::init<const PyAnalyzer&, In<std::uint64_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::uint64_t>,
                      std::optional<In<double>>, bool, bool, const std::string&>(),
             nb::arg("analyzer"), array("offsets"), array("bytes"), array("slots"), array("hash_key"),
             array("idf").none(), nb::arg("binary"), nb::arg("sublinear"), nb::arg("norm"))
        .def("transform", &PyTfidf::transform, nb::arg("texts"), nb::arg("field_weights"), nb::arg("threads"));

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
