// Texts of arbitrary code points: learning a vocabulary, its hash table, and features that agree with those of the fit.
#include "input.h"
#include "text/corpus_counts.h"
#include "text/tfidf.h"

using namespace ramify;

namespace {

std::uint32_t classify(std::uint32_t c) {  // like Python, as far as it matters: letters, digits, blanks, other planes
    const bool is_upper = c - 'A' < 26u, is_word = is_upper || c - 'a' < 26u || c - '0' < 10u || c == '_' || c % 7 == 3;
    return (is_upper ? c + 32 : c) | (is_word ? UnicodeTable::word_flag : 0) |
           (c == ' ' || c == '\n' || c == 0x2003 ? UnicodeTable::space_flag : 0);
}

const auto unicode = std::make_shared<const UnicodeTable>(classify);

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    AnalyzerSpec spec;
    spec.unit = static_cast<TermUnit>(input.between(0, 2));
    spec.min_n = static_cast<int>(input.between(1, 3));
    spec.max_n = spec.min_n + static_cast<int>(input.between(0, 3));
    spec.lowercase = input.take<std::uint8_t>() % 2 != 0;
    spec.min_token = static_cast<int>(input.between(1, 3));
    spec.unicode = unicode;
    if (spec.unit == TermUnit::word) {
        const auto flags = input.take<std::uint8_t>();
        spec.drop_numbers = (flags & 1) != 0;
        spec.split_unspaced = (flags & 2) != 0;
        spec.detect_language = (flags & 4) != 0;
        spec.is_split = (flags & 8) != 0;
        if ((flags & 16) != 0) spec.stemmer = static_cast<Language>(input.between(0, n_languages - 1));
        if (!has_stemmer(spec.stemmer)) spec.stemmer = Language::none;
    }
    const bool with_subwords = spec.unit == TermUnit::word && spec.max_n == 1 && input.take<std::uint8_t>() % 2 != 0;
    const int width = 1 << input.between(0, 2);
    const std::vector<std::uint8_t> bytes = input.rest();
    const auto n_units = static_cast<std::int64_t>(bytes.size()) / width;
    std::vector<std::uint32_t> wide(static_cast<std::size_t>(n_units));
    const void* units = bytes.data();
    if (width == 4) {  // code points, as Python guarantees
        if (!wide.empty()) std::memcpy(wide.data(), bytes.data(), wide.size() * 4);
        for (auto& c : wide) c %= 0x110000;
        units = wide.data();
    }
    const auto* first = static_cast<const std::uint8_t*>(units);
    const std::int64_t cut = n_units / 3;
    const std::vector<TextView> texts{{first, cut, width}, {first + cut * width, n_units - cut, width}};
    const float weight = 1.0f;
    const Corpus corpus{texts.data(), 2, 1, &weight};
    CorpusCounts counts(spec, corpus, true, 1);
    counts.select(1, 2, 1);
    const FrozenVocabulary frozen = counts.freeze(nullptr, with_subwords);
    const auto n_terms = static_cast<std::int64_t>(frozen.offsets.size()) - 1;
    std::vector<std::uint8_t> padded = frozen.bytes;
    padded.resize(padded.size() + term_padding);
    const HashKey key{0x1234567, 0x89abcdef01234567u, 42};
    const SlotTable slots = make_slots(frozen.offsets.data(), padded.data(), n_terms, key);
    const VocabularyView view{n_terms, frozen.offsets.data(), frozen.bytes.data(), slots.data(), slots.size(), key};
    check_vocabulary(view, frozen.bytes.size());
    Subwords parts;
    SubwordView subwords;
    if (with_subwords) {
        parts = counts.add_subwords(view, 1, 1);
        subwords = {parts.indptr.data(), parts.parts.data(), parts.costs.data()};
        check_subwords(subwords, n_terms, static_cast<std::int64_t>(parts.parts.size()));
    }
    const Weighting weighting{false, false, Weighting::Norm::l2, nullptr};
    WordColumnsPool columns;
    const TfidfBlock block{&spec, view, with_subwords ? &subwords : nullptr, weighting, &columns};
    const CsrRows fitted = counts.rows(weighting, 1), again = tfidf_rows({&block, 1}, corpus, 1);
    require(fitted.indptr == again.indptr &&
            std::equal(fitted.indices.get(), fitted.indices.get() + fitted.indptr.back(), again.indices.get()) &&
            std::equal(fitted.data.get(), fitted.data.get() + fitted.indptr.back(), again.data.get()));
    return 0;
}
