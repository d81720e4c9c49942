// Comparison of a ranking with the true labels; compiled for several instruction sets (core/isa.h).
#pragma once

#include <cstdint>

namespace ramify {

// hit[j] = 1 where ids[j] is among the true labels, else 0; for j < k.
using MarkHits = void (*)(const std::int32_t* ids, std::int64_t k, const std::int32_t* truth, std::int64_t n_truth,
                          std::uint8_t* hit);

}  // namespace ramify
