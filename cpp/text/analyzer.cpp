#include "text/analyzer.h"

#include <algorithm>
#include <stdexcept>

#include "core/isa.h"
#include "text/utf8.h"

namespace ramify {

namespace {

constexpr std::uint32_t table_size = 0x40000;  // planes 0 to 3; other planes are classified one code point at a time

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

// Blocks of scripts that are written without spaces, with their combining marks.
bool is_unspaced(std::uint32_t c) {
    if (c < 0xe00) return false;
    if (c < 0x1100) return c < 0xf00 || (c >= 0x1000 && c < 0x10a0);  // Thai, Lao, Myanmar
    return (c >= 0x1780 && c < 0x1800) || (c >= 0x3040 && c < 0x3100) || (c >= 0x31f0 && c < 0x3200) ||
           (c >= 0x3400 && c < 0xa000) || (c >= 0xf900 && c < 0xfb00) || (c >= 0x20000 && c < 0x40000);
}

void check_length(const TextView& text) {
    if (text.length > 500'000'000) throw std::length_error("a single text has more than 500 million characters");
}

bool is_digit(std::uint32_t c) { return c >= '0' && c <= '9'; }

}  // namespace

UnicodeTable::UnicodeTable(Classify classify) : classify_(classify), table_(table_size) {
    for (std::uint32_t c = 0; c < table_size; ++c) table_[c] = classify(c);
}

std::size_t Analyzer::analyze(const AnalyzerSpec& spec, const TextView& text, const LanguageEvidence* evidence,
                              std::size_t n_lead, bool same_words) {
    n_grams_.clear();
    borders_.clear();
    n_lead_terms_ = 0;
    check_length(text);
    switch (spec.unit) {
        case TermUnit::word: {
            const std::size_t n_words = read_words(spec, text, evidence, same_words);
            n_lead = std::min(n_lead, n_words);
            const std::size_t n_tokens = spec.normalizes() ? normalize(spec, n_words, n_lead) : n_words;
            join_tokens(spec, n_tokens, n_lead);
            return n_words;
        }
        case TermUnit::chars: chars(spec, text); break;
        case TermUnit::chars_in_words: chars_in_words(spec, text); break;
    }
    return 0;
}

std::size_t Analyzer::read_words(const AnalyzerSpec& spec, const TextView& text, const LanguageEvidence* evidence,
                                 bool same_words) {
    const std::size_t n_words = same_words && has_words_ && !has_unspaced_marks_ ? n_words_ : tokenize(spec, text);
    if (spec.normalizes()) {
        if (words_.size() < n_words) words_.resize(n_words + n_words / 4);
        for (std::size_t i = 0; i < n_words; ++i) words_[i] = key(tokens_[i], process_key());
    }
    if (spec.detect_language) detect_languages(spec, evidence, n_words);
    return n_words;
}

void Analyzer::reserve_bytes(std::int64_t n_code_points) {
    // Four bytes for a code point, up to two blanks around each word, and slack for copies that write past the end of a
    // word.
    const std::size_t needed = static_cast<std::size_t>(n_code_points) * 6 + 64;
    if (bytes_.size() < needed) bytes_.resize(needed);
}

void Analyzer::collect_evidence(const AnalyzerSpec& spec, const TextView& text, LanguageEvidence& evidence) {
    collect(evidence, 0, tokenize(spec, text));
}

void Analyzer::collect(LanguageEvidence& evidence, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) evidence.add(key(tokens_[i], process_key()));
}

std::size_t Analyzer::tokenize(const AnalyzerSpec& spec, const TextView& text) {
    check_length(text);
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
    if (spec.is_split) {
        std::fill_n(word_.begin(), n_masks, std::uint64_t{0});
        for (std::size_t i = 0; i < n; ++i)
            word_[i / 64] |= std::uint64_t{text.at(static_cast<std::int64_t>(i)) != 0x1f} << (i % 64);
    }
    bool all_ascii = true;
    has_unspaced_marks_ = false;
    for (std::size_t w = 0; w < n_masks; ++w) {
        for (std::uint64_t wide = wide_[w]; wide != 0; wide &= wide - 1) {
            all_ascii = false;
            const int bit = std::countr_zero(wide);
            const std::uint32_t c = code_point(static_cast<std::int64_t>(w) * 64 + bit);
            const bool is_mark = !unicode.is_word(c) && is_unspaced(c);
            has_unspaced_marks_ |= is_mark;
            if (unicode.is_word(c) || (spec.split_unspaced && is_mark)) word_[w] |= std::uint64_t{1} << bit;
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

    n_words_ = static_cast<std::size_t>(token - tokens_.data());
    has_words_ = true;
    return n_words_;
}

// Documents may change their language, as from title to abstract: neighboring words decide, then the document.
void Analyzer::detect_languages(const AnalyzerSpec& spec, const LanguageEvidence* document, std::size_t n_tokens) {
    constexpr float document_weight = 0.1f;
    std::vector<LanguageEvidence> local(n_tokens / segment + 1);
    LanguageEvidence all;
    for (std::size_t i = 0; i < local.size(); ++i) {
        for (std::size_t k = i * segment; k < std::min(n_tokens, (i + 1) * segment); ++k) local[i].add(words_[k]);
        if (document == nullptr) all.add(local[i], 1.0f);
    }
    languages_.clear();
    for (LanguageEvidence& evidence : local) {
        evidence.add(document == nullptr ? all : *document, document_weight);
        languages_.push_back(evidence.best(spec.stemmer));
    }
}

// Appends code points as one token, with a blank behind it. The buffer keeps term_padding readable bytes.
void Analyzer::put_normalized(const char32_t* begin, const char32_t* end) {
    if (begin == end) return;
    const std::size_t needed = n_other_ + static_cast<std::size_t>(end - begin) * 4 + 64;
    if (other_bytes_.size() < needed) other_bytes_.resize(needed * 2);
    std::uint8_t* const start = other_bytes_.data() + n_other_;
    std::uint8_t* out = start;
    for (const char32_t* c = begin; c < end; ++c) out = encode(*c, out);
    *out = ' ';
    normalized_.push_back({static_cast<std::uint32_t>(n_other_), static_cast<std::uint32_t>(out - start)});
    n_other_ += static_cast<std::size_t>(out - start) + 1;
    if (n_other_ > 0xf0000000u) throw std::length_error("the terms of a single text have more than 4 GB");
}

std::size_t Analyzer::normalize(const AnalyzerSpec& spec, std::size_t n_tokens, std::size_t& n_lead) {
    const std::size_t lead_end = n_lead;
    normalized_.clear();
    n_other_ = 0;
    for (std::size_t i = 0; i < n_tokens; ++i) {
        if (i == lead_end) n_lead = normalized_.size();
        put_word(spec, i);
    }
    if (lead_end == n_tokens) n_lead = normalized_.size();
    bytes_.swap(other_bytes_);
    tokens_.swap(normalized_);
    has_words_ = false;
    return tokens_.size();
}

std::span<const Analyzer::Term> Analyzer::normalize_word(const AnalyzerSpec& spec, std::size_t i) {
    normalized_.clear();
    n_other_ = 0;
    put_word(spec, i);
    return normalized_;
}

// Appends what the word is replaced with.
void Analyzer::put_word(const AnalyzerSpec& spec, std::size_t i) {
    if (stems_.empty()) stems_.resize(1 << 12);
    const Language language = word_language(spec, i);
    const TermKey& word = words_[i];
    CachedStem& cached = stems_[(word.hash ^ static_cast<std::size_t>(language)) & (stems_.size() - 1)];
    if (cached.is_of(word, language)) {
        if (other_bytes_.size() < n_other_ + 64) other_bytes_.resize((n_other_ + 64) * 2);
        std::uint8_t* const out = other_bytes_.data() + n_other_;
        std::memcpy(out, cached.stem.data(), cached.stem.size());
        out[cached.stem_length] = ' ';
        normalized_.push_back({static_cast<std::uint32_t>(n_other_), cached.stem_length});
        n_other_ += cached.stem_length + 1u;
        return;
    }
    bool number = true, unspaced = false;
    letters_.clear();
    for (const std::uint8_t *p = word.bytes, *const end = p + word.length; p < end;) {
        const std::uint32_t c = decode(p);
        number &= is_digit(c);
        unspaced |= is_unspaced(c);
        letters_.push_back(c);
    }
    if (number && spec.drop_numbers) return;
    if (unspaced && spec.split_unspaced) return put_pairs();
    stem(language, letters_);
    put_normalized(letters_.data(), letters_.data() + letters_.size());
    const std::uint32_t length = letters_.empty() ? 0 : normalized_.back().length;
    if (!number && !unspaced && word.length <= 16 && length > 0 && length <= 16) {
        cached = {
            word.first, word.last, static_cast<std::uint8_t>(word.length), language, static_cast<std::uint8_t>(length),
            {}};
        std::memcpy(cached.stem.data(), other_bytes_.data() + normalized_.back().start, length);
    }
}

// letters_ as runs of one kind of script: all pairs of neighbors, or the run as a word.
void Analyzer::put_pairs() {
    const char32_t* const last = letters_.data() + letters_.size();
    for (const char32_t* begin = letters_.data(); begin < last;) {
        const bool pairs = is_unspaced(*begin);
        const char32_t* end = begin + 1;
        while (end < last && is_unspaced(*end) == pairs) ++end;
        if (!pairs || end - begin == 1) {
            put_normalized(begin, end);
        } else {
            for (const char32_t* c = begin; c + 1 < end; ++c) put_normalized(c, c + 2);
        }
        begin = end;
    }
}

void Analyzer::join_tokens(const AnalyzerSpec& spec, std::size_t n_tokens, std::size_t n_lead) {
    n_lead_terms_ = n_lead;
    if (spec.max_n == 1) {
        terms_ = {tokens_.data(), n_tokens};
        return;
    }
    auto join = [&](std::size_t begin, std::size_t end) {  // the n-grams that start in [begin, end)
        for (int size = spec.min_n; size <= spec.max_n; ++size) {
            const auto span = static_cast<std::size_t>(size);
            for (std::size_t i = begin; i < end && i + span <= n_tokens; ++i) {
                const Term &from = tokens_[i], &to = tokens_[i + span - 1];
                n_grams_.push_back({from.start, to.start + to.length - from.start});
            }
        }
    };
    join(0, n_lead);
    n_lead_terms_ = n_grams_.size();
    join(n_lead, n_tokens);
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
