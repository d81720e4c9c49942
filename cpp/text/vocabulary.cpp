#include "text/vocabulary.h"

#include <algorithm>
#include <random>

namespace ramify {

namespace {

// Probes of a lookup. Two thirds of the slots are in use: among a billion terms a run of 300 slots is unheard of, so a
// longer one is damage, or made to slow down every lookup.
constexpr std::uint64_t longest_run = 4096;

const HashKey random_key = [] {  // when the module is loaded: a lock of a later initialization could be lost in a fork
    std::random_device device;
    const auto draw = [&] { return static_cast<std::uint64_t>(device()) << 32 | device(); };
    return HashKey{draw(), draw(), draw()};
}();

void insert(SlotTable& slots, const Slot& slot, std::uint64_t hash) {
    std::uint64_t i = home_slot(hash, slots.size());
    while (slots[i].id != Slot::empty) i = i + 1 == slots.size() ? 0 : i + 1;
    slots[i] = slot;
}

}  // namespace

const HashKey& process_key() { return random_key; }

void check_vocabulary(const VocabularyView& view, std::uint64_t n_bytes) {
    const auto fail = [](const char* why) { throw std::invalid_argument(why); };
    if (view.n_terms < 0 || view.n_terms >= static_cast<std::int64_t>(Slot::empty))
        fail("the vocabulary has an impossible number of terms");
    std::uint64_t last = 0;
    bool ascending = view.offsets[0] == 0;
    for (std::int64_t i = 0; i <= view.n_terms; ++i) {
        ascending &= view.offsets[i] >= last;
        last = view.offsets[i];
    }
    if (!ascending || last != n_bytes) fail("the vocabulary's offsets do not match its bytes");
    std::uint64_t n_empty = 0, n_outside = 0, n_mislabelled = 0, run = 0, longest = 0;
    for (std::uint64_t i = 0; i < view.n_slots; ++i) {
        const Slot& slot = view.slots[i];
        longest = std::max(longest, ++run);
        if (slot.id == Slot::empty) {
            ++n_empty;
            run = 0;
        } else if (slot.id >= view.n_terms) {
            ++n_outside;
        } else {
            // find() compares only the inner bytes of long terms, so the length in a slot must be that of its term.
            const std::uint64_t length = view.offsets[slot.id + 1] - view.offsets[slot.id];
            n_mislabelled += (slot.meta & 255u) != std::min<std::uint64_t>(length, 255);
        }
    }
    if (n_empty == 0) fail("the vocabulary's hash table is full");
    if (longest > longest_run) fail("the vocabulary's hash table is crowded");
    if (n_outside > 0) fail("the vocabulary's hash table has term ids out of range");
    if (n_mislabelled > 0) fail("the vocabulary's hash table does not match its terms");
}

SlotTable make_slots(const std::uint64_t* offsets, const std::uint8_t* padded_bytes, std::int64_t n_terms,
                     const HashKey& hash_key) {
    // Two thirds full: short probes, and smaller than a power of two.
    SlotTable slots(static_cast<std::size_t>(n_terms) + static_cast<std::size_t>(n_terms) / 2 + 8);
    for (std::int64_t id = 0; id < n_terms; ++id) {
        const TermKey key(padded_bytes + offsets[id], offsets[id + 1] - offsets[id], hash_key);
        insert(slots, {key, static_cast<std::uint32_t>(id)}, key.hash);
    }
    return slots;
}

VocabularyBuilder::VocabularyBuilder() : slots_(1024), offsets_(1, 0), bytes_(term_padding, 0) {}

std::uint32_t VocabularyBuilder::add(const TermKey& key) {
    if (size() >= std::numeric_limits<std::int32_t>::max())
        throw std::length_error("more than 2,147,483,647 different terms: raise min_df or use shorter n-grams");
    if (hashes_.size() * 2 >= slots_.size()) grow();
    const auto id = static_cast<std::uint32_t>(hashes_.size());
    const std::uint64_t end = offsets_.back();
    bytes_.resize(end + key.length + term_padding);
    std::memcpy(bytes_.data() + end, key.bytes, key.length);
    std::memset(bytes_.data() + end + key.length, 0, term_padding);
    offsets_.push_back(end + key.length);
    hashes_.push_back(key.hash);
    insert(slots_, {key, id}, key.hash);
    return id;
}

void VocabularyBuilder::grow() {
    SlotTable larger(slots_.size() * 2);
    for (const Slot& slot : slots_)
        if (slot.id != Slot::empty) insert(larger, slot, hashes_[slot.id]);
    slots_.swap(larger);
}

}  // namespace ramify
