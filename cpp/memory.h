// Memory for large tables that are read at random: on a cache line's border, and on large pages where it is big.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ramify {

// Asks for large pages where a table is big enough to outgrow what the processor can translate at once.
template <class T>
struct LargePageAllocator {
    using value_type = T;
    LargePageAllocator() = default;
    template <class U>
    LargePageAllocator(const LargePageAllocator<U>&) {}

    static constexpr std::size_t large_page = std::size_t{1} << 21, smallest = large_page / 4;

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
    bool operator==(const LargePageAllocator<U>&) const { return true; }
};

}  // namespace ramify
