// What the bindings of several text modules share: Python's strings, analyzers, documents of fields, vocabularies.
#pragma once

#include "bindings/common.h"
#include "core/parallel.h"
#include "text/analyzer.h"
#include "text/term_counter.h"
#include "text/vocabulary.h"

namespace ramify {

inline std::uint32_t classify(std::uint32_t c) {
    std::uint32_t entry = Py_UNICODE_TOLOWER(static_cast<Py_UCS4>(c)) & UnicodeTable::lower_mask;
    if (Py_UNICODE_ISALNUM(static_cast<Py_UCS4>(c)) || c == '_') entry |= UnicodeTable::word_flag;
    if (Py_UNICODE_ISSPACE(static_cast<Py_UCS4>(c))) entry |= UnicodeTable::space_flag;
    return entry;
}

inline std::shared_ptr<const UnicodeTable> unicode_table() {
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
inline bool has_special_lower_case(const TextView& text) {
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
               const std::vector<std::string>& stop_words, bool drop_numbers, bool split_unspaced, bool detect_language,
               const std::string& stemmer, std::int64_t n_lead, float lead_weight) {
        spec.is_split = unit == "token";
        spec.unit = unit == "word" || unit == "token" ? TermUnit::word
                    : unit == "char"                  ? TermUnit::chars
                                                      : TermUnit::chars_in_words;
        spec.min_n = min_n;
        spec.max_n = max_n;
        spec.lowercase = lowercase;
        spec.min_token = min_token;
        spec.unicode = unicode_table();
        spec.drop_numbers = drop_numbers;
        spec.split_unspaced = split_unspaced;
        spec.detect_language = detect_language;
        spec.stemmer = stemmer_language(stemmer);
        if (n_lead < 0 || !(lead_weight > 0.0f)) throw std::invalid_argument("the weight of the lead must be above 0");
        spec.n_lead = static_cast<std::size_t>(n_lead);
        spec.lead_weight = lead_weight;
        if (spec.stemmer == Language::none && !stemmer.empty())
            throw std::invalid_argument("there is no stemmer for " + stemmer);
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

inline HashKey hash_key_of(In<std::uint64_t> parts) {
    if (parts.shape(0) != 3) throw std::invalid_argument("the key of a vocabulary's hash has three parts");
    return {parts(0), parts(1), parts(2)};
}

// A vocabulary over arrays, checked.
inline VocabularyView vocabulary_view(const In<std::uint64_t>& offsets, const In<std::uint8_t>& bytes,
                                      const In<std::uint8_t>& slots, const In<std::uint64_t>& hash_key) {
    if (offsets.shape(0) < 1 || slots.shape(0) % sizeof(Slot) != 0)
        throw std::invalid_argument("the vocabulary's arrays have impossible sizes");
    if (reinterpret_cast<std::uintptr_t>(slots.data()) % alignof(Slot) != 0)
        throw std::invalid_argument("the vocabulary's hash table is not aligned");
    const VocabularyView view{static_cast<std::int64_t>(offsets.shape(0)) - 1,
                              offsets.data(),
                              bytes.data(),
                              reinterpret_cast<const Slot*>(slots.data()),
                              slots.shape(0) / sizeof(Slot),
                              hash_key_of(hash_key)};
    check_vocabulary(view, bytes.shape(0));
    return view;
}

}  // namespace ramify
