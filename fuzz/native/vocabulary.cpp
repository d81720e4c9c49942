// A saved vocabulary of arbitrary bytes: refused, or safe to look terms up in.
#include <stdexcept>

#include "input.h"
#include "text/vocabulary.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const auto n_terms = static_cast<std::size_t>(input.between(0, 12)),
               n_slots = static_cast<std::size_t>(input.between(0, 24));
    const HashKey key{input.take<std::uint64_t>(), input.take<std::uint64_t>(), input.take<std::uint64_t>()};
    std::vector<std::uint64_t> offsets{0};
    for (std::size_t i = 0; i < n_terms; ++i) offsets.push_back(offsets.back() + input.take<std::uint8_t>() % 40);
    if (input.take<std::uint8_t>() % 8 == 0) offsets[n_terms / 2] = input.take<std::uint64_t>();
    std::vector<Slot> slots(n_slots);
    for (Slot& slot : slots) {
        const auto kind = input.take<std::uint8_t>();
        slot.first = input.take<std::uint8_t>();
        slot.last = input.take<std::uint8_t>();
        slot.id = kind % 3 == 0 ? Slot::empty : kind % 17 == 1 ? input.take<std::uint32_t>() : kind % 12;
        slot.meta = input.take<std::uint32_t>();
        if (kind % 5 != 0 && slot.id < n_terms)
            slot.meta = static_cast<std::uint32_t>(offsets[slot.id + 1] - offsets[slot.id]) | slot.meta << 8;
    }
    const auto bytes = input.array<std::uint8_t>(static_cast<std::size_t>(offsets.back() % 600));
    const VocabularyView view{
        static_cast<std::int64_t>(n_terms), offsets.data(), bytes.data(), slots.data(), n_slots, key};
    try {
        check_vocabulary(view, bytes.size());
    } catch (const std::invalid_argument&) {
        return 0;
    }
    std::vector<std::uint8_t> text = input.rest();
    const std::size_t n = std::min<std::size_t>(text.size(), 60);
    text.resize(n + term_padding);
    for (std::size_t length = 0; length <= n; ++length) {
        view.find({text.data(), length, key});
        for (const Slot& slot : slots) {  // keys that meet every slot
            TermKey term(text.data(), length, key);
            term.first = slot.first, term.last = slot.last;
            term.hash = (term.hash & ~std::uint64_t{0xffffff}) | slot.meta >> 8;
            view.find(term);
        }
    }
    return 0;
}
