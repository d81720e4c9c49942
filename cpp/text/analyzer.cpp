#include "text/analyzer.h"

#include <algorithm>
#include <stdexcept>

#include "core/isa.h"

namespace ramify {

namespace {

constexpr std::uint32_t table_size = 0x40000;  // planes 0 to 3; other planes are classified one code point at a time

inline std::uint8_t* encode(std::uint32_t c, std::uint8_t* out) {
    if (c < 0x80) {
        *out++ = static_cast<std::uint8_t>(c);
    } else if (c < 0x800) {
        *out++ = static_cast<std::uint8_t>(0xc0 | c >> 6);
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = static_cast<std::uint8_t>(0xe0 | c >> 12);
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 6 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    } else {
        *out++ = static_cast<std::uint8_t>(0xf0 | c >> 18);
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 12 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c >> 6 & 63));
        *out++ = static_cast<std::uint8_t>(0x80 | (c & 63));
    }
    return out;
}

// Writes code points as UTF-8 and records the start of each.
struct CodePointWriter {
    std::uint8_t* const start;
    std::uint8_t* out;
    std::vector<std::uint32_t>& borders;

    void close() { borders.push_back(static_cast<std::uint32_t>(out - start)); }  // end of the last one
    void operator()(std::uint32_t c) {
        close();
        out = encode(c, out);
    }
};

// The first position in [begin, end) whose bit is set, or end.
std::int64_t next_bit(const std::vector<std::uint64_t>& mask, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at = (at / 64 + 1) * 64) {
        const std::uint64_t bits = mask[static_cast<std::size_t>(at / 64)] >> (at % 64);
        if (bits != 0) return std::min(end, at + std::countr_zero(bits));
    }
    return end;
}

}  // namespace

UnicodeTable::UnicodeTable(Classify classify) : classify_(classify), table_(table_size) {
    for (std::uint32_t c = 0; c < table_size; ++c) table_[c] = classify(c);
}

void Analyzer::analyze(const AnalyzerSpec& spec, const TextView& text) {
    n_grams_.clear();
    borders_.clear();
    if (text.length > 500'000'000) throw std::length_error("a single text has more than 500 million characters");
    switch (spec.unit) {
        case TermUnit::word: return words(spec, text);
        case TermUnit::chars: return chars(spec, text);
        case TermUnit::chars_in_words: return chars_in_words(spec, text);
    }
}

void Analyzer::reserve_bytes(std::int64_t n_code_points) {
    // Four bytes for a code point, up to two blanks around each word, and slack for copies that write past the end of a
    // word.
    const std::size_t needed = static_cast<std::size_t>(n_code_points) * 6 + 64;
    if (bytes_.size() < needed) bytes_.resize(needed);
}

void Analyzer::words(const AnalyzerSpec& spec, const TextView& text) {
    const UnicodeTable& unicode = *spec.unicode;
    const std::size_t n = static_cast<std::size_t>(text.length), n_masks = n / 64 + 1;
    if (lowered_.size() < n + 64) lowered_.resize(n + 64);
    if (word_.size() < n_masks) word_.resize(n_masks), wide_.resize(n_masks);
    reserve_bytes(text.length);
    hot().scan_text(text.data, text.length, text.width, spec.lowercase, lowered_.data(), word_.data(), wide_.data());

    auto code_point = [&](std::int64_t i) {
        const std::uint32_t c = text.at(i);
        return spec.lowercase ? unicode.lower(c) : c;
    };
    bool all_ascii = true;
    for (std::size_t w = 0; w < n_masks; ++w) {
        for (std::uint64_t wide = wide_[w]; wide != 0; wide &= wide - 1) {
            all_ascii = false;
            const int bit = std::countr_zero(wide);
            if (unicode.is_word(code_point(static_cast<std::int64_t>(w) * 64 + bit)))
                word_[w] |= std::uint64_t{1} << bit;
        }
    }

    // Tokens are written to bytes_ one after the other with a blank between, so an n-gram is a range of it.
    const bool has_stop_words = spec.stop_words.size() > 0;
    if (tokens_.size() < n / 2 + 1) tokens_.resize(n / 2 + 1);
    Term* token = tokens_.data();
    std::uint8_t* out = bytes_.data();
    auto emit = [&](std::int64_t begin, std::int64_t end) {
        if (end - begin < spec.min_token) return;
        std::uint8_t* const start = out;
        for (std::int64_t i = begin;;) {
            const std::int64_t wide = all_ascii ? end : next_bit(wide_, i, end);
            for (std::int64_t at = i; at < wide; at += 16) std::memcpy(out + (at - i), &lowered_[at], 16);
            out += wide - i;
            if (wide == end) break;
            out = encode(code_point(wide), out);
            i = wide + 1;
        }
        const auto length = static_cast<std::uint32_t>(out - start);
        if (has_stop_words && spec.stop_words.holds(start, length)) {
            out = start;
            return;
        }
        *token++ = {static_cast<std::uint32_t>(start - bytes_.data()), length};
        *out++ = ' ';
    };
    std::uint64_t carry = 0;
    std::int64_t begin = -1;
    for (std::size_t w = 0; w < n_masks; ++w) {
        const std::uint64_t mask = word_[w];
        for (std::uint64_t edges = mask ^ (mask << 1 | carry); edges != 0; edges &= edges - 1) {
            const std::int64_t at = static_cast<std::int64_t>(w) * 64 + std::countr_zero(edges);
            if (begin < 0) {
                begin = at;
            } else {
                emit(begin, at);
                begin = -1;
            }
        }
        carry = mask >> 63;
    }

    const auto n_tokens = static_cast<std::size_t>(token - tokens_.data());
    if (spec.max_n == 1) {
        terms_ = {tokens_.data(), n_tokens};
        return;
    }
    for (int size = spec.min_n; size <= spec.max_n; ++size) {
        const auto span = static_cast<std::size_t>(size);
        for (std::size_t i = 0; i + span <= n_tokens; ++i) {
            const Term &from = tokens_[i], &to = tokens_[i + span - 1];
            n_grams_.push_back({from.start, to.start + to.length - from.start});
        }
    }
    terms_ = n_grams_;
}

// All windows of n code points between borders_[first] and borders_[last].
void Analyzer::add_windows(std::size_t first, std::size_t last, int n) {
    for (std::size_t i = first; i + static_cast<std::size_t>(n) <= last; ++i) {
        const std::uint32_t from = borders_[i], to = borders_[i + static_cast<std::size_t>(n)];
        n_grams_.push_back({from, to - from});
    }
}

void Analyzer::chars(const AnalyzerSpec& spec, const TextView& text) {
    const UnicodeTable& unicode = *spec.unicode;
    reserve_bytes(text.length);
    CodePointWriter put{bytes_.data(), bytes_.data(), borders_};
    for (std::int64_t i = 0; i < text.length; ++i) {
        const std::uint32_t c = spec.lowercase ? unicode.lower(text.at(i)) : text.at(i);
        if (unicode.is_space(c) && i + 1 < text.length && unicode.is_space(text.at(i + 1))) {
            while (i + 1 < text.length && unicode.is_space(text.at(i + 1))) ++i;
            put(' ');
        } else {
            put(c);
        }
    }
    put.close();
    for (int n = spec.min_n; n <= spec.max_n; ++n) add_windows(0, borders_.size() - 1, n);
    terms_ = n_grams_;
}

void Analyzer::chars_in_words(const AnalyzerSpec& spec, const TextView& text) {
    const UnicodeTable& unicode = *spec.unicode;
    reserve_bytes(text.length);
    CodePointWriter put{bytes_.data(), bytes_.data(), borders_};
    for (std::int64_t i = 0; i < text.length;) {
        if (unicode.is_space(text.at(i))) {
            ++i;
            continue;
        }
        const std::size_t first = borders_.size();
        put(' ');
        for (; i < text.length && !unicode.is_space(text.at(i)); ++i)
            put(spec.lowercase ? unicode.lower(text.at(i)) : text.at(i));
        put(' ');
        const std::size_t last = borders_.size();
        put.close();
        for (int n = spec.min_n; n <= spec.max_n; ++n) {
            if (last - first <= static_cast<std::size_t>(n)) {  // a word shorter than n counts once, as a whole
                n_grams_.push_back({borders_[first], borders_[last] - borders_[first]});
                break;
            }
            add_windows(first, last, n);
        }
    }
    terms_ = n_grams_;
}

}  // namespace ramify
