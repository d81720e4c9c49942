// Counting the terms of one document after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "text/text.h"
#include "text/vocabulary.h"

namespace ramify {

// n_docs documents of n_fields texts each, document by document; a field's terms count with its weight.
struct Corpus {
    const TextView* texts = nullptr;
    std::int64_t n_docs = 0;
    std::int64_t n_fields = 1;
    const float* field_weights = nullptr;  // (n_fields)
};

struct TermCount {
    std::uint32_t id;
    float count;
};

// Adds up the terms of one document in a table that stays in the first-level cache.
class DocumentCounter {
public:
    // Makes room for n more terms; call it before add().
    void expect(std::size_t n) {
        const std::size_t needed = size_ + n;
        if (counts_.size() < needed) counts_.resize(needed * 2);
        if (slots_.size() >= needed * 2) return;
        slots_.assign(std::bit_ceil(needed * 2), 0);
        for (std::size_t k = 0; k < size_; ++k) {
            std::size_t i = slot(counts_[k].id);
            while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = static_cast<std::uint32_t>(k + 1);
        }
    }

    void add(std::uint32_t id, float weight) {
        for (std::size_t i = slot(id);; i = (i + 1) & (slots_.size() - 1)) {
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

    // Before each document: also after one that ended in an error, since the counter outlives the call.
    void clear() {
        size_ = 0;
        if (slots_.size() > 8192) {  // after an uncommonly long document
            slots_ = std::vector<std::uint32_t>(1024, 0);
            counts_ = {};
        } else {
            std::fill(slots_.begin(), slots_.end(), 0u);
        }
    }

private:
    std::size_t slot(std::uint32_t id) const { return (id * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1); }

    std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1024, 0);  // position in counts_ + 1, or 0
    std::vector<TermCount> counts_;
    std::size_t size_ = 0;
};

// Remembers the numbers of the terms that were met last. Words follow Zipf's law: most lookups end here, in the cache,
// instead of in a table of many megabytes.
class RecentTerms {
public:
    // For a few documents the vocabulary itself is near enough.
    explicit RecentTerms(std::int64_t n_docs) : entries_(n_docs < 256 ? 64 : 8192) {}

    struct Entry {
        std::uint64_t first = 0, last = 0;
        std::uint32_t length = 0, id = Slot::empty;
    };
    Entry& home(const TermKey& key) { return entries_[key.hash & (entries_.size() - 1)]; }
    static bool holds(const Entry& entry, const TermKey& key) {  // terms over 16 bytes are never kept
        return ((entry.first ^ key.first) | (entry.last ^ key.last) | (entry.length ^ key.length)) == 0;
    }

private:
    std::vector<Entry> entries_;
};

// What a worker needs again and again; kept by each calling thread, so that a single query allocates nothing.
struct Scratch {
    Analyzer analyzer;
    DocumentCounter counter;
    std::vector<TermKey> keys;
    std::vector<std::uint32_t> ids;
    std::vector<TermCount> row, sorting;
    std::vector<double> values;
    std::vector<std::int32_t> block_indices;
    std::vector<float> block_data;
};

// Not inlined: its address would be computed anew for every term.
[[gnu::noinline]] inline Scratch& scratch() {
    static thread_local Scratch kept;
    return kept;
}

// Counts the terms of the analysed text, in rounds: what is met at random, a hit or a miss, costs a mispredicted branch
// each time, so no round branches on it. Recent terms are settled at once; the slots of the others are asked of the memory
// together before they are read.
template <class Prefetch, class Lookup>
void count_terms(Scratch& s, RecentTerms& recent, float weight, Prefetch&& prefetch, Lookup&& lookup) {
    const auto& terms = s.analyzer.terms();
    const std::size_t n = terms.size();
    if (s.keys.size() < n) s.keys.resize(n * 2), s.ids.resize(n * 2);
    TermKey* const pending = s.keys.data();
    std::uint32_t* const ids = s.ids.data();
    std::size_t n_pending = 0, n_ids = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const TermKey key = s.analyzer.key(terms[i]);
        const RecentTerms::Entry& entry = recent.home(key);
        const bool held = RecentTerms::holds(entry, key);
        pending[n_pending] = key;
        n_pending += !held;
        ids[n_ids] = entry.id;
        n_ids += held & (entry.id != Slot::empty);
    }
    for (std::size_t i = 0; i < n_pending; ++i) prefetch(pending[i].hash);
    s.counter.expect(n);
    for (std::size_t i = 0; i < n_ids; ++i) s.counter.add(ids[i], weight);  // while the memory is at work
    for (std::size_t i = 0; i < n_pending; ++i) {
        const TermKey& key = pending[i];
        const std::uint32_t id = lookup(key);
        if (key.length <= 16) recent.home(key) = {key.first, key.last, static_cast<std::uint32_t>(key.length), id};
        if (id != Slot::empty) s.counter.add(id, weight);
    }
}

// Counts of one document, all its fields, in s.row. `lookup` gives a term's number, or Slot::empty to pass it over.
template <class Prefetch, class Lookup>
void count_document(const AnalyzerSpec& spec, const Corpus& corpus, std::int64_t doc, Scratch& s, RecentTerms& recent,
                    Prefetch&& prefetch, Lookup&& lookup) {
    s.counter.clear();
    for (std::int64_t f = 0; f < corpus.n_fields; ++f) {
        const TextView& text = corpus.texts[doc * corpus.n_fields + f];
        s.analyzer.analyze(spec, text);
        count_terms(s, recent, corpus.field_weights[f], prefetch, lookup);
        if (text.length > (1 << 22)) {  // an uncommonly long text must not hold its memory for ever
            s.analyzer = {};
            s.keys = {};
            s.ids = {};
        }
    }
    s.counter.take(s.row);
}

}  // namespace ramify
