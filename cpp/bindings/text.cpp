// Tokenization, TF-IDF and the XMC text parser.
#include "bindings/common.h"
#include "core/parallel.h"
#include "text/analyzer.h"
#include "text/corpus_counts.h"
#include "text/name_matcher.h"
#include "text/tfidf.h"
#include "text/utf8.h"
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

HashKey hash_key_of(In<std::uint64_t> parts) {
    if (parts.shape(0) != 3) throw std::invalid_argument("the key of a vocabulary's hash has three parts");
    return {parts(0), parts(1), parts(2)};
}

// A vocabulary over arrays, checked.
VocabularyView vocabulary_view(const In<std::uint64_t>& offsets, const In<std::uint8_t>& bytes,
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

// The language of each document, by index; 0: unknown.
Out<std::uint8_t> detect_languages(Texts::List texts, int n_fields, int threads) {
    const FieldCorpus corpus(texts, std::vector<float>(static_cast<std::size_t>(n_fields), 1.0f), true, threads);
    std::vector<std::uint8_t> languages(static_cast<std::size_t>(corpus.corpus.n_docs));
    AnalyzerSpec spec;
    spec.unicode = unicode_table();
    without_gil([&] {
        constexpr std::int64_t block_size = 64;
        parallel_for((corpus.corpus.n_docs + block_size - 1) / block_size, threads, [&](std::int64_t b, int) {
            const DocumentScratchPool::Lease lease(document_scratch);
            for (std::int64_t doc = b * block_size; doc < std::min(corpus.corpus.n_docs, (b + 1) * block_size); ++doc)
                languages[static_cast<std::size_t>(doc)] =
                    static_cast<std::uint8_t>(document_language(spec, corpus.corpus, doc, *lease));
        });
    });
    return give(std::move(languages));
}

std::vector<std::string> stem_words(const std::string& language, const std::vector<std::string>& words) {
    const Language chosen = stemmer_language(language);
    if (chosen == Language::none) throw std::invalid_argument("there is no stemmer for " + language);
    std::vector<std::string> stems;
    std::vector<char32_t> letters;
    for (const std::string& word : words) {
        letters.clear();
        const auto* p = reinterpret_cast<const std::uint8_t*>(word.data());
        for (const auto* const end = p + word.size(); p < end;) letters.push_back(decode(p));
        stem(chosen, letters);
        std::string out(letters.size() * 4, '\0');
        auto* const start = reinterpret_cast<std::uint8_t*>(out.data());
        std::uint8_t* at = start;
        for (const char32_t c : letters) at = encode(c, at);
        out.resize(static_cast<std::size_t>(at - start));
        stems.push_back(std::move(out));
    }
    return stems;
}

// Names of the languages by index, and whether there is a stemmer.
std::vector<std::tuple<std::string, bool>> stemmer_languages() {
    std::vector<std::tuple<std::string, bool>> languages;
    for (int i = 0; i < n_languages; ++i)
        languages.emplace_back(language_name(static_cast<Language>(i)), has_stemmer(static_cast<Language>(i)));
    return languages;
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

// The hash table of a vocabulary whose arrays are valid.
Out<std::uint8_t> term_slots(In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint64_t> hash_key) {
    const HashKey key = hash_key_of(hash_key);
    return give_bytes(without_gil([&] {
        std::vector<std::uint8_t> padded(bytes.data(), bytes.data() + bytes.shape(0));
        padded.resize(padded.size() + term_padding);
        return make_slots(offsets.data(), padded.data(), static_cast<std::int64_t>(offsets.shape(0)) - 1, key);
    }));
}

// The parts of the terms of a vocabulary, given the documents of each: indptr, parts and costs.
std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>> py_find_subwords(
    In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots, In<std::uint64_t> hash_key,
    In<std::int64_t> df, std::int64_t n_docs, std::int64_t min_df, int threads) {
    const VocabularyView view = vocabulary_view(offsets, bytes, slots, hash_key);
    if (ssize(df.shape(0)) != view.n_terms)
        throw std::invalid_argument("every term of the vocabulary needs a document frequency");
    Subwords found =
        without_gil([&] { return find_subwords(view, part_costs(df.data(), view.n_terms, n_docs, min_df), threads); });
    return {give(std::move(found.indptr)), give(std::move(found.parts)), give(std::move(found.costs))};
}

using TermArrays = std::tuple<In<std::uint64_t>, In<std::uint8_t>, In<std::int64_t>, std::optional<In<double>>>;

// Terms of several parts of a corpus as one: offsets, bytes, df and tf (empty if a part has none).
std::tuple<Out<std::uint64_t>, Out<std::uint8_t>, Out<std::int64_t>, Out<double>> py_merge_terms(
    const std::vector<TermArrays>& parts) {
    std::vector<CountedTerms> lists;
    for (const auto& [offsets, bytes, df, tf] : parts) {
        const std::int64_t n = ssize(offsets.shape(0)) - 1;
        bool is_valid = n >= 0 && ssize(df.shape(0)) == n && (!tf || ssize(tf->shape(0)) == n) && offsets(0) == 0 &&
                        offsets(static_cast<std::size_t>(n)) == bytes.shape(0);
        for (std::int64_t i = 0; is_valid && i < n; ++i)
            is_valid = offsets(static_cast<std::size_t>(i)) <= offsets(static_cast<std::size_t>(i) + 1);
        if (!is_valid) throw std::invalid_argument("the arrays of counted terms do not fit together");
        lists.push_back({n, offsets.data(), bytes.data(), df.data(), tf ? tf->data() : nullptr});
    }
    MergedTerms merged = without_gil([&] { return merge_terms(lists); });
    return {give(std::move(merged.terms.offsets)), give(std::move(merged.terms.bytes)), give(std::move(merged.df)),
            give(std::move(merged.tf))};
}

// A finished vocabulary with its weights, over arrays that Python keeps alive (mostly memory-mapped).
class PyTfidf {
public:
    PyTfidf(const PyAnalyzer& analyzer, In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots,
            In<std::uint64_t> hash_key, std::optional<In<double>> idf, std::optional<In<std::int64_t>> part_indptr,
            std::optional<In<std::int32_t>> parts, std::optional<In<float>> part_costs, bool binary, bool sublinear,
            const std::string& norm)
        : analyzer_(analyzer),
          offsets_(offsets),
          bytes_(bytes),
          slots_(slots),
          idf_(idf),
          part_indptr_(part_indptr),
          parts_(parts),
          part_costs_(part_costs) {
        vocabulary_ = vocabulary_view(offsets, bytes, slots, hash_key);
        if (idf && static_cast<std::int64_t>(idf->shape(0)) != vocabulary_.n_terms)
            throw std::invalid_argument("the vocabulary and its idf weights differ in length");
        if (part_indptr) {
            if (!parts || !part_costs) throw std::invalid_argument("subwords need three arrays");
            if (static_cast<std::int64_t>(part_indptr->shape(0)) != vocabulary_.n_terms + 1 ||
                static_cast<std::int64_t>(part_costs->shape(0)) != vocabulary_.n_terms)
                throw std::invalid_argument("the vocabulary and the parts of its words differ in length");
            subwords_ = {part_indptr->data(), parts->data(), part_costs->data()};
            check_subwords(subwords_, vocabulary_.n_terms, static_cast<std::int64_t>(parts->shape(0)));
        }
        weighting_ = make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr);
    }

    CsrParts transform(Texts::List texts, std::vector<float> weights, int threads) const {
        FieldCorpus corpus(texts, std::move(weights), analyzer_.spec.lowercase, threads);
        const TfidfBlock only = block(1.0f);
        return give_rows([&] { return tfidf_rows({&only, 1}, corpus.corpus, threads); });
    }

    // The rows of several, beside each other, each multiplied by its factor. The texts are the same for all, and all or
    // none of them convert to lower case.
    static CsrParts transform_together(const std::vector<const PyTfidf*>& several, const std::vector<float>& factors,
                                       Texts::List texts, std::vector<float> weights, int threads) {
        if (several.empty() || several.size() != factors.size())
            throw std::invalid_argument("every block of features needs a factor");
        std::vector<TfidfBlock> blocks;
        std::int64_t n_columns = 0;
        for (std::size_t i = 0; i < several.size(); ++i) {
            blocks.push_back(several[i]->block(factors[i]));
            n_columns += blocks[i].vocabulary.n_terms;
            if (blocks[i].spec->lowercase != blocks[0].spec->lowercase)
                throw std::invalid_argument("either all blocks of features or none convert to lower case");
        }
        if (n_columns > std::numeric_limits<std::int32_t>::max())
            throw std::length_error("more than 2,147,483,647 columns: raise min_df");
        FieldCorpus corpus(texts, std::move(weights), blocks[0].spec->lowercase, threads);
        return give_rows([&] { return tfidf_rows(blocks, corpus.corpus, threads); });
    }

private:
    TfidfBlock block(float factor) const {
        return {&analyzer_.spec, vocabulary_, part_indptr_ ? &subwords_ : nullptr, weighting_, &word_columns_, factor};
    }

    PyAnalyzer analyzer_;
    In<std::uint64_t> offsets_;
    In<std::uint8_t> bytes_, slots_;
    std::optional<In<double>> idf_;
    std::optional<In<std::int64_t>> part_indptr_;
    std::optional<In<std::int32_t>> parts_;
    std::optional<In<float>> part_costs_;
    VocabularyView vocabulary_;
    SubwordView subwords_;
    Weighting weighting_;
    mutable WordColumnsPool word_columns_;
};

// The words of names, one after the other in bytes, and the edges of their trie; see text/name_matcher.h.
std::tuple<Out<std::uint64_t>, Out<std::uint8_t>, Out<std::int32_t>, Out<std::int32_t>, Out<std::int32_t>> name_trie(
    const PyAnalyzer& analyzer, Texts::List names) {
    const Texts texts(names, analyzer.spec.lowercase, 1);
    NameTrie trie =
        without_gil([&] { return build_name_trie(analyzer.spec, texts.views().data(), ssize(texts.views().size())); });
    const VocabularyView words = trie.words.view();
    const auto n = static_cast<std::size_t>(words.n_terms);
    return {give(std::vector<std::uint64_t>(words.offsets, words.offsets + n + 1)),
            give(std::vector<std::uint8_t>(words.bytes, words.bytes + words.offsets[n])), give(std::move(trie.parents)),
            give(std::move(trie.edge_words)), give(std::move(trie.ends))};
}

// A trie of names over arrays that Python keeps alive (mostly memory-mapped).
class PyNameMatcher {
public:
    PyNameMatcher(const PyAnalyzer& analyzer, In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots,
                  In<std::uint64_t> hash_key, In<std::int64_t> indptr, In<std::int32_t> edge_words,
                  In<std::int32_t> edge_nodes, In<std::int32_t> node_names, std::int64_t n_names)
        : analyzer_(analyzer),
          offsets_(offsets),
          bytes_(bytes),
          slots_(slots),
          indptr_(indptr),
          edge_words_(edge_words),
          edge_nodes_(edge_nodes),
          node_names_(node_names) {
        trie_ = {vocabulary_view(offsets, bytes, slots, hash_key),
                 ssize(node_names.shape(0)),
                 indptr.data(),
                 edge_words.data(),
                 edge_nodes.data(),
                 node_names.data(),
                 nullptr};
        if (indptr.shape(0) != node_names.shape(0) + 1 || edge_words.shape(0) != edge_nodes.shape(0))
            throw std::invalid_argument("the arrays of the trie differ in length");
        check_trie(trie_, ssize(edge_words.shape(0)), n_names);
        first_edges_.assign(static_cast<std::size_t>(trie_.words.n_terms), -1);
        for (std::int64_t e = trie_.indptr[0]; e < trie_.indptr[1]; ++e)
            first_edges_[static_cast<std::size_t>(trie_.edge_words[e])] = trie_.edge_nodes[e];
        trie_.first_edges = first_edges_.data();
    }

    // Row pointers, names, positions and counts of what was found, and the number of words of each document.
    std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<std::int32_t>, Out<std::int32_t>, Out<std::int32_t>> match(
        Texts::List texts, std::int64_t n_fields, int threads) const {
        if (n_fields < 1) throw std::invalid_argument("a document has at least one field");
        FieldCorpus corpus(texts, std::vector<float>(static_cast<std::size_t>(n_fields), 1.0f),
                           analyzer_.spec.lowercase, threads);
        FoundNames found = without_gil([&] { return match_names(analyzer_.spec, trie_, corpus.corpus, threads); });
        return {give(std::move(found.indptr)), give(std::move(found.names)), give(std::move(found.positions)),
                give(std::move(found.counts)), give(std::move(found.n_words))};
    }

private:
    PyAnalyzer analyzer_;
    In<std::uint64_t> offsets_;
    In<std::uint8_t> bytes_, slots_;
    In<std::int64_t> indptr_;
    In<std::int32_t> edge_words_, edge_nodes_, node_names_;
    std::vector<std::int32_t> first_edges_;
    TrieView trie_;
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
        .def(nb::init<const std::string&, int, int, bool, int, const std::vector<std::string>&, bool, bool, bool,
                      const std::string&, std::int64_t, float>(),
             nb::arg("unit"), nb::arg("min_n"), nb::arg("max_n"), nb::arg("lowercase"), nb::arg("min_token"),
             nb::arg("stop_words"), nb::arg("drop_numbers"), nb::arg("split_unspaced"), nb::arg("detect_language"),
             nb::arg("stemmer"), nb::arg("n_lead"), nb::arg("lead_weight"));
    m.def("detect_languages", detect_languages, nb::arg("texts"), nb::arg("n_fields"), nb::arg("threads"));
    m.def("stem_words", stem_words, nb::arg("language"), nb::arg("words"));
    m.def("stemmer_languages", stemmer_languages);
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
            [](PyCorpusCounts& self, std::optional<In<std::uint8_t>> keep, bool with_subwords) {
                if (keep && keep->shape(0) != self.counts.document_frequency().size())
                    throw std::invalid_argument("keep must have one entry for each selected term");
                FrozenVocabulary frozen =
                    without_gil([&] { return self.counts.freeze(keep ? keep->data() : nullptr, with_subwords); });
                return std::tuple(give(std::move(frozen.offsets)), give(std::move(frozen.bytes)));
            },
            array("keep").none(), nb::arg("with_subwords"))
        .def(
            "add_subwords",
            [](PyCorpusCounts& self, In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots,
               In<std::uint64_t> hash_key, std::int64_t min_df, int threads) {
                const VocabularyView view = vocabulary_view(offsets, bytes, slots, hash_key);
                Subwords subwords = without_gil([&] { return self.counts.add_subwords(view, min_df, threads); });
                return std::tuple(give(std::move(subwords.indptr)), give(std::move(subwords.parts)),
                                  give(std::move(subwords.costs)), give(std::move(subwords.df)));
            },
            array("offsets"), array("bytes"), array("slots"), array("hash_key"), nb::arg("min_df"), nb::arg("threads"))
        .def(
            "rows",
            [](PyCorpusCounts& self, std::optional<In<double>> idf, bool binary, bool sublinear,
               const std::string& norm, int threads) {
                const Weighting weighting = make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr);
                return give_rows([&] { return self.counts.rows(weighting, threads); });
            },
            array("idf").none(), nb::arg("binary"), nb::arg("sublinear"), nb::arg("norm"), nb::arg("threads"));
    m.def("find_subwords", py_find_subwords, array("offsets"), array("bytes"), array("slots"), array("hash_key"),
          array("df"), nb::arg("n_docs"), nb::arg("min_df"), nb::arg("threads"));
    m.def("merge_terms", py_merge_terms, array("parts"));
    m.def("term_slots", term_slots, array("offsets"), array("bytes"), array("hash_key"));
    nb::class_<PyTfidf>(m, "Tfidf")
        .def(nb::init<const PyAnalyzer&, In<std::uint64_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::uint64_t>,
                      std::optional<In<double>>, std::optional<In<std::int64_t>>, std::optional<In<std::int32_t>>,
                      std::optional<In<float>>, bool, bool, const std::string&>(),
             nb::arg("analyzer"), array("offsets"), array("bytes"), array("slots"), array("hash_key"),
             array("idf").none(), array("part_indptr").none(), array("parts").none(), array("part_costs").none(),
             nb::arg("binary"), nb::arg("sublinear"), nb::arg("norm"))
        .def("transform", &PyTfidf::transform, nb::arg("texts"), nb::arg("field_weights"), nb::arg("threads"))
        .def_static("transform_together", &PyTfidf::transform_together, nb::arg("blocks"), nb::arg("factors"),
                    nb::arg("texts"), nb::arg("field_weights"), nb::arg("threads"));

    m.def("name_trie", name_trie, nb::arg("analyzer"), nb::arg("names"));
    nb::class_<PyNameMatcher>(m, "NameMatcher")
        .def(nb::init<const PyAnalyzer&, In<std::uint64_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::uint64_t>,
                      In<std::int64_t>, In<std::int32_t>, In<std::int32_t>, In<std::int32_t>, std::int64_t>(),
             nb::arg("analyzer"), array("offsets"), array("bytes"), array("slots"), array("hash_key"), array("indptr"),
             array("edge_words"), array("edge_nodes"), array("node_names"), nb::arg("n_names"))
        .def("match", &PyNameMatcher::match, nb::arg("texts"), nb::arg("n_fields"), nb::arg("threads"));

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
