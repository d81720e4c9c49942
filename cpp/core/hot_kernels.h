// The loops that are compiled for several instruction sets; see isa.h.
#pragma once

#include <cstdint>

#include "neural/adam.h"
#include "linear/beam_kernel.h"
#include "neural/layer_kernel.h"
#include "linear/ovr_kernel.h"

namespace ramify {

struct HotKernels {
    // Looks at n code points of the given width (1, 2 or 4 bytes). lowered[i]: the code point as ASCII, in lower case if
    // asked, anything where it is not ASCII. Bit i of word: an ASCII letter, digit or underscore; bit i of wide: not
    // ASCII. Both masks have n / 64 + 1 words, with zeros behind bit n. lowered needs 64 bytes of room behind n.
    void (*scan_text)(const void* text, std::int64_t n, int width, bool lowercase, std::uint8_t* lowered,
                      std::uint64_t* word, std::uint64_t* wide);

    // hit[j] = 1 where ids[j] is among the truth, else 0; for j < k.
    void (*mark_hits)(const std::int32_t* ids, std::int64_t k, const std::int32_t* truth, std::int64_t n_truth,
                      std::uint8_t* hit);

    // sums[i] += scale * values[i]; for i < n.
    void (*add_scaled)(float scale, const float* values, std::int64_t n, float* sums);

    // The same with four scales and arrays, one after the other: the same bits, a quarter of the reads and writes.
    void (*add_scaled_4)(const float* scales, const float* const* values, std::int64_t n, float* sums);

    // One step of Adam for each of n numbers.
    void (*adam)(const AdamStep& step, const float* gradients, std::int64_t n, bool decays, float* values, float* first, float* second);

    // sum of a[i] * b[i]; for i < n.
    float (*dot)(const float* a, const float* b, std::int64_t n);

    // products[j] = dot(a, b[j], n), to the last bit; for j < 4. Four sums side by side do not wait for each other.
    void (*dot_4)(const float* a, const float* const* b, std::int64_t n, float* products);

    // products[i]: of a code (width) with the code i of many (n, width); numbers from -127 to 127, width a multiple of 32.
    void (*dot_codes)(const std::int8_t* code, const std::int8_t* codes, std::int64_t n, std::int64_t width, std::int32_t* products);

    SolveLabels solve_labels;  // ovr_kernel.h
    ScorePieces score_pieces;  // beam_kernel.h
    ScoreVisits score_visits;  // beam_kernel.h
    LayerKernels layers;       // layer_kernel.h
};

}  // namespace ramify
