#include <algorithm>

#include "text/stemmers/stemmer.h"

namespace ramify {

namespace {

constexpr std::u32string_view vowels = U"aeiouyäöü";

// u and y between vowels are consonants, marked by upper case; umlauts may be written as two letters.
void mark_consonants(StemBuffer& w) {
    for (std::size_t i = 0; i + 2 < w.size(); ++i) {
        char32_t& middle = w[i + 1];
        if ((middle == U'u' || middle == U'y') && is_in(w[i], vowels) && is_in(w[i + 2], vowels))
            middle = middle == U'u' ? U'U' : U'Y';
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
        if (w[i] == U'ß') {
            w.replace(i++, 1, U"ss");
        } else if (i + 1 < w.size() && w[i] == U'q' && w[i + 1] == U'u') {
            ++i;
        } else if (i + 1 < w.size() && w[i + 1] == U'e' && is_in(w[i], U"aou")) {
            w.replace(i, 2, w[i] == U'a' ? U"ä" : w[i] == U'o' ? U"ö" : U"ü");
        }
    }
}

void drop_inflection(StemBuffer& w, std::size_t r1) {
    static constexpr std::u32string_view suffixes[] = {U"em", U"ern", U"er", U"erin", U"erinnen", U"e",
                                                       U"en", U"es",  U"s",  U"ln",   U"lns"};
    const int found = w.longest(suffixes);
    if (found < 0) return;
    const std::size_t n = suffixes[found].size(), end = w.size() - n;
    if (end < r1) return;
    if (found == 0) {
        if (!w.ends(U"syst", end)) w.drop(n);
    } else if (found <= 4) {
        w.drop(n);
    } else if (found <= 7) {
        w.drop(n);
        if (w.ends(U"niss")) w.drop(1);
    } else if (found == 8) {
        if (end > 0 && is_in(w[end - 1], U"bdfghklmnrt")) w.drop(n);
    } else {
        w.replace_end(n, U"l");
    }
}

void drop_verb_ending(StemBuffer& w, std::size_t r1) {
    static constexpr std::u32string_view suffixes[] = {U"en", U"er", U"est", U"st", U"et"};
    const int found = w.longest(suffixes);
    if (found < 0) return;
    const std::size_t n = suffixes[found].size(), end = w.size() - n;
    if (end < r1) return;
    if (found == 3) {
        if (end < 4 || !is_in(w[end - 1], U"bdfghklmnt")) return;
    } else if (found == 4) {
        static constexpr std::u32string_view kept[] = {U"tick", U"plan", U"geordn", U"intern", U"tr"};
        if (end == 0 || !is_in(w[end - 1], U"Udfgklmnrstzä") || w.longest(kept, end) >= 0) return;
    }
    w.drop(n);
}

void drop_derivation(StemBuffer& w, std::size_t r1, std::size_t r2) {
    static constexpr std::u32string_view suffixes[] = {U"end",  U"ung",  U"ig",   U"ik",
                                                       U"isch", U"lich", U"heit", U"keit"};
    const int found = w.longest(suffixes);
    if (found < 0) return;
    const std::size_t n = suffixes[found].size(), end = w.size() - n;
    if (end < r2) return;
    if (found >= 2 && found <= 4 && w.ends(U"e", end)) return;
    w.drop(n);
    if (found <= 1) {
        if (w.ends(U"ig") && !w.ends(U"e", end - 2) && end - 2 >= r2) w.drop(2);
    } else if (found == 5 || found == 6) {
        if ((w.ends(U"er") || w.ends(U"en")) && end - 2 >= r1) w.drop(2);
    } else if (found == 7) {
        const std::size_t inner = w.ends(U"lich") ? 4 : w.ends(U"ig") ? 2 : 0;
        if (inner > 0 && end - inner >= r2) w.drop(inner);
    }
}

void drop_apostrophe(StemBuffer& w) {
    static constexpr std::u32string_view suffixes[] = {U"'", U"'sch", U"'s"};
    const int found = w.longest(suffixes);
    if (found >= 0 && w.size() >= suffixes[found].size() + 2) w.drop(suffixes[found].size());
}

}  // namespace

void stem_german(std::vector<char32_t>& word) {
    StemBuffer w(word);
    mark_consonants(w);
    std::size_t r1 = w.size(), r2 = w.size();
    if (w.size() >= 3) {
        r1 = w.region(vowels);
        r2 = w.region(vowels, r1);
        r1 = std::max<std::size_t>(r1, 3);
    }
    drop_inflection(w, r1);
    drop_verb_ending(w, r1);
    drop_derivation(w, r1, r2);
    drop_apostrophe(w);
    for (char32_t& c : word) {
        if (c == U'U' || c == U'ü') c = U'u';
        if (c == U'Y') c = U'y';
        if (c == U'ä') c = U'a';
        if (c == U'ö') c = U'o';
    }
}

}  // namespace ramify
