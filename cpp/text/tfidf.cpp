#include "text/tfidf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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

CsrRows tfidf_rows(const AnalyzerSpec& spec, const VocabularyView& vocabulary, const SubwordView* subwords,
                   const Weighting& weighting, const Corpus& corpus, int threads) {
    constexpr std::int64_t block_size = 64;
    struct Block {
        std::unique_ptr<std::int32_t[]> indices;
        std::unique_ptr<float[]> data;
    };
    const std::int64_t n_blocks = (corpus.n_docs + block_size - 1) / block_size;
    std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(corpus.n_docs) + 1, 0);
    const auto n_columns = static_cast<std::uint32_t>(vocabulary.n_terms);

    std::vector<RecentTerms> recent(static_cast<std::size_t>(worker_count(n_blocks, threads)),
                                    RecentTerms(corpus.n_docs, subwords == nullptr));
    const WordSplitter splitter(vocabulary, subwords == nullptr ? nullptr : subwords->costs);
    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        Block& block = blocks[static_cast<std::size_t>(b)];
        std::size_t at = 0;
        auto prefetch = [&](std::uint64_t hash) { vocabulary.prefetch(hash); };
        auto lookup = [&](const TermKey& key, float weight) {
            const std::uint32_t id = vocabulary.find(key);
            if (id == Slot::empty && subwords != nullptr) {
                s.parts.clear();
                splitter.split(key.bytes, key.length, s.parts);
                for (const std::uint32_t part : s.parts) s.part_counts.push_back({part, weight});
            }
            return id;
        };
        s.part_counts.clear();
        for (std::int64_t doc = b * block_size; doc < std::min(corpus.n_docs, (b + 1) * block_size); ++doc) {
            count_document(spec, corpus, doc, s, recent[static_cast<std::size_t>(worker_id)], vocabulary.hash_key,
                           prefetch, lookup);
            if (subwords != nullptr) add_parts(s, *subwords, corpus.integral());
            auto& row = s.row;
            if (s.block_indices.size() < at + row.size()) {
                s.block_indices.resize((at + row.size()) * 2);
                s.block_data.resize((at + row.size()) * 2);
            }
            write_weights(row, s, n_columns, weighting, s.block_indices.data() + at, s.block_data.data() + at);
            indptr[static_cast<std::size_t>(doc) + 1] = static_cast<std::int64_t>(row.size());
            at += row.size();
        }
        block.indices = std::make_unique_for_overwrite<std::int32_t[]>(at);
        block.data = std::make_unique_for_overwrite<float[]>(at);
        std::copy_n(s.block_indices.data(), at, block.indices.get());
        std::copy_n(s.block_data.data(), at, block.data.get());
    });

    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        Block block = std::move(blocks[static_cast<std::size_t>(b)]);
        const std::int64_t at = rows.indptr[static_cast<std::size_t>(b * block_size)];
        const std::int64_t n =
            rows.indptr[static_cast<std::size_t>(std::min(corpus.n_docs, (b + 1) * block_size))] - at;
        std::copy_n(block.indices.get(), n, rows.indices.get() + at);
        std::copy_n(block.data.get(), n, rows.data.get() + at);
    });
    return rows;
}

}  // namespace ramify
