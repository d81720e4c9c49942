// Tokenization and TF-IDF.
#include "bindings/texts.h"
#include "core/parallel.h"
#include "text/corpus_counts.h"
#include "text/tfidf.h"
#include "text/utf8.h"

namespace ramify {

namespace {

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

constexpr float max_count = std::numeric_limits<float>::max();

// Terms, one after the other; checks their borders.
VocabularyView term_view(const In<std::uint64_t>& offsets, const In<std::uint8_t>& bytes) {
    const std::int64_t n = ssize(offsets.shape(0)) - 1;
    bool is_valid = n >= 0 && offsets(0) == 0 && offsets(static_cast<std::size_t>(n)) == bytes.shape(0);
    for (std::int64_t i = 0; is_valid && i < n; ++i)
        is_valid = offsets(static_cast<std::size_t>(i)) <= offsets(static_cast<std::size_t>(i) + 1);
    if (!is_valid) throw std::invalid_argument("the arrays of counted terms do not fit together");
    VocabularyView view;
    view.n_terms = n;
    view.offsets = offsets.data();
    view.bytes = bytes.data();
    return view;
}

using TermArrays = std::tuple<In<std::uint64_t>, In<std::uint8_t>, In<std::int64_t>, std::optional<In<double>>>;

// Terms of several parts of a corpus as one: offsets, bytes, df and tf (empty if a part has none).
std::tuple<Out<std::uint64_t>, Out<std::uint8_t>, Out<std::int64_t>, Out<double>> py_merge_terms(
    const std::vector<TermArrays>& parts) {
    std::vector<CountedTerms> lists;
    for (const auto& [offsets, bytes, df, tf] : parts) {
        const std::int64_t n = term_view(offsets, bytes).n_terms;
        if (ssize(df.shape(0)) != n || (tf && ssize(tf->shape(0)) != n))
            throw std::invalid_argument("the arrays of counted terms do not fit together");
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

    // The rows of documents whose terms were counted before.
    CsrParts transform_counts(In<std::uint64_t> offsets, In<std::uint8_t> bytes, const Csr& counts, int threads) const {
        const Csr::Arrays parts = counts.arrays();
        const VocabularyView terms = term_view(offsets, bytes);
        const TfidfBlock only = block(1.0f);
        return parts.visit(terms.n_terms, [&](const auto& view) {
            if (!is_canonical(view, ssize(std::min(parts.indices.shape(0), parts.data->shape(0))), max_count))
                throw std::invalid_argument("the counts of terms are damaged");
            return give_rows([&] { return tfidf_rows_of_counts(only, terms, view, threads); });
        });
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
        .def("transform_counts", &PyTfidf::transform_counts, array("offsets"), array("bytes"), nb::arg("counts"),
             nb::arg("threads"))
        .def_static("transform_together", &PyTfidf::transform_together, nb::arg("blocks"), nb::arg("factors"),
                    nb::arg("texts"), nb::arg("field_weights"), nb::arg("threads"));
}

}  // namespace ramify
