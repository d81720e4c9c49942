// Learning a vocabulary from a corpus.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/shared_vocabulary.h"
#include "text/tfidf.h"

namespace ramify {

struct FrozenVocabulary {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint8_t> bytes;
};

// The parts of the terms of a vocabulary, and its document frequencies with them counted in.
struct Subwords {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> parts;
    std::vector<float> costs;
    std::vector<std::int64_t> df;
};

// What the terms of a finished vocabulary cost as parts of other words, given the documents that each occurs in; terms
// in fewer than min_df documents are no parts.
std::vector<float> part_costs(const std::int64_t* df, std::int64_t n_terms, std::int64_t n_docs, std::int64_t min_df);
// The parts of the terms of a finished vocabulary (without df).
Subwords find_subwords(const VocabularyView& frozen, std::vector<float>&& costs, int threads);

// Sorted terms of a part of a corpus, with their document and term frequencies (tf may be null).
struct CountedTerms {
    std::int64_t n_terms = 0;
    const std::uint64_t* offsets = nullptr;  // (n_terms + 1)
    const std::uint8_t* bytes = nullptr;
    const std::int64_t* df = nullptr;
    const double* tf = nullptr;
};
struct MergedTerms {
    FrozenVocabulary terms;
    std::vector<std::int64_t> df;
    std::vector<double> tf;  // empty if a part has none
};
// The terms of all parts, sorted, with the sums of their frequencies.
MergedTerms merge_terms(const std::vector<CountedTerms>& parts);

// Learns the vocabulary in one pass over a corpus and keeps the counts, so that the rows need no second pass. To be
// called in this order: constructor, select, freeze, optionally add_subwords, rows. Every result is the same for any
// number of threads.
class CorpusCounts {
public:
    CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads);
    CorpusCounts(const CorpusCounts&) = delete;
    CorpusCounts(CorpusCounts&&) = default;

    // Selects the terms in at least min_df and at most max_df documents, in code point order. Their frequencies:
    void select(std::int64_t min_df, std::int64_t max_df, int threads);
    const std::vector<std::int64_t>& document_frequency() const { return selected_df_; }
    const std::vector<double>& term_frequency() const { return selected_tf_; }  // empty unless with_tf

    // The vocabulary of the selected terms with keep[i] (null: all of them). Call once; with_subwords: before
    // add_subwords, which needs the terms that are not selected.
    FrozenVocabulary freeze(const std::uint8_t* keep, bool with_subwords);
    // Counts terms as their parts, too. Parts are terms of the frozen vocabulary in at least min_df documents. Call
    // once.
    Subwords add_subwords(const VocabularyView& frozen, std::int64_t min_df, int threads);
    // The rows of the corpus. Call once, after freeze: it frees the counts.
    CsrRows rows(const Weighting& weighting, int threads);

private:
    static constexpr std::int64_t docs_per_block = 64;

    struct SelectedTerm {
        std::uint64_t key, next_key;  // the first sixteen bytes, first byte highest
        const std::uint8_t* bytes;    // of terms of more than sixteen
        std::uint32_t length, id;
    };

    std::unique_ptr<SharedVocabulary> vocabulary_;
    std::vector<std::uint32_t> df_;  // (ids)
    std::vector<std::int64_t> tf_;   // (ids) in units of 2^-20, so that sums do not depend on their order
    std::vector<std::unique_ptr<TermCount[]>> blocks_;  // the counts of docs_per_block documents each
    std::vector<std::uint32_t> row_sizes_;              // (n_docs)
    std::vector<SelectedTerm> selected_;
    std::vector<std::int64_t> selected_df_;
    std::vector<double> selected_tf_;
    std::vector<std::uint32_t> column_;  // (ids) column of a term, or Slot::empty
    std::uint32_t n_columns_ = 0;
    std::int64_t n_docs_ = 0;
    bool with_tf_ = false, integral_ = true;
};

}  // namespace ramify
