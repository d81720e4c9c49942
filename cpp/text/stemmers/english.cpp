#include "text/stemmers/stemmer.h"

namespace ramify {

namespace {

constexpr std::u32string_view vowels = U"aeiouy";

bool is_vowel(char32_t c) { return is_in(c, vowels); }

bool has_vowel(const StemBuffer& w, std::size_t end) {
    for (std::size_t i = 0; i < end; ++i)
        if (is_vowel(w[i])) return true;
    return false;
}

// Whether the first `end` characters end with a short syllable.
bool is_short(const StemBuffer& w, std::size_t end) {
    if (end >= 3 && !is_in(w[end - 1], U"aeiouywxY") && is_vowel(w[end - 2]) && !is_vowel(w[end - 3])) return true;
    if (end == 2 && !is_vowel(w[1]) && is_vowel(w[0])) return true;
    return w.ends(U"past", end);
}

// Words that the rules would get wrong.
bool replace_exception(StemBuffer& w) {
    struct Exception {
        std::u32string_view word, stem;
    };
    static constexpr Exception exceptions[] = {
        {U"andes", U"andes"},  {U"atlas", U"atlas"}, {U"bias", U"bias"}, {U"cosmos", U"cosmos"}, {U"early", U"earli"},
        {U"gently", U"gentl"}, {U"howe", U"howe"},   {U"idly", U"idl"},  {U"news", U"news"},     {U"only", U"onli"},
        {U"singly", U"singl"}, {U"skies", U"sky"},   {U"skis", U"ski"},  {U"sky", U"sky"},       {U"ugly", U"ugli"},
    };
    if (w.size() < 3 || w.size() > 6) return false;
    for (const Exception& e : exceptions) {
        if (w.size() == e.word.size() && w.starts(e.word)) {
            w.replace_end(w.size(), e.stem);
            return true;
        }
    }
    return false;
}

std::size_t first_region(const StemBuffer& w) {
    static constexpr std::u32string_view prefixes[] = {U"arsen", U"commun", U"emerg", U"gener",  U"inter",
                                                       U"later", U"organ",  U"past",  U"univers"};
    for (const std::u32string_view prefix : prefixes)
        if (w.starts(prefix)) return prefix.size();
    return w.region(vowels);
}

void drop_plural(StemBuffer& w) {
    static constexpr std::u32string_view apostrophes[] = {U"'", U"'s", U"'s'"};
    if (const int found = w.longest(apostrophes); found >= 0) w.drop(apostrophes[found].size());
    static constexpr std::u32string_view suffixes[] = {U"sses", U"ied", U"ies", U"s", U"us", U"ss"};
    switch (w.longest(suffixes)) {
        case 0: return w.drop(2);
        case 1:
        case 2: return w.drop(w.size() - 3 >= 2 ? 2 : 1);
        case 3:
            if (w.size() >= 2 && has_vowel(w, w.size() - 2)) w.drop(1);
            return;
        default: return;
    }
}

void drop_past_or_ing(StemBuffer& w, std::size_t r1) {
    static constexpr std::u32string_view suffixes[] = {U"eed", U"eedly", U"ed", U"edly", U"ing", U"ingly"};
    const int found = w.longest(suffixes);
    if (found < 0) return;
    const std::size_t n = suffixes[found].size(), end = w.size() - n;
    if (found <= 1) {
        const bool kept = (end == 4 && (w.starts(U"succ") || w.starts(U"proc"))) || (end == 3 && w.starts(U"exc"));
        if (end >= r1 && !kept) w.replace_end(n, U"ee");
        return;
    }
    if (found == 4) {
        static constexpr std::u32string_view kept[] = {U"even", U"cann", U"inn", U"earr", U"herr", U"out"};
        if (end == 2 && w[1] == U'y' && !is_vowel(w[0])) return w.replace_end(4, U"ie");  // dying, lying, tying
        for (const std::u32string_view word : kept)
            if (end == word.size() && w.starts(word)) return;
    }
    if (!has_vowel(w, end)) return;
    w.drop(n);
    static constexpr std::u32string_view endings[] = {U"at", U"bl", U"iz", U"bb", U"dd", U"ff",
                                                      U"gg", U"mm", U"nn", U"pp", U"rr", U"tt"};
    const int ending = w.longest(endings);
    if (ending < 0) {
        if (end == r1 && is_short(w, end)) w.replace_end(0, U"e");
    } else if (ending <= 2) {
        w.replace_end(0, U"e");
    } else if (end != 3 || !is_in(w[0], U"aeo")) {
        w.drop(1);
    }
}

void y_to_i(StemBuffer& w) {
    const std::size_t n = w.size();
    if (n >= 3 && (w[n - 1] == U'y' || w[n - 1] == U'Y') && !is_vowel(w[n - 2])) w[n - 1] = U'i';
}

struct Rule {
    std::u32string_view suffix, by;
};

// The rule of the longest suffix that the word ends with, or null.
template <std::size_t n>
const Rule* longest_rule(const StemBuffer& w, const Rule (&rules)[n]) {
    const Rule* best = nullptr;
    for (const Rule& rule : rules)
        if ((best == nullptr || rule.suffix.size() > best->suffix.size()) && w.ends(rule.suffix)) best = &rule;
    return best;
}

void shorten_double_suffix(StemBuffer& w, std::size_t r1) {
    static constexpr Rule rules[] = {
        {U"anci", U"ance"},   {U"enci", U"ence"},   {U"ogi", U"og"},      {U"li", U""},         {U"bli", U"ble"},
        {U"abli", U"able"},   {U"alli", U"al"},     {U"fulli", U"ful"},   {U"lessli", U"less"}, {U"ousli", U"ous"},
        {U"entli", U"ent"},   {U"aliti", U"al"},    {U"biliti", U"ble"},  {U"iviti", U"ive"},   {U"tional", U"tion"},
        {U"ational", U"ate"}, {U"alism", U"al"},    {U"ation", U"ate"},   {U"ization", U"ize"}, {U"izer", U"ize"},
        {U"ator", U"ate"},    {U"iveness", U"ive"}, {U"fulness", U"ful"}, {U"ousness", U"ous"}, {U"ogist", U"og"},
    };
    const Rule* const rule = longest_rule(w, rules);
    if (rule == nullptr) return;
    const std::size_t end = w.size() - rule->suffix.size();
    if (end < r1) return;
    if (rule->suffix == U"ogi" && !w.ends(U"l", end)) return;
    if (rule->suffix == U"li" && (end == 0 || !is_in(w[end - 1], U"cdeghkmnrt"))) return;
    w.replace_end(rule->suffix.size(), rule->by);
}

void shorten_suffix(StemBuffer& w, std::size_t r1, std::size_t r2) {
    static constexpr Rule rules[] = {{U"icate", U"ic"}, {U"ative", U""},      {U"alize", U"al"},
                                     {U"iciti", U"ic"}, {U"ical", U"ic"},     {U"tional", U"tion"},
                                     {U"ful", U""},     {U"ational", U"ate"}, {U"ness", U""}};
    const Rule* const rule = longest_rule(w, rules);
    if (rule == nullptr) return;
    const std::size_t end = w.size() - rule->suffix.size();
    if (end >= (rule->suffix == U"ative" ? r2 : r1)) w.replace_end(rule->suffix.size(), rule->by);
}

void drop_suffix(StemBuffer& w, std::size_t r2) {
    static constexpr std::u32string_view suffixes[] = {U"ion", U"ic",  U"ance", U"ence", U"able", U"ible",
                                                       U"ate", U"ive", U"ize",  U"iti",  U"al",   U"ism",
                                                       U"er",  U"ous", U"ant",  U"ent",  U"ment", U"ement"};
    const int found = w.longest(suffixes);
    if (found < 0) return;
    const std::size_t n = suffixes[found].size(), end = w.size() - n;
    if (end < r2) return;
    if (found == 0 && !w.ends(U"s", end) && !w.ends(U"t", end)) return;
    w.drop(n);
}

void drop_final_e_or_l(StemBuffer& w, std::size_t r1, std::size_t r2) {
    if (w.size() == 0) return;
    const std::size_t end = w.size() - 1;
    if (w.ends(U"e")) {
        if (end >= r2 || (end >= r1 && !is_short(w, end))) w.drop(1);
    } else if (w.ends(U"l") && end >= r2 && w.ends(U"l", end)) {
        w.drop(1);
    }
}

}  // namespace

void stem_english(std::vector<char32_t>& word) {
    StemBuffer w(word);
    if (w.size() < 3 || replace_exception(w)) return;
    if (w[0] == U'\'') w.replace(0, 1, U"");
    // y at the start and behind a vowel is a consonant, marked by upper case.
    bool found_y = false;
    for (std::size_t i = 0; i < w.size(); ++i) {
        if (w[i] == U'y' && (i == 0 || is_vowel(w[i - 1]))) {
            w[i] = U'Y';
            found_y = true;
        }
    }
    const std::size_t r1 = first_region(w), r2 = w.region(vowels, r1);
    drop_plural(w);
    drop_past_or_ing(w, r1);
    y_to_i(w);
    shorten_double_suffix(w, r1);
    shorten_suffix(w, r1, r2);
    drop_suffix(w, r2);
    drop_final_e_or_l(w, r1, r2);
    if (found_y)
        for (char32_t& c : word)
            if (c == U'Y') c = U'y';
}

}  // namespace ramify
