// Tokenization: splits text into terms exactly as scikit-learn's analyzers do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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
};

// Produces the terms of one text after the other. Terms are byte ranges of a buffer that is reused for the next text.
class Analyzer {
public:
    struct Term {
        std::uint32_t start, length;
    };

    void analyze(const AnalyzerSpec& spec, const TextView& text);
    std::span<const Term> terms() const { return terms_; }
    TermKey key(const Term& term, const HashKey& hash_key) const {
        return {bytes_.data() + term.start, term.length, hash_key};
    }

private:
    void words(const AnalyzerSpec& spec, const TextView& text);
    void chars(const AnalyzerSpec& spec, const TextView& text);
    void chars_in_words(const AnalyzerSpec& spec, const TextView& text);
    void reserve_bytes(std::int64_t n_code_points);
    void add_windows(std::size_t first, std::size_t last, int n);

    std::vector<std::uint8_t> bytes_, lowered_;
    std::vector<std::uint64_t> word_, wide_;
    std::vector<std::uint32_t> borders_;  // of code points
    std::vector<Term> tokens_, n_grams_;
    std::span<const Term> terms_;  // of tokens_ or n_grams_
};

}  // namespace ramify
