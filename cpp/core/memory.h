// Memory for large tables that are read at random: aligned to cache lines, and on huge pages where it is large.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ramify {

inline constexpr std::size_t large_page = std::size_t{1} << 21;

// Requests huge pages where a table is large enough to exceed the TLB. The system clears whole pages, so `smallest`
// should not be far below large_page where tables are many or short-lived.
template <class T, std::size_t smallest = large_page / 4>
struct LargePageAllocator {
    using value_type = T;
    template <class U>
    struct rebind {
        using other = LargePageAllocator<U, smallest>;
    };
    LargePageAllocator() = default;
    template <class U>
    LargePageAllocator(const LargePageAllocator<U, smallest>&) {}

    T* allocate(std::size_t n) {
        const std::size_t size = n * sizeof(T);
        if (size < smallest) return static_cast<T*>(::operator new(size, std::align_val_t{64}));
        const std::size_t rounded = (size + large_page - 1) / large_page * large_page;
        void* p = std::aligned_alloc(large_page, rounded);
        if (p == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        madvise(p, rounded, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(p);
    }
    void deallocate(T* p, std::size_t n) {
        if (n * sizeof(T) < smallest) {
            ::operator delete(p, std::align_val_t{64});
        } else {
            std::free(p);
        }
    }
    template <class U>
    bool operator==(const LargePageAllocator<U, smallest>&) const {
        return true;
    }
};

template <class T>
using LargeVector = std::vector<T, LargePageAllocator<T>>;

// An uninitialized array.
template <class T>
class LargeBuffer {
public:
    LargeBuffer() = default;
    LargeBuffer(const LargeBuffer&) = delete;
    LargeBuffer& operator=(const LargeBuffer&) = delete;
    ~LargeBuffer() { release(); }

    // The contents are lost if it has to grow.
    void reserve(std::size_t n) {
        if (n <= size_) return;
        release();
        data_ = LargePageAllocator<T>().allocate(n);
        size_ = n;
    }
    T* data() const { return data_; }

private:
    void release() {
        if (size_ > 0) LargePageAllocator<T>().deallocate(data_, size_);
        size_ = 0;
    }
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace ramify
