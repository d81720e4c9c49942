// Names that occur in texts: a trie over normalized words.
#pragma once

#include <cstdint>
#include <vector>

#include "text/analyzer.h"
#include "text/term_counter.h"
#include "text/vocabulary.h"

namespace ramify {

// The words of names and their trie. Node 0 is the root; edge i leads to node i + 1.
struct NameTrie {
    VocabularyBuilder words;
    std::vector<std::int32_t> parents, edge_words;  // (n_nodes - 1) of each edge
    std::vector<std::int32_t> ends;                 // (n_names) the node where each name ends; 0: it has no word
};
NameTrie build_name_trie(const AnalyzerSpec& spec, const TextView* names, std::int64_t n_names);

// A trie over arrays: the edges of each node, by ascending word.
struct TrieView {
    VocabularyView words;
    std::int64_t n_nodes = 0;
    const std::int64_t* indptr = nullptr;       // (n_nodes + 1)
    const std::int32_t* edge_words = nullptr;   // ids of words
    const std::int32_t* edge_nodes = nullptr;   // above the node that the edge leaves
    const std::int32_t* node_names = nullptr;   // (n_nodes) the name that ends at the node, or -1
    const std::int32_t* first_edges = nullptr;  // (words) the node that each word leads to from the root, or -1
};
// Throws std::invalid_argument with the reason if the arrays are not safe to use.
void check_trie(const TrieView& trie, std::int64_t n_edges, std::int64_t n_names);

// The names found in documents: for each document, by ascending name.
struct FoundNames {
    std::vector<std::int64_t> indptr;  // (documents + 1)
    std::vector<std::int32_t> names;
    std::vector<std::int32_t> positions;  // of the first word of the first occurrence, among the words of all fields
    std::vector<std::int32_t> counts;     // of occurrences
    std::vector<std::int32_t> n_words;    // (documents)
};
FoundNames match_names(const AnalyzerSpec& spec, const TrieView& trie, const Corpus& corpus, int threads);

}  // namespace ramify
