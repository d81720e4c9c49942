// The language of a text, by its function words and by endings that are typical of a language.
#pragma once

#include <array>
#include <cstdint>

#include "text/stemmers/stemmer.h"
#include "text/vocabulary.h"

namespace ramify {

// Sums up what the words of a text say about its language.
class LanguageEvidence {
public:
    // A word in lower case.
    void add(const TermKey& word);
    void add(const LanguageEvidence& other, float weight);
    // The language with most evidence; the fallback if there is none, or as much for the fallback.
    Language best(Language fallback) const;

private:
    std::array<float, n_languages> scores_{};
};

}  // namespace ramify
