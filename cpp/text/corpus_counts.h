// Learning a vocabulary from a corpus.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/tfidf.h"

namespace ramify {

struct FrozenVocabulary {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint8_t> bytes;
    SlotTable slots;
};

// Learns the vocabulary in one pass over a corpus and keeps the counts, so that the rows need no second pass. To be
// called in this order: constructor, select, freeze, rows. Every result is the same for any number of threads.
class CorpusCounts {
public:
    CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads);
    CorpusCounts(const CorpusCounts&) = delete;
    CorpusCounts(CorpusCounts&&) = default;

    // Selects the terms in at least min_df and at most max_df documents, in code point order. Their frequencies:
    void select(std::int64_t min_df, std::int64_t max_df, int threads);
    const std::vector<std::int64_t>& document_frequency() const { return selected_df_; }
    const std::vector<double>& term_frequency() const { return selected_tf_; }  // empty unless with_tf

    // The vocabulary of the selected terms with keep[i] (null: all of them). Call once.
    FrozenVocabulary freeze(const std::uint8_t* keep);
    // The rows of the corpus. Call once, after freeze: it frees the counts.
    CsrRows rows(const Weighting& weighting, int threads);

private:
    struct Worker {
        VocabularyBuilder vocabulary;
        std::vector<std::uint32_t> df;
        std::vector<std::int64_t> tf;         // in units of 2^-20, so that sums do not depend on their order
        std::vector<std::uint32_t> final_id;  // local term → column, or Slot::empty
    };
    struct Block {
        int worker = 0;
        std::vector<std::uint32_t> row_sizes;
        std::vector<TermCount> counts;
    };
    struct Shard {  // the terms of all workers whose hashes fall into it
        VocabularyBuilder vocabulary;
        std::vector<std::int64_t> df, tf;
        std::vector<std::uint32_t> final_id;
    };
    struct SelectedTerm {
        std::uint64_t key;  // first eight bytes, first byte highest
        std::uint32_t shard, id;
    };

    void merge(int threads);
    const std::uint8_t* term(const SelectedTerm& t) const { return shards_[t.shard].vocabulary.term(t.id); }
    std::size_t length(const SelectedTerm& t) const { return shards_[t.shard].vocabulary.length(t.id); }

    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<Block> blocks_;
    std::vector<Shard> shards_;
    std::vector<std::vector<std::uint32_t>> shard_id_;  // (workers)(local term) → term within its shard
    std::vector<SelectedTerm> selected_;
    std::vector<std::int64_t> selected_df_;
    std::vector<double> selected_tf_;
    std::int64_t n_docs_ = 0;
    bool with_tf_ = false;
};

}  // namespace ramify
