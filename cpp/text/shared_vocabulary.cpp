#include "text/shared_vocabulary.h"

#include <stdexcept>

namespace ramify {

SharedVocabulary::SharedVocabulary(bool concurrent) : concurrent_(concurrent), shards_(n_shards) {
    for (Shard& shard : shards_) {
        shard.tables.push_back(std::make_unique<Table>(6));
        shard.current.store(shard.tables.back().get(), std::memory_order_relaxed);
    }
}

SharedVocabulary::Entry& SharedVocabulary::Table::free_entry(std::uint64_t hash) {
    std::size_t i = home(hash);
    while (entries[i].id.load(std::memory_order_relaxed) != Slot::empty) i = after(i);
    return entries[i];
}

std::uint32_t SharedVocabulary::add(const TermKey& key, IdRange& ids) {
    Shard& shard = shards_[key.hash >> (64 - shard_bits)];
    std::unique_lock<std::mutex> lock(shard.mutex, std::defer_lock);
    if (concurrent_) {
        lock.lock();
        // Another thread may have added it meanwhile, perhaps to a larger table.
        if (const std::uint32_t found = find(key); found != Slot::empty) return found;
    }
    if (ids.next == ids.end) {
        constexpr std::uint32_t n_ids = 64;
        ids.next = next_id_.fetch_add(n_ids, std::memory_order_relaxed);
        ids.end = ids.next + n_ids;
        if (ids.end > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
            throw std::length_error("more than 2,147,483,647 different terms: raise min_df or use shorter n-grams");
    }
    if ((shard.n_terms + 1) * 2 > shard.tables.back()->entries.size()) grow(shard);
    Entry& entry = shard.tables.back()->free_entry(key.hash);
    entry.hash = key.hash;
    entry.first = key.first;
    entry.length = static_cast<std::uint32_t>(key.length);
    if (key.length <= 16) {
        entry.last = key.last;
    } else {
        entry.bytes = keep_bytes(shard, key);
    }
    ++shard.n_terms;
    entry.id.store(ids.next, std::memory_order_release);
    return ids.next++;
}

void SharedVocabulary::grow(Shard& shard) {
    const Table& old = *shard.tables.back();
    auto larger = std::make_unique<Table>(64 - old.shift + 1);
    for (const Entry& entry : old.entries) {
        const std::uint32_t id = entry.id.load(std::memory_order_relaxed);
        if (id == Slot::empty) continue;
        Entry& moved = larger->free_entry(entry.hash);
        moved.hash = entry.hash;
        moved.first = entry.first;
        moved.length = entry.length;
        if (entry.length <= 16) {
            moved.last = entry.last;
        } else {
            moved.bytes = entry.bytes;
        }
        moved.id.store(id, std::memory_order_relaxed);
    }
    shard.tables.push_back(std::move(larger));
    shard.current.store(shard.tables.back().get(), std::memory_order_release);
    if (!concurrent_) shard.tables.erase(shard.tables.begin());
}

const std::uint8_t* SharedVocabulary::keep_bytes(Shard& shard, const TermKey& key) {
    if (shard.n_in_chunk - shard.n_used < key.length) {
        shard.n_in_chunk = std::max<std::size_t>(key.length, 1 << 14);
        shard.n_used = 0;
        shard.chunks.push_back(std::make_unique_for_overwrite<std::uint8_t[]>(shard.n_in_chunk));
    }
    std::uint8_t* const kept = shard.chunks.back().get() + shard.n_used;
    std::memcpy(kept, key.bytes, key.length);
    shard.n_used += key.length;
    return kept;
}

}  // namespace ramify
