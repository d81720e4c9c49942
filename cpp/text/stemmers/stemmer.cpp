#include "text/stemmers/stemmer.h"

#include <array>

namespace ramify {

namespace {

struct Entry {
    const char* name;
    void (*stem)(std::vector<char32_t>& word);  // null: the language is detected, but its words are left as they are
};

constexpr std::array<Entry, n_languages> languages{{{"none", nullptr},
                                                    {"german", stem_german},
                                                    {"english", stem_english},
                                                    {"french", nullptr},
                                                    {"spanish", nullptr},
                                                    {"italian", nullptr},
                                                    {"dutch", nullptr},
                                                    {"swedish", nullptr}}};

const Entry& entry(Language language) { return languages[static_cast<std::size_t>(language)]; }

}  // namespace

const char* language_name(Language language) { return entry(language).name; }

Language stemmer_language(std::string_view name) {
    for (std::size_t i = 0; i < languages.size(); ++i)
        if (name == languages[i].name && languages[i].stem != nullptr) return static_cast<Language>(i);
    return Language::none;
}

bool has_stemmer(Language language) { return entry(language).stem != nullptr; }

void stem(Language language, std::vector<char32_t>& word) {
    if (const auto apply = entry(language).stem; apply != nullptr) apply(word);
}

}  // namespace ramify
