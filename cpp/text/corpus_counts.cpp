#include "text/corpus_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "core/parallel.h"

namespace ramify {

namespace {

constexpr double tf_unit = 1 << 20;

// The bytes of a term from `begin` to `begin + 8`, first byte highest, zeros behind its end: they compare as integers.
std::uint64_t sort_key(const SharedVocabulary::Entry& entry, std::size_t begin) {
    if (begin == 0) return __builtin_bswap64(entry.first);
    if (entry.length > 16) return __builtin_bswap64(load_8(entry.bytes + begin));
    return entry.length > 8 ? __builtin_bswap64(entry.last >> 8 * (16 - entry.length)) : 0;
}

std::string_view term_of(const CountedTerms& part, std::int64_t i) {
    return {reinterpret_cast<const char*>(part.bytes) + part.offsets[i], part.offsets[i + 1] - part.offsets[i]};
}

void add_counts(const auto& from, auto& to, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, from.size()); ++i) to[i] += from[i];
}

}  // namespace

std::vector<float> part_costs(const std::int64_t* df, std::int64_t n_terms, std::int64_t n_docs, std::int64_t min_df) {
    std::vector<float> costs(static_cast<std::size_t>(n_terms), WordSplitter::not_a_part);
    for (std::int64_t i = 0; i < n_terms; ++i)
        if (df[i] >= min_df)
            costs[static_cast<std::size_t>(i)] =
                static_cast<float>(std::log(static_cast<double>(n_docs) / static_cast<double>(df[i])) + 1.0);
    return costs;
}

Subwords find_subwords(const VocabularyView& frozen, std::vector<float>&& costs, int threads) {
    const WordSplitter splitter(frozen, costs.data());
    std::vector<std::vector<std::uint32_t>> parts_of(static_cast<std::size_t>(frozen.n_terms));
    constexpr std::int64_t terms_per_block = 4096;
    parallel_for((frozen.n_terms + terms_per_block - 1) / terms_per_block, threads, [&](std::int64_t block, int) {
        std::vector<std::uint8_t> padded;
        for (std::int64_t i = block * terms_per_block; i < std::min(frozen.n_terms, (block + 1) * terms_per_block);
             ++i) {
            const std::uint64_t length = frozen.offsets[i + 1] - frozen.offsets[i];
            padded.assign(length + 2 * term_padding, 0);
            std::memcpy(padded.data(), frozen.bytes + frozen.offsets[i], length);
            splitter.split(padded.data(), length, parts_of[static_cast<std::size_t>(i)]);
        }
    });
    Subwords result;
    result.indptr.push_back(0);
    for (const auto& parts : parts_of) {
        for (const std::uint32_t part : parts) result.parts.push_back(static_cast<std::int32_t>(part));
        result.indptr.push_back(static_cast<std::int64_t>(result.parts.size()));
    }
    result.costs = std::move(costs);
    return result;
}

MergedTerms merge_terms(const std::vector<CountedTerms>& parts) {
    struct Next {
        std::string_view term;
        std::size_t part;
        std::int64_t index;
    };
    // The smallest term is at the top of the heap; of equal ones, that of the first part.
    auto after = [](const Next& a, const Next& b) { return a.term != b.term ? a.term > b.term : a.part > b.part; };
    std::vector<Next> heap;
    bool with_tf = true;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        with_tf &= parts[p].tf != nullptr;
        if (parts[p].n_terms > 0) heap.push_back({term_of(parts[p], 0), p, 0});
    }
    std::make_heap(heap.begin(), heap.end(), after);
    MergedTerms merged;
    merged.terms.offsets.push_back(0);
    std::string_view last;
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), after);
        Next& next = heap.back();
        const CountedTerms& part = parts[next.part];
        const auto i = static_cast<std::size_t>(next.index);
        if (merged.df.empty() || next.term != last) {
            last = next.term;
            merged.terms.bytes.insert(merged.terms.bytes.end(), last.begin(), last.end());
            merged.terms.offsets.push_back(merged.terms.bytes.size());
            merged.df.push_back(0);
            if (with_tf) merged.tf.push_back(0.0);
        }
        merged.df.back() += part.df[i];
        if (with_tf) merged.tf.back() += part.tf[i];
        if (++next.index < part.n_terms) {
            next.term = term_of(part, next.index);
            std::push_heap(heap.begin(), heap.end(), after);
        } else {
            heap.pop_back();
        }
    }
    return merged;
}

CorpusCounts::CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads)
    : n_docs_(corpus.n_docs), with_tf_(with_tf), integral_(corpus.integral(spec)) {
    const std::int64_t n_blocks = (corpus.n_docs + docs_per_block - 1) / docs_per_block;
    const int n_workers = worker_count(n_blocks, threads);
    blocks_.resize(static_cast<std::size_t>(n_blocks));
    row_sizes_.resize(static_cast<std::size_t>(corpus.n_docs));
    vocabulary_ = std::make_unique<SharedVocabulary>(n_workers > 1);
    struct alignas(64) Worker {
        explicit Worker(std::int64_t n_docs) : recent(n_docs) {}
        RecentTerms recent;
        SharedVocabulary::IdRange ids;
        std::vector<std::uint32_t> df;
        std::vector<std::int64_t> tf;
    };
    std::vector<Worker> workers;
    for (int i = 0; i < n_workers; ++i) workers.emplace_back(corpus.n_docs);

    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        Worker& worker = workers[static_cast<std::size_t>(worker_id)];
        auto prefetch = [&](std::uint64_t hash) { vocabulary_->prefetch(hash); };
        auto lookup = [&](const TermKey& key, float) { return vocabulary_->find_or_add(key, worker.ids); };
        s.block_counts.clear();
        for (std::int64_t doc = b * docs_per_block; doc < std::min(corpus.n_docs, (b + 1) * docs_per_block); ++doc) {
            count_document(spec, corpus, doc, s, worker.recent, process_key(), false, prefetch, lookup);
            if (const std::size_t n_ids = vocabulary_->id_limit(); worker.df.size() < n_ids) {
                worker.df.resize(n_ids + n_ids / 2);
                if (with_tf) worker.tf.resize(n_ids + n_ids / 2);
            }
            for (const TermCount& c : s.row) ++worker.df[c.id];
            if (with_tf)
                for (const TermCount& c : s.row)
                    worker.tf[c.id] += std::llround(static_cast<double>(c.count) * tf_unit);
            s.block_counts.insert(s.block_counts.end(), s.row.begin(), s.row.end());
            row_sizes_[static_cast<std::size_t>(doc)] = static_cast<std::uint32_t>(s.row.size());
        }
        auto& block = blocks_[static_cast<std::size_t>(b)];
        block = std::make_unique_for_overwrite<TermCount[]>(s.block_counts.size());
        std::copy(s.block_counts.begin(), s.block_counts.end(), block.get());
    });

    // The first worker's frequencies become those of the corpus.
    const std::size_t n_ids = vocabulary_->id_limit();
    df_ = std::move(workers[0].df);
    tf_ = std::move(workers[0].tf);
    df_.resize(n_ids);
    if (with_tf) tf_.resize(n_ids);
    constexpr std::size_t ids_per_block = 1 << 14;
    const std::int64_t n_id_blocks = n_workers > 1 ? static_cast<std::int64_t>(n_ids / ids_per_block + 1) : 0;
    parallel_for(n_id_blocks, threads, [&](std::int64_t b, int) {
        const std::size_t begin = static_cast<std::size_t>(b) * ids_per_block;
        const std::size_t end = std::min(n_ids, begin + ids_per_block);
        for (std::size_t w = 1; w < workers.size(); ++w) {
            add_counts(workers[w].df, df_, begin, end);
            add_counts(workers[w].tf, tf_, begin, end);
        }
    });
}

void CorpusCounts::select(std::int64_t min_df, std::int64_t max_df, int threads) {
    constexpr int n_shards = SharedVocabulary::n_shards;
    std::vector<std::vector<SelectedTerm>> found(n_shards);
    parallel_for(n_shards, threads, [&](std::int64_t shard, int) {
        auto& terms = found[static_cast<std::size_t>(shard)];
        vocabulary_->for_each(static_cast<int>(shard), [&](const SharedVocabulary::Entry& entry) {
            const std::uint32_t id = entry.id.load(std::memory_order_relaxed);
            if (df_[id] < min_df || df_[id] > max_df) return;
            terms.push_back(
                {sort_key(entry, 0), sort_key(entry, 8), entry.length > 16 ? entry.bytes : nullptr, entry.length, id});
        });
    });

    // Buckets of the first two bytes, in order, then each bucket sorted on its own; of few terms there is one.
    std::size_t n_found = 0;
    for (const auto& terms : found) n_found += terms.size();
    const std::size_t n_buckets = n_found < 4096 ? 1 : 1 << 16;
    const auto bucket_of = [&](const SelectedTerm& t) { return n_buckets == 1 ? 0 : t.key >> 48; };
    std::vector<std::uint32_t> start(n_buckets + 1, 0);
    for (const auto& terms : found)
        for (const SelectedTerm& t : terms) ++start[bucket_of(t) + 1];
    accumulate(start);
    selected_.resize(start[n_buckets]);
    std::vector<std::uint32_t> next(start.begin(), start.end() - 1);
    for (const auto& terms : found)
        for (const SelectedTerm& t : terms) selected_[next[bucket_of(t)]++] = t;

    auto before = [&](const SelectedTerm& a, const SelectedTerm& b) {
        if (a.key != b.key) return a.key < b.key;
        if (a.next_key != b.next_key) return a.next_key < b.next_key;
        if (a.length > 16 && b.length > 16) {
            const int order = std::memcmp(a.bytes + 16, b.bytes + 16, std::min(a.length, b.length) - 16);
            if (order != 0) return order < 0;
        }
        return a.length < b.length;
    };
    selected_df_.resize(selected_.size());
    selected_tf_.resize(with_tf_ ? selected_.size() : 0);
    const std::size_t buckets_per_block = std::min<std::size_t>(64, n_buckets);
    parallel_for(static_cast<std::int64_t>(n_buckets / buckets_per_block), threads, [&](std::int64_t block, int) {
        const std::size_t begin = static_cast<std::size_t>(block) * buckets_per_block, end = begin + buckets_per_block;
        for (std::size_t b = begin; b < end; ++b)
            std::sort(selected_.begin() + start[b], selected_.begin() + start[b + 1], before);
        for (std::size_t i = start[begin]; i < start[end]; ++i) {
            const std::uint32_t id = selected_[i].id;
            selected_df_[i] = df_[id];
            if (with_tf_) selected_tf_[i] = static_cast<double>(tf_[id]) / tf_unit;
        }
    });
}

FrozenVocabulary CorpusCounts::freeze(const std::uint8_t* keep, bool with_subwords) {
    column_.assign(df_.size(), Slot::empty);
    FrozenVocabulary frozen;
    frozen.offsets.push_back(0);
    std::uint64_t n_bytes = 0;
    for (std::size_t i = 0; i < selected_.size(); ++i) {
        if (keep != nullptr && keep[i] == 0) continue;
        column_[selected_[i].id] = static_cast<std::uint32_t>(frozen.offsets.size() - 1);
        n_bytes += selected_[i].length;
        frozen.offsets.push_back(n_bytes);
    }
    frozen.bytes.resize(n_bytes + term_padding);
    for (const SelectedTerm& t : selected_) {
        if (column_[t.id] == Slot::empty) continue;
        std::uint8_t* const out = frozen.bytes.data() + frozen.offsets[column_[t.id]];
        if (t.length > 16) {
            std::memcpy(out, t.bytes, t.length);
        } else {  // behind a short term it writes zeros, where the next term or the padding follows
            const std::uint64_t first = __builtin_bswap64(t.key), second = __builtin_bswap64(t.next_key);
            std::memcpy(out, &first, 8);
            std::memcpy(out + 8, &second, 8);
        }
    }
    n_columns_ = static_cast<std::uint32_t>(frozen.offsets.size() - 1);
    frozen.bytes.resize(n_bytes);
    if (!with_subwords) vocabulary_.reset();
    selected_ = {};
    return frozen;
}

Subwords CorpusCounts::add_subwords(const VocabularyView& frozen, std::int64_t min_df, int threads) {
    if (!vocabulary_ || frozen.n_terms != n_columns_)
        throw std::invalid_argument("subwords need the vocabulary of freeze(with_subwords=True)");
    Subwords result;
    std::vector<std::int64_t> column_df(n_columns_);
    for (std::size_t id = 0; id < column_.size(); ++id)
        if (column_[id] != Slot::empty) column_df[column_[id]] = df_[id];
    result.costs = part_costs(column_df.data(), n_columns_, n_docs_, min_df);

    // The parts of every term, also of those that are no columns.
    const WordSplitter splitter(frozen, result.costs.data());
    std::vector<std::vector<std::uint32_t>> parts_of(column_.size());
    parallel_for(SharedVocabulary::n_shards, threads, [&](std::int64_t shard, int) {
        std::vector<std::uint8_t> padded;
        vocabulary_->for_each(static_cast<int>(shard), [&](const SharedVocabulary::Entry& entry) {
            padded.assign(entry.length + 2 * term_padding, 0);
            if (entry.length > 16) {
                std::memcpy(padded.data(), entry.bytes, entry.length);
            } else {  // the last eight bytes overlap the first
                std::memcpy(padded.data(), &entry.first, 8);
                if (entry.length > 8) std::memcpy(padded.data() + entry.length - 8, &entry.last, 8);
            }
            splitter.split(padded.data(), entry.length, parts_of[entry.id.load(std::memory_order_relaxed)]);
        });
    });
    vocabulary_.reset();
    std::vector<std::uint32_t> id_of(n_columns_);
    for (std::size_t id = 0; id < column_.size(); ++id)
        if (column_[id] != Slot::empty) id_of[column_[id]] = static_cast<std::uint32_t>(id);
    result.indptr.push_back(0);
    for (const std::uint32_t id : id_of) {
        for (const std::uint32_t part : parts_of[id]) result.parts.push_back(static_cast<std::int32_t>(part));
        result.indptr.push_back(static_cast<std::int64_t>(result.parts.size()));
    }

    // The counts of each document in columns, with the parts.
    const SubwordView subwords{result.indptr.data(), result.parts.data(), result.costs.data()};
    const auto n_blocks = static_cast<std::int64_t>(blocks_.size());
    std::vector<std::vector<std::int64_t>> df(static_cast<std::size_t>(worker_count(n_blocks, threads)));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        auto& worker_df = df[static_cast<std::size_t>(worker_id)];
        worker_df.resize(n_columns_);
        const std::unique_ptr<TermCount[]> block = std::move(blocks_[static_cast<std::size_t>(b)]);
        const TermCount* in = block.get();
        s.block_counts.clear();
        s.part_counts.clear();
        for (auto doc = static_cast<std::size_t>(b * docs_per_block);
             doc < static_cast<std::size_t>(std::min(n_docs_, (b + 1) * docs_per_block)); ++doc) {
            s.counter.clear();
            s.counter.reserve_more(row_sizes_[doc]);
            for (const TermCount* const end = in + row_sizes_[doc]; in < end; ++in) {
                if (const std::uint32_t column = column_[in->id]; column != Slot::empty) {
                    s.counter.add(column, in->count);
                } else {
                    for (const std::uint32_t part : parts_of[in->id]) s.part_counts.push_back({part, in->count});
                }
            }
            s.counter.take(s.row);
            add_parts(s, subwords, integral_);
            for (const TermCount& c : s.row) ++worker_df[c.id];
            s.block_counts.insert(s.block_counts.end(), s.row.begin(), s.row.end());
            row_sizes_[doc] = static_cast<std::uint32_t>(s.row.size());
        }
        auto& expanded = blocks_[static_cast<std::size_t>(b)];
        expanded = std::make_unique_for_overwrite<TermCount[]>(s.block_counts.size());
        std::copy(s.block_counts.begin(), s.block_counts.end(), expanded.get());
    });
    result.df.assign(n_columns_, 0);
    for (const auto& worker_df : df) add_counts(worker_df, result.df, 0, n_columns_);
    column_.resize(n_columns_);
    std::iota(column_.begin(), column_.end(), 0u);  // the counts are in columns by now
    return result;
}

CsrRows CorpusCounts::rows(const Weighting& weighting, int threads) {
    // First the sizes of the rows without the dropped terms, then each block writes its rows.
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_docs_) + 1, 0);
    const auto n_blocks = static_cast<std::int64_t>(blocks_.size());
    auto block_end = [&](std::int64_t b) {
        return static_cast<std::size_t>(std::min(n_docs_, (b + 1) * docs_per_block));
    };
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        TermCount* out = blocks_[static_cast<std::size_t>(b)].get();
        const TermCount* in = out;
        for (auto doc = static_cast<std::size_t>(b * docs_per_block); doc < block_end(b); ++doc) {
            const TermCount* const row = out;
            for (const TermCount* const row_end = in + row_sizes_[doc]; in < row_end; ++in) {
                const std::uint32_t column = column_[in->id];
                *out = {column, in->count};
                out += column != Slot::empty;
            }
            indptr[doc + 1] = out - row;
        }
    });
    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    parallel_for(n_blocks, threads, [&](std::int64_t b, int) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        const std::unique_ptr<TermCount[]> block = std::move(blocks_[static_cast<std::size_t>(b)]);
        const TermCount* in = block.get();
        for (auto doc = static_cast<std::size_t>(b * docs_per_block); doc < block_end(b); ++doc) {
            const std::int64_t at = rows.indptr[doc], n = rows.indptr[doc + 1] - at;
            s.row.assign(in, in + n);
            in += n;
            write_weights(s.row, s, n_columns_, weighting, rows.indices.get() + at, rows.data.get() + at);
        }
    });
    blocks_.clear();
    row_sizes_.clear();
    return rows;
}

}  // namespace ramify
