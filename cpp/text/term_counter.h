// Counts of the terms of one document after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/scratch.h"
#include "text/analyzer.h"
#include "text/vocabulary.h"

namespace ramify {

// n_docs documents of n_fields texts each, document by document; each term of a field counts with the weight of the
// field.
struct Corpus {
    const TextView* texts = nullptr;
    std::int64_t n_docs = 0;
    std::int64_t n_fields = 1;
    const float* field_weights = nullptr;  // (n_fields)

    // Whether counts are integers, whose sums are exact.
    bool integral(const AnalyzerSpec& spec) const {
        const float lead = spec.n_lead > 0 ? spec.lead_weight : 1.0f;
        return lead == std::floor(lead) &&
               std::all_of(field_weights, field_weights + n_fields, [](float w) { return w == std::floor(w); });
    }
};

struct TermCount {
    std::uint32_t id;
    float count;
};

// Counts the terms of one document in a hash table that stays in the L1 cache.
class DocumentCounter {
public:
    // Reserves room for n more terms; call it before add().
    void reserve_more(std::size_t n) {
        const std::size_t needed = size_ + n;
        if (counts_.size() < needed) counts_.resize(needed * 2);
        if (n_slots_ >= needed * 2) return;
        n_slots_ = std::bit_ceil(needed * 2);
        if (slots_.size() < n_slots_) slots_.resize(n_slots_);
        std::fill_n(slots_.begin(), n_slots_, 0u);
        for (std::size_t k = 0; k < size_; ++k) {
            std::size_t i = slot(counts_[k].id);
            while (slots_[i] != 0) i = (i + 1) & (n_slots_ - 1);
            slots_[i] = static_cast<std::uint32_t>(k + 1);
        }
    }

    void add(std::uint32_t id, float weight) {
        for (std::size_t i = slot(id);; i = (i + 1) & (n_slots_ - 1)) {
            if (slots_[i] == 0) {
                counts_[size_++] = {id, weight};
                slots_[i] = static_cast<std::uint32_t>(size_);
                return;
            }
            TermCount& entry = counts_[slots_[i] - 1];
            if (entry.id == id) {
                entry.count += weight;
                return;
            }
        }
    }

    void take(std::vector<TermCount>& row) const {
        row.assign(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(size_));
    }

    // To be called before each document.
    void clear() {
        size_ = n_slots_ = 0;
        if (slots_.size() > 8192) {  // after an unusually long document
            slots_ = {};
            counts_ = {};
        }
    }

private:
    std::size_t slot(std::uint32_t id) const { return (id * multiplier_ >> 32) & (n_slots_ - 1); }

    const std::uint64_t multiplier_ = process_key().first | 1;  // random: texts cannot be written for collisions
    std::vector<std::uint32_t> slots_;                          // position in counts_ + 1, or 0
    std::vector<TermCount> counts_;
    std::size_t size_ = 0, n_slots_ = 0;  // slots in use: a short document clears and touches few
};

// Caches the ids of recent terms. Words follow Zipf's law: most lookups end here, in the L1 or L2 cache, instead of in
// a table of many megabytes.
class RecentTerms {
public:
    // For a few documents filling a large cache would not pay off. keep_unknown: also that a term has no id.
    explicit RecentTerms(std::int64_t n_docs, bool keep_unknown = true)
        : entries_(n_docs < 256 ? 64 : 8192), keep_unknown_(keep_unknown) {}

    struct Entry {
        std::uint64_t first = 0, last = 0;
        std::uint32_t length = 0, id = Slot::empty;
    };
    Entry& slot(const TermKey& key) { return entries_[key.hash & (entries_.size() - 1)]; }
    static bool holds(const Entry& entry, const TermKey& key) {  // terms over 16 bytes are never cached
        return ((entry.first ^ key.first) | (entry.last ^ key.last) | (entry.length ^ key.length)) == 0;
    }

    void keep(const TermKey& key, std::uint32_t id) {
        if (key.length <= 16 && (keep_unknown_ || id != Slot::empty))
            slot(key) = {key.first, key.last, static_cast<std::uint32_t>(key.length), id};
    }

private:
    std::vector<Entry> entries_;
    bool keep_unknown_;
};

// Reused from document to document and from call to call, so that a single query allocates nothing.
struct DocumentScratch {
    Analyzer analyzer;
    DocumentCounter counter;
    std::vector<TermKey> keys;
    std::vector<std::uint32_t> ids;
    std::vector<TermCount> row, sorting, block_counts, part_counts;
    std::vector<std::uint32_t> parts, pending;
    std::vector<double> values;
    std::vector<std::int32_t> block_indices;
    std::vector<float> block_data;
};

using DocumentScratchPool = ScratchPool<DocumentScratch>;
inline DocumentScratchPool document_scratch;

// Counts the terms of the analyzed text in several loops. Whether a term is cached is unpredictable, so no loop
// branches on it. Cached terms are resolved at once; the slots of the others are all prefetched before the first is
// read.
template <class Prefetch, class Lookup>
void count_terms(DocumentScratch& s, RecentTerms& recent, HashKey hash_key, float weight,
                 std::span<const Analyzer::Term> terms, Prefetch&& prefetch, Lookup&& lookup) {
    const std::size_t n = terms.size();
    if (s.keys.size() < n) s.keys.resize(n * 2), s.ids.resize(n * 2);
    TermKey* const pending = s.keys.data();
    std::uint32_t* const ids = s.ids.data();
    std::size_t n_pending = 0, n_ids = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const TermKey key = s.analyzer.key(terms[i], hash_key);
        const RecentTerms::Entry& entry = recent.slot(key);
        const bool held = RecentTerms::holds(entry, key);
        pending[n_pending] = key;
        n_pending += !held;
        ids[n_ids] = entry.id;
        n_ids += held & (entry.id != Slot::empty);
    }
    for (std::size_t i = 0; i < n_pending; ++i) prefetch(pending[i].hash);
    s.counter.reserve_more(n);
    for (std::size_t i = 0; i < n_ids; ++i) s.counter.add(ids[i], weight);  // while the prefetches are under way
    for (std::size_t i = 0; i < n_pending; ++i) {
        const TermKey& key = pending[i];
        const std::uint32_t id = lookup(key, weight);
        recent.keep(key, id);
        if (id != Slot::empty) s.counter.add(id, weight);
    }
}

// Counts all terms of the analyzed text, those of the lead with a weight of their own.
template <class Prefetch, class Lookup>
void count_terms(DocumentScratch& s, RecentTerms& recent, HashKey hash_key, float lead_weight, float weight,
                 Prefetch&& prefetch, Lookup&& lookup) {
    // A long text in parts: the keys of all its terms would take many times its size.
    constexpr std::size_t max_terms = 1 << 14;
    const auto all = s.analyzer.terms();
    const std::size_t n_lead = s.analyzer.n_lead_terms();
    for (std::size_t from = 0, n = 0; from < all.size(); from += n) {
        n = std::min(max_terms, (from < n_lead ? n_lead : all.size()) - from);
        count_terms(s, recent, hash_key, from < n_lead ? lead_weight : weight, all.subspan(from, n), prefetch, lookup);
    }
}

// The language of a document by the words of all its fields; Language::none if they do not tell. A title, or a summary
// at the end, may be in another language: the words behind the title decide, then the others.
inline Language document_language(const AnalyzerSpec& spec, const Corpus& corpus, std::int64_t doc,
                                  DocumentScratch& s) {
    constexpr std::size_t title_end = 12, body_end = 60;  // words
    constexpr float others_weight = 0.1f;
    LanguageEvidence body, others;
    std::size_t n_before = 0;
    for (std::int64_t f = 0; f < corpus.n_fields; ++f) {
        const std::size_t n = s.analyzer.read_words(spec, corpus.texts[doc * corpus.n_fields + f], nullptr, false);
        const std::size_t begin = std::min(n, title_end - std::min(n_before, title_end));
        const std::size_t end = std::min(n, body_end - std::min(n_before, body_end));
        s.analyzer.collect(others, 0, begin);
        s.analyzer.collect(body, begin, end);
        s.analyzer.collect(others, end, n);
        n_before += n;
    }
    body.add(others, others_weight);
    return body.best(Language::none);
}

// Counts all fields of one document into s.row: `count(text, evidence, n_lead, weight)` adds those of one of them and
// returns its number of words.
template <class Count>
void count_fields(const AnalyzerSpec& spec, const Corpus& corpus, std::int64_t doc, DocumentScratch& s, Count&& count) {
    s.counter.clear();
    std::size_t n_lead = spec.n_lead;
    LanguageEvidence evidence;
    const bool several = spec.detect_language && corpus.n_fields > 1;  // the fields of a document share its language
    for (std::int64_t f = 0; several && f < corpus.n_fields; ++f)
        s.analyzer.collect_evidence(spec, corpus.texts[doc * corpus.n_fields + f], evidence);
    for (std::int64_t f = 0; f < corpus.n_fields; ++f) {
        const TextView& text = corpus.texts[doc * corpus.n_fields + f];
        n_lead -= std::min(n_lead, count(text, several ? &evidence : nullptr, n_lead, corpus.field_weights[f]));
        if (text.length > (1 << 22)) {  // do not keep the memory of an unusually long text
            s.analyzer = {};
            s.keys = {};
            s.ids = {};
        }
    }
    s.counter.take(s.row);
}

// Counts the terms of all fields of one document into s.row. `lookup(term, weight)` returns the id of a term, or
// Slot::empty to skip it. same_words: see Analyzer::analyze.
template <class Prefetch, class Lookup>
void count_document(const AnalyzerSpec& spec, const Corpus& corpus, std::int64_t doc, DocumentScratch& s,
                    RecentTerms& recent, const HashKey& hash_key, bool same_words, Prefetch&& prefetch,
                    Lookup&& lookup) {
    count_fields(spec, corpus, doc, s, [&](const TextView& text, const auto* evidence, std::size_t n_lead, float w) {
        const std::size_t n_words = s.analyzer.analyze(spec, text, evidence, n_lead, same_words);
        count_terms(s, recent, hash_key, w * spec.lead_weight, w, prefetch, lookup);
        return n_words;
    });
}

}  // namespace ramify
