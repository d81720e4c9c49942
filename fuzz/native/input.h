// Reads the numbers of a test case from the fuzzer's bytes; behind their end everything is 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

struct Input {
    const std::uint8_t* data;
    std::size_t size;

    template <class T>
    T take() {
        T x{};
        const std::size_t n = std::min(size, sizeof x);
        std::memcpy(&x, data, n);
        data += n;
        size -= n;
        return x;
    }
    // A number from low to high.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(take<std::uint32_t>() % static_cast<std::uint64_t>(high - low + 1));
    }
    template <class T>
    std::vector<T> array(std::size_t n) {
        std::vector<T> items(n);
        for (T& item : items) item = take<T>();
        return items;
    }
    std::vector<std::uint8_t> rest() { return {data, data + size}; }
};
