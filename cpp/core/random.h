// Random numbers that are the same with every compiler and standard library.
#pragma once

#include <cstdint>

namespace ramify {

namespace {

// splitmix64 (Steele et al., 2014). Internal linkage, since kernels that are compiled for several instruction sets use
// it.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ull;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    // Uniform on 0 ... n - 1; n below 2^32.
    std::int64_t below(std::int64_t n) {
        return static_cast<std::int64_t>(((next() >> 32) * static_cast<std::uint64_t>(n)) >> 32);
    }

private:
    std::uint64_t state_;
};

}  // namespace

}  // namespace ramify
