// Terms as bytes (UTF-8, lone surrogates as three bytes) and a hash table from terms to ids.
//
// The frozen form is three flat arrays, so that it can be memory-mapped: terms in byte order, which is code point
// order, one after the other in `bytes`, their borders in `offsets`, and an open-addressing table of slots. A slot
// holds the first and the last eight bytes of its term: terms of up to sixteen bytes, nearly all words, are resolved
// within one cache line.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/memory.h"

namespace ramify {

static_assert(std::endian::native == std::endian::little, "the saved hash tables are little-endian");

// Bytes that must be readable behind every term that is hashed or looked up.
inline constexpr std::size_t term_padding = 16;

inline std::uint64_t load_8(const std::uint8_t* p) {
    std::uint64_t x;
    std::memcpy(&x, p, 8);
    return x;
}

// The first eight bytes of the term, zeros behind its end.
inline std::uint64_t term_prefix(const std::uint8_t* p, std::size_t n) {
    const std::uint64_t x = load_8(p);
    return n == 0 ? 0 : x & (~std::uint64_t{0} >> (64 - 8 * (n < 8 ? n : 8)));
}

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide r = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(r) ^ static_cast<std::uint64_t>(r >> 64);
}

// The key of the hash of terms. While a vocabulary is built it is random, so that nobody can write texts whose terms
// collide; a finished vocabulary has the one in its file, which depends on all of its terms. With a key that is known
// before the terms are chosen, terms that collide are easy to find.
struct HashKey {
    std::uint64_t first = 0, middle = 0, block = 0;
};

// The random key of this process.
const HashKey& process_key();

// A term with its hash. The hash is part of the saved format: changing it needs a new version.
struct TermKey {
    const std::uint8_t* bytes;
    std::size_t length;
    std::uint64_t first, last;  // eight bytes each; last is 0 for terms of up to eight
    std::uint64_t hash;

    TermKey() = default;
    TermKey(const std::uint8_t* p, std::size_t n, const HashKey& hash_key)
        : bytes(p), length(n), first(term_prefix(p, n)) {
        // Loaded in any case and dropped if short: a branch here would be unpredictable.
        const std::uint64_t tail = load_8(p + (n > 8 ? n - 8 : 0));
        last = n > 8 ? tail : 0;
        std::uint64_t middle = hash_key.middle ^ n;
        for (std::size_t i = 8; i + 8 < n; i += 8) middle = mix(load_8(p + i) ^ hash_key.block, middle);
        hash = mix(first ^ hash_key.first, last ^ middle);
    }
};

struct Slot {
    static constexpr std::uint32_t empty = std::numeric_limits<std::uint32_t>::max();
    std::uint64_t first = 0, last = 0;
    std::uint32_t id = empty;
    std::uint32_t meta = 0;  // length, at most 255, in the low byte; 24 bits of the hash above

    Slot() = default;
    Slot(const TermKey& key, std::uint32_t term_id)
        : first(key.first), last(key.last), id(term_id), meta(meta_of(key)) {}
    bool may_be(const TermKey& key) const { return first == key.first && last == key.last && meta == meta_of(key); }

private:
    static std::uint32_t meta_of(const TermKey& key) {
        return static_cast<std::uint32_t>(key.length < 255 ? key.length : 255) | static_cast<std::uint32_t>(key.hash)
                                                                                     << 8;
    }
};
static_assert(sizeof(Slot) == 24);
using SlotTable = LargeVector<Slot>;

// First slot to probe: the hash scaled to the table, which may have any size.
inline std::uint64_t home_slot(std::uint64_t hash, std::uint64_t n_slots) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(hash) * n_slots >> 64);
}

struct VocabularyView {
    std::int64_t n_terms = 0;
    const std::uint64_t* offsets = nullptr;  // (n_terms + 1)
    const std::uint8_t* bytes = nullptr;     // (offsets[n_terms])
    const Slot* slots = nullptr;             // (n_slots), at least one of them empty
    std::uint64_t n_slots = 0;
    HashKey hash_key{};

    void prefetch(std::uint64_t hash) const { __builtin_prefetch(slots + home_slot(hash, n_slots)); }

    // The id of the term, or Slot::empty.
    std::uint32_t find(const TermKey& key) const {
        for (std::uint64_t i = home_slot(key.hash, n_slots);; i = i + 1 == n_slots ? 0 : i + 1) {
            const Slot& slot = slots[i];
            if (slot.id == Slot::empty) return Slot::empty;
            if (slot.may_be(key) && (key.length <= 16 || same_middle(slot.id, key))) return slot.id;
        }
    }

    bool same_middle(std::uint32_t id, const TermKey& key) const {
        const std::uint64_t start = offsets[id];
        return offsets[id + 1] - start == key.length &&
               std::memcmp(bytes + start + 8, key.bytes + 8, key.length - 16) == 0;
    }
};

// Checks that the arrays are safe to use; throws std::invalid_argument with the reason if not.
void check_vocabulary(const VocabularyView& view, std::uint64_t n_bytes);

// The hash table of distinct terms, with term_padding readable bytes behind the last of them.
SlotTable make_slots(const std::uint64_t* offsets, const std::uint8_t* padded_bytes, std::int64_t n_terms,
                     const HashKey& hash_key);

// A vocabulary that grows. Ids are given in the order of first appearance.
class VocabularyBuilder {
public:
    VocabularyBuilder();

    // With term_padding readable bytes behind the term.
    std::uint32_t find_or_add(const std::uint8_t* p, std::size_t n) {
        const TermKey key(p, n, process_key());
        const std::uint32_t found = view().find(key);
        return found != Slot::empty ? found : add(key);
    }
    bool holds(const std::uint8_t* p, std::size_t n) const { return view().find({p, n, process_key()}) != Slot::empty; }

    std::int64_t size() const { return static_cast<std::int64_t>(hashes_.size()); }
    VocabularyView view() const {
        return {size(), offsets_.data(), bytes_.data(), slots_.data(), slots_.size(), process_key()};
    }

private:
    std::uint32_t add(const TermKey& key);
    void grow();

    SlotTable slots_;
    std::vector<std::uint64_t> hashes_;
    std::vector<std::uint64_t> offsets_;
    std::vector<std::uint8_t> bytes_;  // with term_padding zeros behind the last term
};

}  // namespace ramify
