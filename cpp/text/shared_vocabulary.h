// A vocabulary that several threads extend at once.
//
// Every term is stored once, whichever thread meets it first, so nothing has to be merged. The table is cut into shards
// by the hash. Lookups take no lock; terms are added under the lock of their shard. Ids depend on the order in which
// the threads get there: results must not.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory.h"
#include "text/vocabulary.h"

namespace ramify {

class SharedVocabulary {
public:
    // Two to a cache line, none across two lines.
    struct alignas(32) Entry {
        std::uint64_t hash = 0;
        std::uint64_t first = 0;  // as in TermKey
        union {
            std::uint64_t last = 0;     // as in TermKey, of terms of up to 16 bytes: they need no other memory
            const std::uint8_t* bytes;  // of longer terms
        };
        std::uint32_t length = 0;
        std::atomic<std::uint32_t> id{Slot::empty};  // written last: who reads it may read the rest

        bool is(const TermKey& key) const {
            if (hash != key.hash || length != key.length) return false;
            return length <= 16 ? first == key.first && last == key.last
                                : std::memcmp(bytes, key.bytes, key.length) == 0;
        }
    };

    // Ids that a thread may give to new terms. The threads take whole ranges, which rarely makes them wait.
    struct IdRange {
        std::uint32_t next = 0, end = 0;
    };

    static constexpr int shard_bits = 4, n_shards = 1 << shard_bits;

    // concurrent: more than one thread adds terms.
    explicit SharedVocabulary(bool concurrent);

    void prefetch(std::uint64_t hash) const {
        const Table& table = current(hash);
        __builtin_prefetch(&table.entries[table.home(hash)]);
    }

    std::uint32_t find_or_add(const TermKey& key, IdRange& ids) {
        const std::uint32_t found = find(key);
        return found != Slot::empty ? found : add(key, ids);
    }

    // All ids are below; a few may belong to no term.
    std::uint32_t id_limit() const { return next_id_.load(std::memory_order_relaxed); }

    // Calls visit(entry) for the terms of one shard. No thread may add terms meanwhile.
    template <class Visit>
    void for_each(int shard, Visit&& visit) const {
        for (const Entry& entry : shards_[static_cast<std::size_t>(shard)].tables.back()->entries)
            if (entry.id.load(std::memory_order_relaxed) != Slot::empty) visit(entry);
    }

private:
    struct Table {
        explicit Table(int bits) : shift(64 - bits), entries(std::size_t{1} << bits) {}
        std::size_t home(std::uint64_t hash) const { return hash << shard_bits >> shift; }
        std::size_t after(std::size_t i) const { return (i + 1) & (entries.size() - 1); }
        Entry& free_entry(std::uint64_t hash);

        int shift;
        std::vector<Entry, LargePageAllocator<Entry, large_page>> entries;
    };
    struct alignas(64) Shard {
        std::atomic<const Table*> current{nullptr};
        std::mutex mutex;  // of all below
        std::size_t n_terms = 0;
        std::vector<std::unique_ptr<Table>> tables;  // the last is the current one; a lookup may still read the others
        std::vector<std::unique_ptr<std::uint8_t[]>> chunks;  // bytes of long terms, which never move
        std::size_t n_used = 0, n_in_chunk = 0;               // bytes of the last chunk
    };

    const Table& current(std::uint64_t hash) const {
        return *shards_[hash >> (64 - shard_bits)].current.load(std::memory_order_acquire);
    }
    std::uint32_t find(const TermKey& key) const {
        const Table& table = current(key.hash);
        for (std::size_t i = table.home(key.hash);; i = table.after(i)) {
            const Entry& entry = table.entries[i];
            const std::uint32_t id = entry.id.load(std::memory_order_acquire);
            if (id == Slot::empty || entry.is(key)) return id;
        }
    }
    std::uint32_t add(const TermKey& key, IdRange& ids);
    void grow(Shard& shard);
    static const std::uint8_t* keep_bytes(Shard& shard, const TermKey& key);

    const bool concurrent_;
    std::atomic<std::uint32_t> next_id_{0};
    std::vector<Shard> shards_;
};

}  // namespace ramify
