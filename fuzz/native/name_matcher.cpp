// A trie of names with arbitrary edges: refused, or safe to look for names with; intact, it finds each name in itself.
#include "text/name_matcher.h"

#include <stdexcept>

#include "input.h"

using namespace ramify;

namespace {

std::uint32_t classify_names(std::uint32_t c) {
    return c | (c > ' ' ? UnicodeTable::word_flag : UnicodeTable::space_flag);
}

const auto names_unicode = std::make_shared<const UnicodeTable>(classify_names);

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    AnalyzerSpec spec;
    spec.unicode = names_unicode;
    spec.min_token = 1;
    const auto n_changes = input.between(0, 3);
    const std::vector<std::int64_t> changes = input.array<std::int64_t>(static_cast<std::size_t>(3 * n_changes));
    const std::vector<std::uint8_t> bytes = input.rest();
    const auto n_bytes = static_cast<std::int64_t>(bytes.size());
    const std::int64_t cut = n_bytes / 2, first = cut / 2;
    const std::vector<TextView> names{{bytes.data(), first, 1}, {bytes.data() + first, cut - first, 1}};
    const NameTrie built = build_name_trie(spec, names.data(), 2);
    const VocabularyView words = built.words.view();
    const std::size_t n_edges = built.parents.size();
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> edge_words, edge_nodes, node_names(n_edges + 1, -1);
    for (std::size_t node = 0; node <= n_edges; ++node) {
        std::vector<std::pair<std::int32_t, std::int32_t>> edges;
        for (std::size_t e = 0; e < n_edges; ++e)
            if (built.parents[e] == static_cast<std::int32_t>(node))
                edges.emplace_back(built.edge_words[e], static_cast<std::int32_t>(e) + 1);
        std::sort(edges.begin(), edges.end());
        for (const auto& [word, to] : edges) edge_words.push_back(word), edge_nodes.push_back(to);
        indptr.push_back(static_cast<std::int64_t>(edge_words.size()));
    }
    for (std::size_t i = 0; i < built.ends.size(); ++i)
        if (built.ends[i] > 0) node_names[static_cast<std::size_t>(built.ends[i])] = static_cast<std::int32_t>(i);
    for (std::size_t i = 0; i + 2 < changes.size(); i += 3) {
        const auto at = static_cast<std::uint64_t>(changes[i + 1]);
        const auto value = static_cast<std::int32_t>(changes[i + 2] % 64);
        if (changes[i] % 4 == 0) indptr[at % indptr.size()] = value;
        if (changes[i] % 4 == 1 && n_edges > 0) edge_words[at % n_edges] = value;
        if (changes[i] % 4 == 2 && n_edges > 0) edge_nodes[at % n_edges] = value;
        if (changes[i] % 4 == 3) node_names[at % node_names.size()] = value;
    }
    TrieView trie{words,
                  static_cast<std::int64_t>(n_edges) + 1,
                  indptr.data(),
                  edge_words.data(),
                  edge_nodes.data(),
                  node_names.data(),
                  nullptr};
    try {
        check_trie(trie, static_cast<std::int64_t>(n_edges), 2);
    } catch (const std::invalid_argument&) {
        return 0;
    }
    std::vector<std::int32_t> first_edges(static_cast<std::size_t>(words.n_terms), -1);
    for (std::int64_t e = indptr[0]; e < indptr[1]; ++e)
        first_edges[static_cast<std::size_t>(edge_words[static_cast<std::size_t>(e)])] =
            edge_nodes[static_cast<std::size_t>(e)];
    trie.first_edges = first_edges.data();
    const std::vector<TextView> texts{names[0], {bytes.data() + cut, n_bytes - cut, 1}};
    const float weight = 1.0f;
    const FoundNames found = match_names(spec, trie, {texts.data(), 2, 1, &weight}, 1);
    require(found.indptr.size() == 3 && found.indptr.back() == static_cast<std::int64_t>(found.names.size()));
    for (std::size_t i = 0; i < found.names.size(); ++i)
        require(found.names[i] >= 0 && found.names[i] < 2 && found.counts[i] >= 1 && found.positions[i] >= 0);
    if (n_changes == 0 && built.ends[0] > 0) require(found.indptr[1] >= 1);
    return 0;
}
