// Snowball stemmers, written from the published definitions of the algorithms (https://snowballstem.org, version 3):
// the output is theirs. A word is a sequence of code points, in lower case.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ramify {

enum class Language : std::uint8_t { none, german, english, french, spanish, italian, dutch, swedish };
inline constexpr int n_languages = 8;

const char* language_name(Language language);
// Language::none where there is no stemmer of that name.
Language stemmer_language(std::string_view name);
bool has_stemmer(Language language);

// Replaces the word with its stem.
void stem(Language language, std::vector<char32_t>& word);

inline bool is_in(char32_t c, std::u32string_view letters) { return letters.find(c) != std::u32string_view::npos; }

// What the algorithms are written in: tests and changes at the end of a word, regions, vowels.
class StemBuffer {
public:
    explicit StemBuffer(std::vector<char32_t>& word) : word_(word) {}

    std::size_t size() const { return word_.size(); }
    char32_t& operator[](std::size_t i) { return word_[i]; }
    char32_t operator[](std::size_t i) const { return word_[i]; }

    // Whether the first `end` characters end with the suffix.
    bool ends(std::u32string_view suffix, std::size_t end) const {
        return end >= suffix.size() && view().substr(end - suffix.size(), suffix.size()) == suffix;
    }
    bool ends(std::u32string_view suffix) const { return ends(suffix, size()); }
    bool starts(std::u32string_view prefix) const { return view().starts_with(prefix); }

    // The longest of the suffixes that the first `end` characters end with, by index, or -1.
    template <std::size_t n>
    int longest(const std::u32string_view (&suffixes)[n], std::size_t end) const {
        int best = -1;
        std::size_t length = 0;
        for (std::size_t i = 0; i < n; ++i) {
            if ((best < 0 || suffixes[i].size() > length) && ends(suffixes[i], end)) {
                best = static_cast<int>(i);
                length = suffixes[i].size();
            }
        }
        return best;
    }
    template <std::size_t n>
    int longest(const std::u32string_view (&suffixes)[n]) const {
        return longest(suffixes, size());
    }

    void drop(std::size_t n) { word_.resize(size() - n); }
    void replace_end(std::size_t n, std::u32string_view by) {
        drop(n);
        word_.insert(word_.end(), by.begin(), by.end());
    }
    void replace(std::size_t begin, std::size_t n, std::u32string_view by) {
        const auto at = word_.begin() + static_cast<std::ptrdiff_t>(begin);
        word_.insert(word_.erase(at, at + static_cast<std::ptrdiff_t>(n)), by.begin(), by.end());
    }

    // The position behind the first non-vowel that follows a vowel at or after `begin`; the length of the word if there
    // is none. Snowball's R1 starts there, R2 is R1 of R1.
    std::size_t region(std::u32string_view vowels, std::size_t begin = 0) const {
        std::size_t i = begin;
        while (i < size() && !is_in(word_[i], vowels)) ++i;
        while (i < size() && is_in(word_[i], vowels)) ++i;
        return i < size() ? i + 1 : size();
    }

private:
    std::u32string_view view() const { return {word_.data(), word_.size()}; }

    std::vector<char32_t>& word_;
};

void stem_german(std::vector<char32_t>& word);
void stem_english(std::vector<char32_t>& word);

}  // namespace ramify
