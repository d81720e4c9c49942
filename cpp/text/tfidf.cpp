#include "text/tfidf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "core/parallel.h"

namespace ramify {

namespace {

// Radix sort by column, `width` bits at a time. Rows have tens to hundreds of entries, where it beats comparison sorts.
template <int n_digits>
void radix_sort(std::vector<TermCount>& row, std::vector<TermCount>& other, int width) {
    const std::uint32_t mask = (1u << width) - 1;
    std::array<std::array<std::uint32_t, 128>, n_digits> starts{};
    for (const TermCount& c : row)
        for (int digit = 0; digit < n_digits; ++digit)
            ++starts[static_cast<std::size_t>(digit)][c.id >> (digit * width) & mask];
    for (int digit = 0; digit < n_digits; ++digit) {
        auto& start = starts[static_cast<std::size_t>(digit)];
        std::uint32_t sum = 0;
        for (std::uint32_t i = 0; i <= mask; ++i) sum += std::exchange(start[i], sum);
        TermCount* const out = other.data();
        for (const TermCount& c : row) out[start[c.id >> (digit * width) & mask]++] = c;
        row.swap(other);
    }
}

void sort_counts(std::vector<TermCount>& row, std::vector<TermCount>& other, std::uint32_t n_columns) {
    if (row.size() < 24) {
        std::sort(row.begin(), row.end(), [](const TermCount& a, const TermCount& b) { return a.id < b.id; });
        return;
    }
    other.resize(row.size());
    const int n_bits = std::bit_width(n_columns), n_digits = (n_bits + 6) / 7,
              width = (n_bits + n_digits - 1) / n_digits;
    switch (n_digits) {
        case 1: return radix_sort<1>(row, other, width);
        case 2: return radix_sort<2>(row, other, width);
        case 3: return radix_sort<3>(row, other, width);
        case 4: return radix_sort<4>(row, other, width);
        default: return radix_sort<5>(row, other, width);
    }
}

const std::array<double, 64> small = [] {  // when the module is loaded, as all statics that threads use
    std::array<double, 64> table{};
    for (std::size_t i = 1; i < table.size(); ++i) table[i] = 1.0 + std::log(static_cast<double>(i));
    return table;
}();

double weigh_count(double count, const Weighting& w) {
    if (w.binary) return 1.0;
    if (!w.sublinear || count < 1.0) return count;  // below 1, in a field of small weight, 1 + ln would be negative
    const auto integer = static_cast<std::size_t>(std::min(count, 1e9));
    return integer < small.size() && static_cast<double>(integer) == count ? small[integer] : 1.0 + std::log(count);
}

}  // namespace

void write_weights(std::vector<TermCount>& row, DocumentScratch& s, std::uint32_t n_columns, const Weighting& w,
                   std::int32_t* indices, float* data) {
    if (w.idf != nullptr)  // they are read after the sort
        for (const TermCount& c : row) __builtin_prefetch(w.idf + c.id);
    sort_counts(row, s.sorting, n_columns);
    double total = 0.0;
    s.values.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
        double v = weigh_count(static_cast<double>(row[i].count), w);
        if (w.idf != nullptr) v *= w.idf[row[i].id];
        s.values[i] = v;
        total += w.norm == Weighting::Norm::l1 ? std::abs(v) : v * v;
    }
    if (w.norm == Weighting::Norm::l2) total = std::sqrt(total);
    const double scale = w.norm == Weighting::Norm::none || total == 0.0 ? 1.0 : 1.0 / total;
    for (std::size_t i = 0; i < row.size(); ++i) {
        indices[i] = static_cast<std::int32_t>(row[i].id);
        data[i] = static_cast<float>(s.values[i] * scale);
    }
}

namespace {

constexpr std::int64_t docs_per_chunk = 64;

// Counts documents in the columns of one block.
class BlockCounter {
public:
    BlockCounter(const TfidfBlock& block, std::int64_t n_docs)
        : block_(block),
          splitter_(block.vocabulary, block.subwords == nullptr ? nullptr : block.subwords->costs),
          recent_(n_docs, block.subwords == nullptr) {
        if (block.spec->unit == TermUnit::word && block.spec->max_n == 1 && block.spec->normalizes())
            columns_.emplace(*block.word_columns);
    }

    // Counts one document into s.row.
    void count(const Corpus& corpus, std::int64_t doc, DocumentScratch& s, bool same_words) {
        const AnalyzerSpec& spec = *block_.spec;
        s.part_counts.clear();
        if (columns_) {
            count_fields(spec, corpus, doc, s,
                         [&](const TextView& text, const auto* evidence, std::size_t n_lead, float w) {
                             const std::size_t n_words = s.analyzer.read_words(spec, text, evidence, same_words);
                             n_lead = std::min(n_lead, n_words);
                             count_words(s, 0, n_lead, w * spec.lead_weight);
                             count_words(s, n_lead, n_words, w);
                             return n_words;
                         });
        } else {
            count_document(
                spec, corpus, doc, s, recent_, block_.vocabulary.hash_key, same_words,
                [&](std::uint64_t hash) { block_.vocabulary.prefetch(hash); },
                [&](const TermKey& key, float weight) {
                    const std::uint32_t id = block_.vocabulary.find(key);
                    if (id == Slot::empty) split(key, weight, s);
                    return id;
                });
        }
        if (block_.subwords != nullptr) add_parts(s, *block_.subwords, corpus.integral(spec));
    }

private:
    // The parts of a term that has no column are left in s.parts.
    void split(const TermKey& key, float weight, DocumentScratch& s) const {
        s.parts.clear();
        if (block_.subwords == nullptr) return;
        splitter_.split(key.bytes, key.length, s.parts);
        for (const std::uint32_t part : s.parts) s.part_counts.push_back({part, weight});
    }

    // Counts the words [begin, end): those in word_columns first, then the others.
    void count_words(DocumentScratch& s, std::size_t begin, std::size_t end, float weight) {
        WordColumns& columns = **columns_;
        s.counter.reserve_more(end - begin);
        s.pending.clear();
        for (std::size_t i = begin; i < end; ++i)
            columns.prefetch(s.analyzer.word(i), s.analyzer.word_language(*block_.spec, i));
        for (std::size_t i = begin; i < end; ++i) {
            const TermKey& word = s.analyzer.word(i);
            const Language language = s.analyzer.word_language(*block_.spec, i);
            const WordColumns::Entry& entry = columns.slot(word, language);
            if (!entry.is_of(word, language)) {
                s.pending.push_back(static_cast<std::uint32_t>(i));
                continue;
            }
            if (entry.id != Slot::empty) {
                s.counter.add(entry.id, weight);
                if (block_.subwords != nullptr) __builtin_prefetch(block_.subwords->indptr + entry.id);
            }
            for (std::size_t p = 0; p < entry.n_parts; ++p) s.part_counts.push_back({entry.parts[p], weight});
        }
        for (const std::uint32_t i : s.pending) {
            const auto terms = s.analyzer.normalize_word(*block_.spec, i);
            s.counter.reserve_more(terms.size());
            std::uint32_t id = Slot::empty;
            s.parts.clear();
            for (const Analyzer::Term& term : terms) {
                const TermKey key = s.analyzer.normalized_key(term, block_.vocabulary.hash_key);
                id = block_.vocabulary.find(key);
                if (id != Slot::empty) s.counter.add(id, weight);
                else split(key, weight, s);
            }
            if (terms.size() <= 1)
                columns.keep(s.analyzer.word(i), s.analyzer.word_language(*block_.spec, i), id, s.parts);
        }
    }

    const TfidfBlock& block_;
    WordSplitter splitter_;
    RecentTerms recent_;
    std::optional<WordColumnsPool::Lease> columns_;
};

// Rows of n documents: `write(doc, worker, s, at)` writes those of one document to s.block_indices and s.block_data,
// from `at` on, and returns their end.
template <class Write>
CsrRows rows_in_chunks(std::int64_t n_docs, int threads, Write&& write) {
    struct Rows {
        std::unique_ptr<std::int32_t[]> indices;
        std::unique_ptr<float[]> data;
    };
    const std::int64_t n_chunks = (n_docs + docs_per_chunk - 1) / docs_per_chunk;
    std::vector<Rows> chunks(static_cast<std::size_t>(n_chunks));
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_docs) + 1, 0);
    parallel_for(n_chunks, threads, [&](std::int64_t chunk, int worker_id) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        std::size_t at = 0;
        for (std::int64_t doc = chunk * docs_per_chunk; doc < std::min(n_docs, (chunk + 1) * docs_per_chunk); ++doc) {
            const std::size_t row_start = std::exchange(at, write(doc, static_cast<std::size_t>(worker_id), s, at));
            indptr[static_cast<std::size_t>(doc) + 1] = static_cast<std::int64_t>(at - row_start);
        }
        Rows& rows = chunks[static_cast<std::size_t>(chunk)];
        rows.indices = std::make_unique_for_overwrite<std::int32_t[]>(at);
        rows.data = std::make_unique_for_overwrite<float[]>(at);
        std::copy_n(s.block_indices.data(), at, rows.indices.get());
        std::copy_n(s.block_data.data(), at, rows.data.get());
    });

    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    parallel_for(n_chunks, threads, [&](std::int64_t b, int) {
        const Rows chunk = std::move(chunks[static_cast<std::size_t>(b)]);
        const std::int64_t at = rows.indptr[static_cast<std::size_t>(b * docs_per_chunk)];
        const std::int64_t n = rows.indptr[static_cast<std::size_t>(std::min(n_docs, (b + 1) * docs_per_chunk))] - at;
        std::copy_n(chunk.indices.get(), n, rows.indices.get() + at);
        std::copy_n(chunk.data.get(), n, rows.data.get() + at);
    });
    return rows;
}

// Writes the weights of the counts in s.row, in the columns of one block, from `at` on; returns their end.
std::size_t append_weights(const TfidfBlock& block, std::int32_t first_column, DocumentScratch& s, std::size_t at) {
    const std::size_t n = s.row.size();
    if (s.block_indices.size() < at + n) {
        s.block_indices.resize((at + n) * 2);
        s.block_data.resize((at + n) * 2);
    }
    std::int32_t* const indices = s.block_indices.data() + at;
    float* const data = s.block_data.data() + at;
    const auto n_columns = static_cast<std::uint32_t>(block.vocabulary.n_terms);
    write_weights(s.row, s, n_columns, block.weighting, indices, data);
    if (first_column > 0)
        for (std::size_t i = 0; i < n; ++i) indices[i] += first_column;
    if (block.factor != 1.0f)
        for (std::size_t i = 0; i < n; ++i) data[i] *= block.factor;
    return at + n;
}

}  // namespace

CsrRows tfidf_rows(std::span<const TfidfBlock> blocks, const Corpus& corpus, int threads) {
    std::vector<bool> same_words(blocks.size(), false);
    for (std::size_t i = 1; i < blocks.size(); ++i)
        same_words[i] = corpus.n_fields == 1 && blocks[i].spec->has_words_of(*blocks[i - 1].spec);
    const std::int64_t n_chunks = (corpus.n_docs + docs_per_chunk - 1) / docs_per_chunk;
    std::vector<std::deque<BlockCounter>> counters(static_cast<std::size_t>(worker_count(n_chunks, threads)));
    for (auto& of_worker : counters)
        for (const TfidfBlock& block : blocks) of_worker.emplace_back(block, corpus.n_docs);
    return rows_in_chunks(corpus.n_docs, threads,
                          [&](std::int64_t doc, std::size_t worker, DocumentScratch& s, std::size_t at) {
                              std::int32_t first_column = 0;
                              for (std::size_t b = 0; b < blocks.size(); ++b) {
                                  counters[worker][b].count(corpus, doc, s, same_words[b]);
                                  at = append_weights(blocks[b], first_column, s, at);
                                  first_column += static_cast<std::int32_t>(blocks[b].vocabulary.n_terms);
                              }
                              return at;
                          });
}

template <class Index>
CsrRows tfidf_rows_of_counts(const TfidfBlock& block, const VocabularyView& terms, const CsrView<Index>& counts,
                             int threads) {
    // The column of each term, or else the columns of its parts.
    const WordSplitter splitter(block.vocabulary, block.subwords == nullptr ? nullptr : block.subwords->costs);
    std::vector<std::uint32_t> column(static_cast<std::size_t>(terms.n_terms));
    std::vector<std::vector<std::uint32_t>> parts_of(block.subwords == nullptr ? 0 : column.size());
    constexpr std::int64_t terms_per_block = 4096;
    parallel_for((terms.n_terms + terms_per_block - 1) / terms_per_block, threads, [&](std::int64_t b, int) {
        std::vector<std::uint8_t> padded;
        for (std::int64_t i = b * terms_per_block; i < std::min(terms.n_terms, (b + 1) * terms_per_block); ++i) {
            const std::uint64_t length = terms.offsets[i + 1] - terms.offsets[i];
            padded.assign(terms.bytes + terms.offsets[i], terms.bytes + terms.offsets[i + 1]);
            padded.resize(length + 2 * term_padding);
            const auto id = static_cast<std::size_t>(i);
            column[id] = block.vocabulary.find({padded.data(), length, block.vocabulary.hash_key});
            if (column[id] == Slot::empty && block.subwords != nullptr)
                splitter.split(padded.data(), length, parts_of[id]);
        }
    });
    const std::int64_t n_entries = counts.indptr[counts.rows];
    const bool integral =
        std::all_of(counts.data, counts.data + n_entries, [](float count) { return count == std::floor(count); });
    return rows_in_chunks(counts.rows, threads, [&](std::int64_t doc, std::size_t, DocumentScratch& s, std::size_t at) {
        const Index begin = counts.indptr[doc], end = counts.indptr[doc + 1];
        s.counter.clear();
        s.counter.reserve_more(static_cast<std::size_t>(end - begin));
        s.part_counts.clear();
        for (Index i = begin; i < end; ++i) {
            const auto id = static_cast<std::size_t>(counts.indices[i]);
            if (column[id] != Slot::empty) {
                s.counter.add(column[id], counts.data[i]);
            } else if (block.subwords != nullptr) {
                for (const std::uint32_t part : parts_of[id]) s.part_counts.push_back({part, counts.data[i]});
            }
        }
        s.counter.take(s.row);
        if (block.subwords != nullptr) add_parts(s, *block.subwords, integral);
        return append_weights(block, 0, s, at);
    });
}

template CsrRows tfidf_rows_of_counts(const TfidfBlock&, const VocabularyView&, const CsrView<std::int32_t>&, int);
template CsrRows tfidf_rows_of_counts(const TfidfBlock&, const VocabularyView&, const CsrView<std::int64_t>&, int);

}  // namespace ramify
