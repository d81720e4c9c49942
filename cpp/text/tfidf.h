// TF-IDF rows in the feature space of a finished vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/csr.h"
#include "text/analyzer.h"
#include "text/subwords.h"
#include "text/term_counter.h"
#include "text/vocabulary.h"

namespace ramify {

struct Weighting {
    enum class Norm { none, l1, l2 };
    bool binary = false;     // a term counts at most once in a document
    bool sublinear = false;  // 1 + ln(count)
    Norm norm = Norm::l2;
    const double* idf = nullptr;  // (n_terms), or null
};

// The columns that recent words count in, so that a known word needs neither its stem nor the vocabulary.
class WordColumns {
public:
    static constexpr std::size_t max_parts = 4, max_length = 32;

    // A word in a language: its column, or else the columns of its parts. One to a cache line.
    struct alignas(64) Entry {
        std::uint64_t first = 0, last = 0;  // as in TermKey
        std::array<std::uint8_t, max_length - 16> middle{};
        std::uint32_t id = Slot::empty;
        std::uint8_t length = 0, n_parts = 0;
        Language language = Language::none;
        std::array<std::uint32_t, max_parts> parts{};

        bool is_of(const TermKey& word, Language in) const {
            return first == word.first && last == word.last && length == word.length && language == in &&
                   (length <= 16 || std::memcmp(middle.data(), word.bytes + 8, length - 16u) == 0);
        }
    };

    void prefetch(const TermKey& word, Language language) { __builtin_prefetch(&slot(word, language)); }
    void keep(const TermKey& word, Language language, std::uint32_t id, std::span<const std::uint32_t> parts) {
        if (word.length > max_length || parts.size() > max_parts) return;
        Entry& entry = slot(word, language);
        entry.first = word.first;
        entry.last = word.last;
        entry.id = id;
        entry.length = static_cast<std::uint8_t>(word.length);
        entry.n_parts = static_cast<std::uint8_t>(parts.size());
        entry.language = language;
        if (word.length > 16) std::memcpy(entry.middle.data(), word.bytes + 8, word.length - 16);
        std::copy(parts.begin(), parts.end(), entry.parts.begin());
    }
    Entry& slot(const TermKey& word, Language language) {
        return entries_[(word.hash ^ static_cast<std::size_t>(language)) & (entries_.size() - 1)];
    }

private:
    std::vector<Entry> entries_{1 << 14};
};
using WordColumnsPool = ScratchPool<WordColumns>;

// A finished vocabulary with its weights: some columns of the features.
struct TfidfBlock {
    const AnalyzerSpec* spec = nullptr;
    VocabularyView vocabulary;
    const SubwordView* subwords = nullptr;  // terms outside the vocabulary count as their parts; null: are skipped
    Weighting weighting;
    WordColumnsPool* word_columns = nullptr;
    float factor = 1.0f;  // on the weights
};

// Sorts the counts of a row, whose ids are columns by now, and writes its weights.
void write_weights(std::vector<TermCount>& row, DocumentScratch& s, std::uint32_t n_columns, const Weighting& w,
                   std::int32_t* indices, float* data);

// The rows of a corpus, the columns of the blocks beside each other.
CsrRows tfidf_rows(std::span<const TfidfBlock> blocks, const Corpus& corpus, int threads);

// The rows of documents whose terms were counted before (documents × terms), with the bits that tfidf_rows gives the
// texts. The terms need no hash table.
template <class Index>
CsrRows tfidf_rows_of_counts(const TfidfBlock& block, const VocabularyView& terms, const CsrView<Index>& counts,
                             int threads);

}  // namespace ramify
