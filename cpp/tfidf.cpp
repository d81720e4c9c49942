#include "tfidf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "parallel.h"

namespace ramify {

namespace {

constexpr double tf_unit = 1 << 20;
constexpr std::size_t n_shards = 64;

std::size_t shard_of(std::uint64_t hash) { return static_cast<std::size_t>(hash) % n_shards; }  // tables use the high bits

// Adds up the terms of one document in a table that stays in the first-level cache.
class DocumentCounter {
public:
    // Makes room for n more terms; call it before add().
    void expect(std::size_t n) {
        const std::size_t needed = size_ + n;
        if (counts_.size() < needed) counts_.resize(needed * 2);
        if (slots_.size() >= needed * 2) return;
        slots_.assign(std::bit_ceil(needed * 2), 0);
        for (std::size_t k = 0; k < size_; ++k) {
            std::size_t i = slot(counts_[k].id);
            while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = static_cast<std::uint32_t>(k + 1);
        }
    }

    void add(std::uint32_t id, float weight) {
        for (std::size_t i = slot(id);; i = (i + 1) & (slots_.size() - 1)) {
            if (slots_[i] == 0) {
                counts_[size_++] = {id, weight};
                slots_[i] = static_cast<std::uint32_t>(size_);
                return;
            }
            TermCount& entry = counts_[slots_[i] - 1];
            if (entry.id == id) {
                entry.count += weight;
                return;
            }
        }
    }

    // What was counted; the next document begins.
    void take(std::vector<TermCount>& row) {
        row.assign(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(size_));
        size_ = 0;
        if (slots_.size() > 8192) {  // after an uncommonly long document
            slots_ = std::vector<std::uint32_t>(1024, 0);
            counts_ = {};
        } else {
            std::fill(slots_.begin(), slots_.end(), 0u);
        }
    }

private:
    std::size_t slot(std::uint32_t id) const { return (id * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1); }

    std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1024, 0);  // position in counts_ + 1, or 0
    std::vector<TermCount> counts_;
    std::size_t size_ = 0;
};

// Remembers the numbers of the terms that were met last. Words follow Zipf's law: most lookups end here, in the cache,
// instead of in a table of many megabytes.
class RecentTerms {
public:
    // For a few documents the vocabulary itself is near enough.
    explicit RecentTerms(std::int64_t n_docs) : entries_(n_docs < 256 ? 64 : 8192) {}

    struct Entry {
        std::uint64_t first = 0, last = 0;
        std::uint32_t length = 0, id = Slot::empty;
    };
    Entry& home(const TermKey& key) { return entries_[key.hash & (entries_.size() - 1)]; }
    static bool holds(const Entry& entry, const TermKey& key) {  // terms over 16 bytes are never kept
        return ((entry.first ^ key.first) | (entry.last ^ key.last) | (entry.length ^ key.length)) == 0;
    }

private:
    std::vector<Entry> entries_;
};

struct Scratch {
    Analyzer analyzer;
    DocumentCounter counter;
    std::vector<TermKey> keys;
    std::vector<std::uint32_t> ids;
    std::vector<TermCount> row, sorting;
    std::vector<double> values;
    std::vector<std::int32_t> block_indices;
    std::vector<float> block_data;
};

// Kept by each calling thread, so that a single query allocates nothing. Not inlined: its address would be computed anew
// for every term.
[[gnu::noinline]] Scratch& scratch() {
    static thread_local Scratch kept;
    return kept;
}

// Counts the terms of the analysed text, in rounds: what is met at random, a hit or a miss, costs a mispredicted branch
// each time, so no round branches on it. Recent terms are settled at once; the slots of the others are asked of the memory
// together before they are read.
template <class Prefetch, class Lookup>
void count_terms(Scratch& s, RecentTerms& recent, float weight, Prefetch&& prefetch, Lookup&& lookup) {
    const auto& terms = s.analyzer.terms();
    const std::size_t n = terms.size();
    if (s.keys.size() < n) s.keys.resize(n * 2), s.ids.resize(n * 2);
    TermKey* const pending = s.keys.data();
    std::uint32_t* const ids = s.ids.data();
    std::size_t n_pending = 0, n_ids = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const TermKey key = s.analyzer.key(terms[i]);
        const RecentTerms::Entry& entry = recent.home(key);
        const bool held = RecentTerms::holds(entry, key);
        pending[n_pending] = key;
        n_pending += !held;
        ids[n_ids] = entry.id;
        n_ids += held & (entry.id != Slot::empty);
    }
    for (std::size_t i = 0; i < n_pending; ++i) prefetch(pending[i].hash);
    s.counter.expect(n);
    for (std::size_t i = 0; i < n_ids; ++i) s.counter.add(ids[i], weight);  // while the memory is at work
    for (std::size_t i = 0; i < n_pending; ++i) {
        const TermKey& key = pending[i];
        const std::uint32_t id = lookup(key);
        if (key.length <= 16) recent.home(key) = {key.first, key.last, static_cast<std::uint32_t>(key.length), id};
        if (id != Slot::empty) s.counter.add(id, weight);
    }
}

// Sorts by column, `width` bits a pass. Rows have tens to hundreds of entries, where that beats comparisons.
template <int n_passes>
void radix_sort(std::vector<TermCount>& row, std::vector<TermCount>& other, int width) {
    const std::uint32_t mask = (1u << width) - 1;
    std::array<std::array<std::uint32_t, 128>, n_passes> starts{};
    for (const TermCount& c : row)
        for (int pass = 0; pass < n_passes; ++pass) ++starts[static_cast<std::size_t>(pass)][c.id >> (pass * width) & mask];
    for (int pass = 0; pass < n_passes; ++pass) {
        auto& start = starts[static_cast<std::size_t>(pass)];
        std::uint32_t sum = 0;
        for (std::uint32_t i = 0; i <= mask; ++i) sum += std::exchange(start[i], sum);
        TermCount* const out = other.data();
        for (const TermCount& c : row) out[start[c.id >> (pass * width) & mask]++] = c;
        row.swap(other);
    }
}

void sort_counts(std::vector<TermCount>& row, std::vector<TermCount>& other, std::uint32_t n_columns) {
    if (row.size() < 24) {
        std::sort(row.begin(), row.end(), [](const TermCount& a, const TermCount& b) { return a.id < b.id; });
        return;
    }
    other.resize(row.size());
    const int n_bits = std::bit_width(n_columns), n_passes = (n_bits + 6) / 7, width = (n_bits + n_passes - 1) / n_passes;
    switch (n_passes) {
        case 1: return radix_sort<1>(row, other, width);
        case 2: return radix_sort<2>(row, other, width);
        case 3: return radix_sort<3>(row, other, width);
        case 4: return radix_sort<4>(row, other, width);
        default: return radix_sort<5>(row, other, width);
    }
}

double weigh_count(double count, const Weighting& w) {
    static const std::array<double, 64> small = [] {
        std::array<double, 64> table{};
        for (std::size_t i = 1; i < table.size(); ++i) table[i] = 1.0 + std::log(static_cast<double>(i));
        return table;
    }();
    if (w.binary) return 1.0;
    if (!w.sublinear || count < 1.0) return count;  // below one, in a light field, 1 + ln would fall below nought
    const auto whole = static_cast<std::size_t>(std::min(count, 1e9));
    return whole < small.size() && static_cast<double>(whole) == count ? small[whole] : 1.0 + std::log(count);
}

// Sorts the counts of a row, which name columns by now, and writes its weights.
void write_row(std::vector<TermCount>& row, Scratch& s, std::uint32_t n_columns, const Weighting& w,
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

std::int64_t block_count(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

TfidfRows allocate_rows(std::vector<std::int64_t> indptr) {
    TfidfRows rows;
    const auto nnz = static_cast<std::size_t>(indptr.back());
    rows.indices = std::make_unique_for_overwrite<std::int32_t[]>(nnz);
    rows.data = std::make_unique_for_overwrite<float[]>(nnz);
    rows.indptr = std::move(indptr);
    return rows;
}

}  // namespace

TfidfRows tfidf_rows(const AnalyzerSpec& spec, const VocabularyView& vocabulary, const Weighting& weighting,
                     const Corpus& corpus, int threads) {
    constexpr std::int64_t block_size = 64;
    struct Block {
        std::unique_ptr<std::int32_t[]> indices;
        std::unique_ptr<float[]> data;
    };
    const std::int64_t n_blocks = block_count(corpus.n_docs, block_size);
    std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(corpus.n_docs) + 1, 0);
    const auto n_columns = static_cast<std::uint32_t>(vocabulary.n_terms);

    std::vector<RecentTerms> recent(static_cast<std::size_t>(worker_count(n_blocks, threads)), RecentTerms(corpus.n_docs));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        Scratch& s = scratch();
        Block& block = blocks[static_cast<std::size_t>(b)];
        std::size_t at = 0;
        auto prefetch = [&](std::uint64_t hash) { vocabulary.prefetch(hash); };
        auto lookup = [&](const TermKey& key) { return vocabulary.find(key); };
        for (std::int64_t doc = b * block_size; doc < std::min(corpus.n_docs, (b + 1) * block_size); ++doc) {
            for (std::int64_t f = 0; f < corpus.n_fields; ++f) {
                s.analyzer.analyze(spec, corpus.texts[doc * corpus.n_fields + f]);
                count_terms(s, recent[static_cast<std::size_t>(worker_id)], corpus.field_weights[f], prefetch, lookup);
            }
            auto& row = s.row;
            s.counter.take(row);
            if (s.block_indices.size() < at + row.size()) {
                s.block_indices.resize((at + row.size()) * 2);
                s.block_data.resize((at + row.size()) * 2);
            }
            write_row(row, s, n_columns, weighting, s.block_indices.data() + at, s.block_data.data() + at);
            indptr[static_cast<std::size_t>(doc) + 1] = static_cast<std::int64_t>(row.size());
            at += row.size();
        }
        block.indices = std::make_unique_for_overwrite<std::int32_t[]>(at);
        block.data = std::make_unique_for_overwrite<float[]>(at);
        std::copy_n(s.block_indices.data(), at, block.indices.get());
        std::copy_n(s.block_data.data(), at, block.data.get());
    });

    for (std::size_t i = 1; i < indptr.size(); ++i) indptr[i] += indptr[i - 1];
    TfidfRows rows = allocate_rows(std::move(indptr));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        Block block = std::move(blocks[static_cast<std::size_t>(b)]);
        const std::int64_t at = rows.indptr[static_cast<std::size_t>(b * block_size)];
        const std::int64_t n = rows.indptr[static_cast<std::size_t>(std::min(corpus.n_docs, (b + 1) * block_size))] - at;
        std::copy_n(block.indices.get(), n, rows.indices.get() + at);
        std::copy_n(block.data.get(), n, rows.data.get() + at);
    });
    return rows;
}

CorpusCounts::CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads)
    : n_docs_(corpus.n_docs), with_tf_(with_tf) {
    constexpr std::int64_t block_size = 512;
    const std::int64_t n_blocks = block_count(corpus.n_docs, block_size);
    blocks_.resize(static_cast<std::size_t>(n_blocks));
    for (int i = 0; i < worker_count(n_blocks, threads); ++i) workers_.push_back(std::make_unique<Worker>());
    std::vector<RecentTerms> recent(workers_.size(), RecentTerms(corpus.n_docs));

    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        Scratch& s = scratch();
        Worker& worker = *workers_[static_cast<std::size_t>(worker_id)];
        Block& block = blocks_[static_cast<std::size_t>(b)];
        block.worker = worker_id;
        auto prefetch = [&](std::uint64_t hash) { worker.vocabulary.view().prefetch(hash); };
        auto lookup = [&](const TermKey& key) { return worker.vocabulary.find_or_add(key); };
        for (std::int64_t doc = b * block_size; doc < std::min(corpus.n_docs, (b + 1) * block_size); ++doc) {
            for (std::int64_t f = 0; f < corpus.n_fields; ++f) {
                s.analyzer.analyze(spec, corpus.texts[doc * corpus.n_fields + f]);
                count_terms(s, recent[static_cast<std::size_t>(worker_id)], corpus.field_weights[f], prefetch, lookup);
            }
            auto& row = s.row;
            s.counter.take(row);
            worker.df.resize(static_cast<std::size_t>(worker.vocabulary.size()), 0);
            for (const TermCount& c : row) ++worker.df[c.id];
            if (with_tf) {
                worker.tf.resize(static_cast<std::size_t>(worker.vocabulary.size()), 0);
                for (const TermCount& c : row) worker.tf[c.id] += std::llround(static_cast<double>(c.count) * tf_unit);
            }
            block.counts.insert(block.counts.end(), row.begin(), row.end());
            block.row_sizes.push_back(static_cast<std::uint32_t>(row.size()));
        }
        block.counts.shrink_to_fit();
    });
    merge(threads);
}

// Brings the vocabularies of the workers together. A term's shard depends on its hash alone, so shards can be merged in
// parallel. Which worker saw which document shows nowhere but in the order of the shards' entries, which select() sorts.
void CorpusCounts::merge(int threads) {
    const std::size_t n_workers = workers_.size();
    shard_id_.resize(n_workers);
    if (n_workers == 1) {
        Worker& only = *workers_[0];
        Shard& shard = shards_.emplace_back();
        shard.vocabulary = std::move(only.vocabulary);
        shard.df.assign(only.df.begin(), only.df.end());
        shard.tf = std::move(only.tf);
        return;
    }
    shards_.resize(n_shards);
    std::vector<std::vector<std::vector<std::uint32_t>>> members(n_workers);  // (worker)(shard) local terms
    parallel_for(static_cast<std::int64_t>(n_workers), threads, [&](std::int64_t w, int) {
        const VocabularyBuilder& vocabulary = workers_[static_cast<std::size_t>(w)]->vocabulary;
        auto& mine = members[static_cast<std::size_t>(w)];
        mine.resize(n_shards);
        shard_id_[static_cast<std::size_t>(w)].resize(static_cast<std::size_t>(vocabulary.size()));
        for (std::uint32_t id = 0; id < static_cast<std::uint32_t>(vocabulary.size()); ++id)
            mine[shard_of(vocabulary.hash(id))].push_back(id);
    });
    parallel_for(static_cast<std::int64_t>(n_shards), threads, [&](std::int64_t sh, int) {
        Shard& shard = shards_[static_cast<std::size_t>(sh)];
        for (std::size_t w = 0; w < n_workers; ++w) {
            const Worker& worker = *workers_[w];
            for (const std::uint32_t id : members[w][static_cast<std::size_t>(sh)]) {
                const std::uint32_t merged = shard.vocabulary.find_or_add(worker.vocabulary.key(id));
                shard_id_[w][id] = merged;
                shard.df.resize(static_cast<std::size_t>(shard.vocabulary.size()), 0);
                shard.df[merged] += worker.df[id];
                if (!with_tf_) continue;
                shard.tf.resize(static_cast<std::size_t>(shard.vocabulary.size()), 0);
                shard.tf[merged] += worker.tf[id];
            }
        }
    });
}

void CorpusCounts::select(std::int64_t min_df, std::int64_t max_df, int threads) {
    // Buckets of the first two bytes, in order, then each bucket sorted on its own.
    constexpr std::size_t n_buckets = 1 << 16;
    std::vector<std::uint32_t> start(n_buckets + 1, 0);
    auto for_each_selected = [&](auto&& visit) {
        for (std::uint32_t sh = 0; sh < shards_.size(); ++sh) {
            const Shard& shard = shards_[sh];
            for (std::uint32_t id = 0; id < shard.df.size(); ++id) {
                if (shard.df[id] < min_df || shard.df[id] > max_df) continue;
                const std::uint64_t prefix = term_prefix(shard.vocabulary.term(id), shard.vocabulary.length(id));
                visit(SelectedTerm{__builtin_bswap64(prefix), sh, id});
            }
        }
    };
    for_each_selected([&](const SelectedTerm& t) { ++start[(t.key >> 48) + 1]; });
    for (std::size_t i = 1; i <= n_buckets; ++i) start[i] += start[i - 1];
    selected_.resize(start[n_buckets]);
    std::vector<std::uint32_t> next(start.begin(), start.end() - 1);
    for_each_selected([&](const SelectedTerm& t) { selected_[next[t.key >> 48]++] = t; });

    auto before = [&](const SelectedTerm& a, const SelectedTerm& b) {
        if (a.key != b.key) return a.key < b.key;
        const std::size_t na = length(a), nb = length(b);
        const int order = std::memcmp(term(a), term(b), std::min(na, nb));
        return order != 0 ? order < 0 : na < nb;
    };
    constexpr std::int64_t buckets_a_block = 64;
    parallel_for(static_cast<std::int64_t>(n_buckets) / buckets_a_block, threads, [&](std::int64_t block, int) {
        for (auto b = static_cast<std::size_t>(block * buckets_a_block); b < static_cast<std::size_t>((block + 1) * buckets_a_block); ++b)
            std::sort(selected_.begin() + start[b], selected_.begin() + start[b + 1], before);
    });

    selected_df_.clear();
    selected_tf_.clear();
    for (const SelectedTerm& t : selected_) {
        selected_df_.push_back(shards_[t.shard].df[t.id]);
        if (with_tf_) selected_tf_.push_back(static_cast<double>(shards_[t.shard].tf[t.id]) / tf_unit);
    }
}

FrozenVocabulary CorpusCounts::freeze(const std::uint8_t* keep) {
    for (Shard& shard : shards_) shard.final_id.assign(shard.df.size(), Slot::empty);
    FrozenVocabulary frozen;
    frozen.offsets.push_back(0);
    for (std::size_t i = 0; i < selected_.size(); ++i) {
        if (keep != nullptr && keep[i] == 0) continue;
        const SelectedTerm& t = selected_[i];
        shards_[t.shard].final_id[t.id] = static_cast<std::uint32_t>(frozen.offsets.size() - 1);
        frozen.bytes.insert(frozen.bytes.end(), term(t), term(t) + length(t));
        frozen.offsets.push_back(frozen.bytes.size());
    }
    const auto n_terms = static_cast<std::int64_t>(frozen.offsets.size()) - 1;
    frozen.bytes.resize(frozen.bytes.size() + term_padding, 0);
    frozen.slots = make_slots(frozen.offsets.data(), frozen.bytes.data(), n_terms);
    frozen.bytes.resize(frozen.bytes.size() - term_padding);

    const bool merged = shards_.size() > 1;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
        Worker& worker = *workers_[w];
        if (!merged) {
            worker.final_id = std::move(shards_[0].final_id);
            continue;
        }
        worker.final_id.resize(shard_id_[w].size());
        for (std::uint32_t id = 0; id < worker.final_id.size(); ++id)
            worker.final_id[id] = shards_[shard_of(worker.vocabulary.hash(id))].final_id[shard_id_[w][id]];
        worker.vocabulary = {};
    }
    shards_ = {};
    shard_id_ = {};
    return frozen;
}

TfidfRows CorpusCounts::rows(const Weighting& weighting, int threads) {
    // First the sizes of the rows without the terms that were dropped, then each block writes to its own place.
    std::vector<std::int64_t> first_row(blocks_.size() + 1, 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b)
        first_row[b + 1] = first_row[b] + static_cast<std::int64_t>(blocks_[b].row_sizes.size());
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_docs_) + 1, 0);
    std::atomic<std::uint32_t> n_columns{0};
    parallel_for(static_cast<std::int64_t>(blocks_.size()), threads, [&](std::int64_t b, int) {
        Block& block = blocks_[static_cast<std::size_t>(b)];
        const auto& final_id = workers_[static_cast<std::size_t>(block.worker)]->final_id;
        std::uint32_t largest = 0;
        TermCount* out = block.counts.data();
        const TermCount* in = out;
        for (std::size_t r = 0; r < block.row_sizes.size(); ++r) {
            const TermCount* const row = out;
            for (std::uint32_t i = 0; i < block.row_sizes[r]; ++i, ++in) {
                const std::uint32_t id = final_id[in->id];
                if (id == Slot::empty) continue;
                *out++ = {id, in->count};
                largest = std::max(largest, id + 1);
            }
            indptr[static_cast<std::size_t>(first_row[static_cast<std::size_t>(b)]) + r + 1] = out - row;
        }
        std::uint32_t seen = n_columns.load();
        while (seen < largest && !n_columns.compare_exchange_weak(seen, largest)) {}
    });
    for (std::size_t i = 1; i < indptr.size(); ++i) indptr[i] += indptr[i - 1];
    TfidfRows rows = allocate_rows(std::move(indptr));
    parallel_for(static_cast<std::int64_t>(blocks_.size()), threads, [&](std::int64_t b, int) {
        Scratch& s = scratch();
        Block block = std::move(blocks_[static_cast<std::size_t>(b)]);
        std::vector<TermCount>& row = s.row;
        const TermCount* in = block.counts.data();
        for (std::size_t r = 0; r < block.row_sizes.size(); ++r) {
            const auto doc = static_cast<std::size_t>(first_row[static_cast<std::size_t>(b)]) + r;
            const std::int64_t at = rows.indptr[doc];
            row.assign(in, in + (rows.indptr[doc + 1] - at));
            in += rows.indptr[doc + 1] - at;
            write_row(row, s, n_columns.load(), weighting, rows.indices.get() + at, rows.data.get() + at);
        }
    });
    blocks_ = {};
    return rows;
}

}  // namespace ramify
