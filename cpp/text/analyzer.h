// Tokenization: splits text into terms exactly as scikit-learn's analyzers do, and optionally normalizes the words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "text/language.h"
#include "text/vocabulary.h"

namespace ramify {

// A string as Python stores it: code points of 1, 2 or 4 bytes.
struct TextView {
    const void* data = nullptr;
    std::int64_t length = 0;
    int width = 1;

    std::uint32_t at(std::int64_t i) const {
        if (width == 1) return static_cast<const std::uint8_t*>(data)[i];
        if (width == 2) return static_cast<const std::uint16_t*>(data)[i];
        return static_cast<const std::uint32_t*>(data)[i];
    }
};

// Lower case and character class of every code point. They come from the host language, so that words end where its own
// regular expressions end them; the planes that hold letters are tabulated once.
class UnicodeTable {
public:
    static constexpr std::uint32_t lower_mask = 0x1fffff, word_flag = 1u << 30, space_flag = 1u << 31;
    using Classify = std::uint32_t (*)(std::uint32_t code_point);  // lower case | flags

    explicit UnicodeTable(Classify classify);
    std::uint32_t operator[](std::uint32_t c) const { return c < table_.size() ? table_[c] : classify_(c); }
    std::uint32_t lower(std::uint32_t c) const { return (*this)[c] & lower_mask; }
    bool is_word(std::uint32_t c) const { return ((*this)[c] & word_flag) != 0; }
    bool is_space(std::uint32_t c) const { return ((*this)[c] & space_flag) != 0; }

private:
    Classify classify_;
    std::vector<std::uint32_t> table_;
};

enum class TermUnit { word, chars, chars_in_words };

struct AnalyzerSpec {
    TermUnit unit = TermUnit::word;
    int min_n = 1, max_n = 1;
    bool lowercase = true;
    int min_token = 2;  // shortest word, in code points
    VocabularyBuilder stop_words;
    std::shared_ptr<const UnicodeTable> unicode;

    bool is_split = false;  // words are what stands between separators (U+001F), not runs of letters and digits

    // Words are normalized, in this order: numbers dropped, scripts without spaces cut into pairs of characters, all
    // other words replaced by their stems.
    bool drop_numbers = false;  // words of digits only
    bool split_unspaced = false;
    bool detect_language = false;  // of each document; `stemmer` where its words do not tell
    Language stemmer = Language::none;

    // The first words of a document, such as its title, count lead_weight times.
    std::size_t n_lead = 0;
    float lead_weight = 1.0f;

    bool normalizes() const { return drop_numbers || split_unspaced || detect_language || stemmer != Language::none; }
    // Whether the words of a text, before they are normalized, are those of the other.
    bool has_words_of(const AnalyzerSpec& other) const {
        return unit == TermUnit::word && other.unit == TermUnit::word && lowercase == other.lowercase &&
               min_token == other.min_token && is_split == other.is_split && stop_words.size() == 0 &&
               other.stop_words.size() == 0;
    }
};

// Produces the terms of one text after the other. Terms are byte ranges of a buffer that is reused for the next text.
class Analyzer {
public:
    struct Term {
        std::uint32_t start, length;
    };

    // evidence: of the whole document, where its language is detected; null: of this text alone. n_lead: words that
    // start the document. same_words: the last text was the same, and spec.has_words_of the last one. Returns the
    // number of words.
    std::size_t analyze(const AnalyzerSpec& spec, const TextView& text, const LanguageEvidence* evidence = nullptr,
                        std::size_t n_lead = 0, bool same_words = false);
    // The same in steps: the words as they are, then what some of them are replaced with.
    std::size_t read_words(const AnalyzerSpec& spec, const TextView& text, const LanguageEvidence* evidence,
                           bool same_words);
    const TermKey& word(std::size_t i) const { return words_[i]; }  // if the spec normalizes words
    Language word_language(const AnalyzerSpec& spec, std::size_t i) const {
        return spec.detect_language ? languages_[i / segment] : spec.stemmer;
    }
    std::span<const Term> normalize_word(const AnalyzerSpec& spec, std::size_t i);
    TermKey normalized_key(const Term& term, const HashKey& hash_key) const {
        return {other_bytes_.data() + term.start, term.length, hash_key};
    }
    // Adds what the words of the text say about its language.
    void collect_evidence(const AnalyzerSpec& spec, const TextView& text, LanguageEvidence& evidence);
    void collect(LanguageEvidence& evidence, std::size_t begin, std::size_t end) const;
    std::span<const Term> terms() const { return terms_; }
    // How many terms, the first ones, start within the lead.
    std::size_t n_lead_terms() const { return n_lead_terms_; }
    TermKey key(const Term& term, const HashKey& hash_key) const {
        return {bytes_.data() + term.start, term.length, hash_key};
    }

private:
    static constexpr std::size_t segment = 24;  // words that share a language

    // The stem of a word of up to sixteen bytes. Most words are frequent ones: few are stemmed twice.
    struct CachedStem {
        std::uint64_t first = 0, last = 0;  // as in TermKey
        std::uint8_t length = 0;
        Language language = Language::none;
        std::uint8_t stem_length = 0;
        std::array<std::uint8_t, 16> stem{};

        bool is_of(const TermKey& word, Language in) const {
            return first == word.first && last == word.last && length == word.length && language == in;
        }
    };

    std::size_t tokenize(const AnalyzerSpec& spec, const TextView& text);  // the number of tokens
    void detect_languages(const AnalyzerSpec& spec, const LanguageEvidence* document, std::size_t n_tokens);
    // Returns the new number of tokens; n_lead becomes that of the tokens of the lead.
    std::size_t normalize(const AnalyzerSpec& spec, std::size_t n_tokens, std::size_t& n_lead);
    void put_word(const AnalyzerSpec& spec, std::size_t i);
    void put_normalized(const char32_t* begin, const char32_t* end);
    void put_pairs();
    void join_tokens(const AnalyzerSpec& spec, std::size_t n_tokens, std::size_t n_lead);
    void chars(const AnalyzerSpec& spec, const TextView& text);
    void chars_in_words(const AnalyzerSpec& spec, const TextView& text);
    void reserve_bytes(std::int64_t n_code_points);
    void add_windows(std::size_t first, std::size_t last, int n);

    std::vector<std::uint8_t> bytes_, other_bytes_, lowered_;
    std::vector<std::uint64_t> word_, wide_;
    std::vector<std::uint32_t> borders_;  // of code points
    std::vector<char32_t> letters_;
    std::vector<Language> languages_;  // of each segment
    std::vector<CachedStem> stems_;
    std::size_t n_other_ = 0;  // bytes in use of other_bytes_
    std::size_t n_lead_terms_ = 0;
    std::vector<TermKey> words_;       // of the words in tokens_, if they are normalized
    std::size_t n_words_ = 0;          // in tokens_, if it has them
    bool has_words_ = false;           // tokens_ are the words of the last text, not normalized
    bool has_unspaced_marks_ = false;  // the last text has characters that belong to words only with split_unspaced
    std::vector<Term> tokens_, normalized_, n_grams_;
    std::span<const Term> terms_;  // of tokens_ or n_grams_
};

}  // namespace ramify
