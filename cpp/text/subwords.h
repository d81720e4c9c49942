// Parts of words that are terms of the vocabulary themselves: "steuerrecht" also counts as "steuer" and "recht".
//
// A word is split into the cheapest sequence of known terms, with linking elements such as the s of German compounds
// between them; frequent terms are cheap. Of a word that has no such split, the longest known beginning and the longest
// known end are its parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "text/term_counter.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace ramify {

class WordSplitter {
public:
    static constexpr std::size_t min_part = 4, min_edge = 5, max_word = 64;  // code points
    static constexpr float not_a_part = std::numeric_limits<float>::infinity();

    // costs: of each term of the vocabulary as a part; not_a_part where it is none.
    WordSplitter(const VocabularyView& vocabulary, const float* costs) : vocabulary_(vocabulary), costs_(costs) {}

    // Appends the ids of the parts of a word, which has term_padding readable bytes behind it.
    void split(const std::uint8_t* word, std::size_t n_bytes, std::vector<std::uint32_t>& parts) const {
        std::array<std::uint32_t, max_word + 1> border;
        std::size_t n = 0;
        for (std::size_t i = 0; i < n_bytes; ++i) {
            const std::uint8_t c = word[i];
            if (c <= '9') return;  // a number, or several words
            if (!is_first_byte(c)) continue;
            if (n == max_word) return;
            border[n++] = static_cast<std::uint32_t>(i);
        }
        if (n <= min_edge) return;
        border[n] = static_cast<std::uint32_t>(n_bytes);
        auto find = [&](std::size_t from, std::size_t to) {
            const std::uint32_t id =
                vocabulary_.find({word + border[from], border[to] - border[from], vocabulary_.hash_key});
            return id == Slot::empty || costs_[id] == not_a_part ? Slot::empty : id;
        };
        if (n >= 2 * min_part && cheapest_split({word, n_bytes}, border, n, find, parts)) return;
        for (std::size_t length = n - 1; length >= min_edge; --length) {
            if (const std::uint32_t id = find(0, length); id != Slot::empty) {
                parts.push_back(id);
                break;
            }
        }
        for (std::size_t length = n - 1; length >= min_edge; --length) {
            if (const std::uint32_t id = find(n - length, n); id != Slot::empty) {
                parts.push_back(id);
                break;
            }
        }
    }

private:
    struct Step {
        float cost = std::numeric_limits<float>::infinity();
        std::uint32_t from = 0, id = Slot::empty;  // no id: a linking element
    };

    template <class Find>
    bool cheapest_split(std::span<const std::uint8_t> word, const std::array<std::uint32_t, max_word + 1>& border,
                        std::size_t n, Find&& find, std::vector<std::uint32_t>& parts) const {
        constexpr float link_cost = 2.0f;
        std::array<Step, max_word + 1> best;
        best[0].cost = 0.0f;
        for (std::size_t from = 0; from + min_part <= n; ++from) {
            if (best[from].cost == not_a_part) continue;
            auto improve = [&](std::size_t to, float cost, std::uint32_t id) {
                if (best[from].cost + cost < best[to].cost)
                    best[to] = {best[from].cost + cost, static_cast<std::uint32_t>(from), id};
            };
            for (std::size_t to = from + min_part; to <= n; ++to) {
                if (from == 0 && to == n) continue;
                if (to < n && to + min_part > n) continue;  // what is left could not be a part
                if (const std::uint32_t id = find(from, to); id != Slot::empty) improve(to, costs_[id], id);
            }
            if (from == 0 || best[from].id == Slot::empty) continue;
            for (const std::string_view link : {"s", "n", "en", "es", "er", "e"}) {
                if (from + link.size() + min_part > n) continue;
                const std::string_view rest(reinterpret_cast<const char*>(word.data()) + border[from],
                                            border[n] - border[from]);
                if (rest.starts_with(link)) improve(from + link.size(), link_cost, Slot::empty);
            }
        }
        if (best[n].cost == not_a_part) return false;
        const std::size_t first = parts.size();
        for (std::size_t at = n; at > 0; at = best[at].from)
            if (best[at].id != Slot::empty) parts.push_back(best[at].id);
        std::reverse(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end());
        return true;
    }

    VocabularyView vocabulary_;
    const float* costs_;
};

// The parts of the terms of a finished vocabulary.
struct SubwordView {
    const std::int64_t* indptr = nullptr;  // (n_terms + 1)
    const std::int32_t* parts = nullptr;   // (indptr[n_terms])
    const float* costs = nullptr;          // (n_terms) as parts of unknown words; WordSplitter::not_a_part: none

    std::span<const std::int32_t> of(std::uint32_t id) const {
        return {parts + indptr[id], static_cast<std::size_t>(indptr[id + 1] - indptr[id])};
    }
};

// Checks that the arrays are safe to use; throws std::invalid_argument with the reason if not.
inline void check_subwords(const SubwordView& view, std::int64_t n_terms, std::int64_t n_parts) {
    bool valid = view.indptr[0] == 0 && view.indptr[n_terms] == n_parts;
    for (std::int64_t i = 0; i < n_terms; ++i) valid &= view.indptr[i] <= view.indptr[i + 1];
    if (valid)
        for (std::int64_t i = 0; i < n_parts; ++i) valid &= view.parts[i] >= 0 && view.parts[i] < n_terms;
    if (!valid) throw std::invalid_argument("the parts of words do not match the vocabulary");
}

// Adds the parts of the terms of a document, whose ids are columns, and s.part_counts, those of words without a column.
// Sums of fractional counts depend on their order, and the order of s.row on the threads: they are sorted first.
inline void add_parts(DocumentScratch& s, const SubwordView& subwords, bool integral) {
    for (const TermCount& c : s.row) __builtin_prefetch(subwords.parts + subwords.indptr[c.id]);
    for (const TermCount& c : s.row)
        for (const std::int32_t part : subwords.of(c.id))
            s.part_counts.push_back({static_cast<std::uint32_t>(part), c.count});
    if (s.part_counts.empty()) return;
    if (!integral)
        std::sort(s.part_counts.begin(), s.part_counts.end(), [](const TermCount& a, const TermCount& b) {
            return a.id != b.id ? a.id < b.id : a.count < b.count;
        });
    s.counter.reserve_more(s.part_counts.size());
    for (const TermCount& c : s.part_counts) s.counter.add(c.id, c.count);
    s.part_counts.clear();
    s.counter.take(s.row);
}

}  // namespace ramify
