// Scratch memory that is reused: by the blocks of one parallel loop (a local pool) or from call to call (a static
// pool).
//
// Threads live for one call only (parallel.h), so thread_local memory would be allocated anew by every helper thread. A
// pool hands out whole objects instead. It takes no lock: a fork in the middle of a call cannot leave one held.
#pragma once

#include <atomic>
#include <exception>
#include <memory>

namespace ramify {

template <class T>
class ScratchPool {
public:
    ScratchPool() = default;
    ScratchPool(const ScratchPool&) = delete;
    ScratchPool& operator=(const ScratchPool&) = delete;
    ~ScratchPool() {
        for (auto& slot : slots_) delete slot.load();
    }

    // Borrows an object, as its last user left it or new. After an exception it is dropped, since its state is unknown.
    class Lease {
    public:
        explicit Lease(ScratchPool& pool)
            : pool_(pool), object_(pool.take()), n_exceptions_(std::uncaught_exceptions()) {}
        ~Lease() {
            if (std::uncaught_exceptions() == n_exceptions_) pool_.give_back(std::move(object_));
        }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        T& operator*() const { return *object_; }

    private:
        ScratchPool& pool_;
        std::unique_ptr<T> object_;
        int n_exceptions_;
    };

private:
    std::unique_ptr<T> take() {
        for (auto& slot : slots_)
            if (slot.load(std::memory_order_relaxed) != nullptr)
                if (T* object = slot.exchange(nullptr, std::memory_order_acquire)) return std::unique_ptr<T>(object);
        return std::make_unique<T>();
    }
    void give_back(std::unique_ptr<T> object) {
        for (auto& slot : slots_) {
            T* expected = nullptr;
            if (slot.load(std::memory_order_relaxed) == nullptr &&
                slot.compare_exchange_strong(expected, object.get(), std::memory_order_release,
                                             std::memory_order_relaxed)) {
                object.release();
                return;
            }
        }  // more threads than slots: it is freed
    }

    static constexpr int n_slots = 64;
    std::atomic<T*> slots_[n_slots] = {};
};

}  // namespace ramify
