// The sparse text format of the extreme classification repository: one sample on a line, `l1,l2 f:v f:v`, or only `f:v
// f:v`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace ramify {

// An array that grows by realloc: the system moves large ones without a copy, so peak memory stays near the size.
template <class T>
class GrowingArray {
public:
    GrowingArray() = default;
    GrowingArray(const GrowingArray&) = delete;
    GrowingArray& operator=(const GrowingArray&) = delete;
    ~GrowingArray() { std::free(data_); }

    // Appends n uninitialized items; returns the index of the first.
    std::size_t grow(std::size_t n) {
        if (size_ + n > capacity_) resize_capacity((size_ + n) + (size_ + n) / 2);
        return std::exchange(size_, size_ + n);
    }
    // Reserves room for n more items, which push_back_reserved relies on.
    void reserve_more(std::size_t n) {
        if (size_ + n > capacity_) resize_capacity((size_ + n) * 2);
    }
    void push_back_reserved(T item) { data_[size_++] = item; }
    void cut(std::size_t size) { size_ = size; }
    std::size_t size() const { return size_; }
    T* data() { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

    // Returns the memory, shrunk to size; free it with std::free.
    T* release() {
        resize_capacity(size_);
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

private:
    void resize_capacity(std::size_t capacity) {
        void* moved = std::realloc(data_, (capacity > 0 ? capacity : 1) * sizeof(T));
        if (moved == nullptr) throw std::bad_alloc();
        data_ = static_cast<T*>(moved);
        capacity_ = capacity;
    }

    T* data_ = nullptr;
    std::size_t size_ = 0, capacity_ = 0;
};

struct BadLine {
    std::int64_t line;
    std::string reason;
};

class XmcTextParser {
public:
    struct Limits {
        std::int64_t n_features;
        std::int64_t n_labels;
        bool with_labels;  // lines start with labels
    };

    // first_line: line number of the first line that feed() gets, for messages.
    XmcTextParser(Limits limits, std::int64_t first_line, int threads);

    // Parses the complete lines in [data, data + size), and the rest behind the last line end if `last`. Returns the
    // number of bytes consumed. Bad lines are skipped and recorded; with stop_at_bad the rows behind the first bad line
    // are not kept.
    std::int64_t feed(const char* data, std::int64_t size, bool last, bool stop_at_bad);

    const std::vector<std::int64_t>& bad_rows() const { return bad_rows_; }  // indices of bad lines, from 0
    const std::vector<BadLine>& bad_lines() const { return bad_; }           // the first few

    GrowingArray<std::int64_t> label_ends, feature_ends;  // (rows) cumulative counts
    GrowingArray<std::int32_t> labels, features;
    GrowingArray<float> values;

private:
    Limits limits_;
    std::int64_t first_line_, row_ = 0;
    std::vector<std::int64_t> bad_rows_;
    std::vector<BadLine> bad_;
    int threads_;
};

}  // namespace ramify
