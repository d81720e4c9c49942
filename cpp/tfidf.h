// Term counts of a corpus, its vocabulary, and TF-IDF rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text.h"
#include "vocabulary.h"

namespace ramify {

// n_docs documents of n_fields texts each, document by document; a field's terms count with its weight.
struct Corpus {
    const TextView* texts = nullptr;
    std::int64_t n_docs = 0;
    std::int64_t n_fields = 1;
    const float* field_weights = nullptr;  // (n_fields)
};

struct Weighting {
    enum class Norm { none, l1, l2 };
    bool binary = false;     // a term counts once a document
    bool sublinear = false;  // 1 + ln(count)
    Norm norm = Norm::l2;
    const double* idf = nullptr;  // (n_terms), or null
};

struct TfidfRows {
    std::vector<std::int64_t> indptr;  // (n_docs + 1)
    std::unique_ptr<std::int32_t[]> indices;
    std::unique_ptr<float[]> data;
};

struct FrozenVocabulary {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint8_t> bytes;
    SlotTable slots;
};

struct TermCount {
    std::uint32_t id;
    float count;
};

// The rows of a corpus in the feature space of a finished vocabulary; other terms are passed over.
TfidfRows tfidf_rows(const AnalyzerSpec& spec, const VocabularyView& vocabulary, const Weighting& weighting,
                     const Corpus& corpus, int threads);

// One pass over a corpus that learns the vocabulary and keeps the counts, so that the rows need no second pass:
// count, select, then freeze, then rows. Every result is the same for any number of threads.
class CorpusCounts {
public:
    CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads);
    CorpusCounts(const CorpusCounts&) = delete;
    CorpusCounts(CorpusCounts&&) = default;

    // Of the terms in at least min_df and at most max_df documents, in code point order:
    void select(std::int64_t min_df, std::int64_t max_df, int threads);
    const std::vector<std::int64_t>& document_frequency() const { return selected_df_; }
    const std::vector<double>& term_frequency() const { return selected_tf_; }  // empty unless with_tf

    // The vocabulary of the selected terms with keep[i] (null: all of them). Call once.
    FrozenVocabulary freeze(const std::uint8_t* keep);
    // The rows of the corpus; call after freeze, once: the counts are given up on the way.
    TfidfRows rows(const Weighting& weighting, int threads);

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
