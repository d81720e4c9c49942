#include "text/name_matcher.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "core/parallel.h"

namespace ramify {

namespace {

constexpr std::int64_t documents_at_once = 32;

std::uint64_t edge_key(std::int32_t node, std::uint32_t word) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32 | word;
}

struct Occurrence {
    std::int32_t name, position;
};

// The node behind the edge of a word, or -1.
std::int32_t follow(const TrieView& trie, std::int32_t node, std::int32_t word) {
    if (node == 0) return trie.first_edges[word];
    const std::int32_t* const begin = trie.edge_words + trie.indptr[node];
    const std::int32_t* const end = trie.edge_words + trie.indptr[node + 1];
    const std::int32_t* const at = std::lower_bound(begin, end, word);
    return at != end && *at == word ? trie.edge_nodes[at - trie.edge_words] : -1;
}

}  // namespace

NameTrie build_name_trie(const AnalyzerSpec& spec, const TextView* names, std::int64_t n_names) {
    NameTrie trie;
    Analyzer analyzer;
    // The key is a number that nobody can choose freely: node and word are ids in order of appearance.
    std::unordered_map<std::uint64_t, std::int32_t> edges;
    for (std::int64_t i = 0; i < n_names; ++i) {
        analyzer.analyze(spec, names[i]);
        std::int32_t node = 0;
        for (const Analyzer::Term& term : analyzer.terms()) {
            const TermKey key = analyzer.key(term, process_key());
            const std::uint32_t word = trie.words.find_or_add(key.bytes, key.length);
            const auto next = static_cast<std::int32_t>(trie.parents.size()) + 1;
            const auto [edge, is_new] = edges.try_emplace(edge_key(node, word), next);
            if (is_new) {
                trie.parents.push_back(node);
                trie.edge_words.push_back(static_cast<std::int32_t>(word));
            }
            node = edge->second;
        }
        trie.ends.push_back(node);
    }
    return trie;
}

void check_trie(const TrieView& trie, std::int64_t n_edges, std::int64_t n_names) {
    const auto fail = [](const char* why) { throw std::invalid_argument(why); };
    if (trie.n_nodes < 1 || n_edges != trie.n_nodes - 1) fail("the trie has an impossible number of edges");
    if (trie.indptr[0] != 0 || trie.indptr[trie.n_nodes] != n_edges) fail("the trie does not have all of its edges");
    for (std::int64_t node = 0; node < trie.n_nodes; ++node) {
        if (trie.indptr[node + 1] < trie.indptr[node] || trie.indptr[node + 1] > n_edges)
            fail("the edges of the trie overlap");
        if (trie.node_names[node] < -1 || trie.node_names[node] >= n_names) fail("the trie has names out of range");
        std::int64_t before = -1;
        for (std::int64_t e = trie.indptr[node]; e < trie.indptr[node + 1]; ++e) {
            // Edges lead to later nodes, so that every walk ends.
            if (trie.edge_words[e] <= before || trie.edge_words[e] >= trie.words.n_terms ||
                trie.edge_nodes[e] <= node || trie.edge_nodes[e] >= trie.n_nodes)
                fail("the trie has edges out of range or out of order");
            before = trie.edge_words[e];
        }
    }
}

FoundNames match_names(const AnalyzerSpec& spec, const TrieView& trie, const Corpus& corpus, int threads) {
    const std::int64_t n_blocks = (corpus.n_docs + documents_at_once - 1) / documents_at_once;
    std::vector<FoundNames> blocks(static_cast<std::size_t>(n_blocks));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        const DocumentScratchPool::Lease lease(document_scratch);
        Analyzer& analyzer = (*lease).analyzer;
        FoundNames& found = blocks[static_cast<std::size_t>(b)];
        std::vector<std::int32_t> words;
        std::vector<Occurrence> occurrences;
        const std::int64_t last = std::min(corpus.n_docs, (b + 1) * documents_at_once);
        for (std::int64_t doc = b * documents_at_once; doc < last; ++doc) {
            occurrences.clear();
            std::int64_t n_before = 0;
            for (std::int64_t f = 0; f < corpus.n_fields; ++f) {  // a name lies within one field
                analyzer.analyze(spec, corpus.texts[doc * corpus.n_fields + f]);
                words.clear();
                for (const Analyzer::Term& term : analyzer.terms()) {
                    const std::uint32_t id = trie.words.find(analyzer.key(term, trie.words.hash_key));
                    words.push_back(id == Slot::empty ? -1 : static_cast<std::int32_t>(id));
                }
                for (std::size_t start = 0; start < words.size(); ++start) {
                    std::int32_t node = 0;
                    for (std::size_t at = start; at < words.size() && words[at] >= 0; ++at) {
                        node = follow(trie, node, words[at]);
                        if (node < 0) break;
                        if (trie.node_names[node] >= 0)
                            occurrences.push_back(
                                {trie.node_names[node],
                                 static_cast<std::int32_t>(n_before + static_cast<std::int64_t>(start))});
                    }
                }
                n_before += static_cast<std::int64_t>(words.size());
            }
            std::stable_sort(occurrences.begin(), occurrences.end(),
                             [](const Occurrence& a, const Occurrence& c) { return a.name < c.name; });
            for (std::size_t i = 0; i < occurrences.size(); ++i) {
                if (i > 0 && occurrences[i].name == occurrences[i - 1].name) {
                    ++found.counts.back();
                    continue;
                }
                found.names.push_back(occurrences[i].name);
                found.positions.push_back(occurrences[i].position);
                found.counts.push_back(1);
            }
            found.n_words.push_back(static_cast<std::int32_t>(n_before));
            found.indptr.push_back(static_cast<std::int64_t>(found.names.size()));  // within the block
        }
    });
    if (blocks.size() == 1) {
        blocks[0].indptr.insert(blocks[0].indptr.begin(), 0);
        return std::move(blocks[0]);
    }
    FoundNames all;
    all.indptr.push_back(0);
    for (const FoundNames& block : blocks) {
        const auto before = static_cast<std::int64_t>(all.names.size());
        for (const std::int64_t end : block.indptr) all.indptr.push_back(before + end);
        all.names.insert(all.names.end(), block.names.begin(), block.names.end());
        all.positions.insert(all.positions.end(), block.positions.begin(), block.positions.end());
        all.counts.insert(all.counts.end(), block.counts.begin(), block.counts.end());
        all.n_words.insert(all.n_words.end(), block.n_words.begin(), block.n_words.end());
    }
    return all;
}

}  // namespace ramify
