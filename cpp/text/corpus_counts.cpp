#include "text/corpus_counts.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/parallel.h"

namespace ramify {

namespace {

constexpr double tf_unit = 1 << 20;
constexpr std::size_t n_shards = 64;

std::size_t shard_of(std::uint64_t hash) {
    return static_cast<std::size_t>(hash) % n_shards;
}  // tables use the high bits

}  // namespace

CorpusCounts::CorpusCounts(const AnalyzerSpec& spec, const Corpus& corpus, bool with_tf, int threads)
    : n_docs_(corpus.n_docs), with_tf_(with_tf) {
    constexpr std::int64_t block_size = 512;
    const std::int64_t n_blocks = (corpus.n_docs + block_size - 1) / block_size;
    blocks_.resize(static_cast<std::size_t>(n_blocks));
    for (int i = 0; i < worker_count(n_blocks, threads); ++i) workers_.push_back(std::make_unique<Worker>());
    std::vector<RecentTerms> recent(workers_.size(), RecentTerms(corpus.n_docs));

    parallel_for(n_blocks, threads, [&](std::int64_t b, int worker_id) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        Worker& worker = *workers_[static_cast<std::size_t>(worker_id)];
        Block& block = blocks_[static_cast<std::size_t>(b)];
        block.worker = worker_id;
        auto prefetch = [&](std::uint64_t hash) { worker.vocabulary.view().prefetch(hash); };
        auto lookup = [&](const TermKey& key) { return worker.vocabulary.find_or_add(key); };
        for (std::int64_t doc = b * block_size; doc < std::min(corpus.n_docs, (b + 1) * block_size); ++doc) {
            count_document(spec, corpus, doc, s, recent[static_cast<std::size_t>(worker_id)], prefetch, lookup);
            auto& row = s.row;
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

// Merges the vocabularies of the workers. The shard of a term depends on its hash alone, so shards are merged in
// parallel. Which worker counted which document affects only the order of the entries in a shard, and select() sorts
// them.
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
    accumulate(start);
    selected_.resize(start[n_buckets]);
    std::vector<std::uint32_t> next(start.begin(), start.end() - 1);
    for_each_selected([&](const SelectedTerm& t) { selected_[next[t.key >> 48]++] = t; });

    auto before = [&](const SelectedTerm& a, const SelectedTerm& b) {
        if (a.key != b.key) return a.key < b.key;
        const std::size_t na = length(a), nb = length(b);
        const int order = std::memcmp(term(a), term(b), std::min(na, nb));
        return order != 0 ? order < 0 : na < nb;
    };
    constexpr std::int64_t buckets_per_block = 64;
    parallel_for(static_cast<std::int64_t>(n_buckets) / buckets_per_block, threads, [&](std::int64_t block, int) {
        for (auto b = static_cast<std::size_t>(block * buckets_per_block);
             b < static_cast<std::size_t>((block + 1) * buckets_per_block); ++b)
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

CsrRows CorpusCounts::rows(const Weighting& weighting, int threads) {
    // First the sizes of the rows without the dropped terms, then each block writes its rows.
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
        while (seen < largest && !n_columns.compare_exchange_weak(seen, largest)) {
        }
    });
    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    parallel_for(static_cast<std::int64_t>(blocks_.size()), threads, [&](std::int64_t b, int) {
        const DocumentScratchPool::Lease lease(document_scratch);
        DocumentScratch& s = *lease;
        Block block = std::move(blocks_[static_cast<std::size_t>(b)]);
        std::vector<TermCount>& row = s.row;
        const TermCount* in = block.counts.data();
        for (std::size_t r = 0; r < block.row_sizes.size(); ++r) {
            const auto doc = static_cast<std::size_t>(first_row[static_cast<std::size_t>(b)]) + r;
            const std::int64_t at = rows.indptr[doc];
            row.assign(in, in + (rows.indptr[doc + 1] - at));
            in += rows.indptr[doc + 1] - at;
            write_weights(row, s, n_columns.load(), weighting, rows.indices.get() + at, rows.data.get() + at);
        }
    });
    blocks_ = {};
    return rows;
}

}  // namespace ramify
