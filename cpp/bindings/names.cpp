// Names that occur in texts.
#include "bindings/texts.h"
#include "text/name_matcher.h"

namespace ramify {

namespace {

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

}  // namespace

void bind_names(nb::module_& m) {
    m.def("name_trie", name_trie, nb::arg("analyzer"), nb::arg("names"));
    nb::class_<PyNameMatcher>(m, "NameMatcher")
        .def(nb::init<const PyAnalyzer&, In<std::uint64_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::uint64_t>,
                      In<std::int64_t>, In<std::int32_t>, In<std::int32_t>, In<std::int32_t>, std::int64_t>(),
             nb::arg("analyzer"), array("offsets"), array("bytes"), array("slots"), array("hash_key"), array("indptr"),
             array("edge_words"), array("edge_nodes"), array("node_names"), nb::arg("n_names"))
        .def("match", &PyNameMatcher::match, nb::arg("texts"), nb::arg("n_fields"), nb::arg("threads"));
}

}  // namespace ramify
