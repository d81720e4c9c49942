// The parallel loop of the library.
//
// Work is cut into blocks that do not depend on the number of threads; workers take blocks from a shared counter. A
// kernel that writes only to what its block owns, and merges blocks in their order, gives the same bits for any number
// of threads. Threads live for one call only: there is no thread pool that a fork could lose or two callers could
// share by accident. A query with threads = 1 starts no thread at all.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ramify {

// Called from time to time on the calling thread, never on a helper. It may throw: that ends the loop and is passed on.
// The bindings set it to Python's signal handling, so that Ctrl-C works inside long native work.
using InterruptCheck = void (*)();
inline std::atomic<InterruptCheck> interrupt_check{nullptr};

// Calls the check where it is asked to, but not more often than every 20 ms.
class InterruptWatch {
public:
    explicit InterruptWatch(InterruptCheck check = interrupt_check.load(std::memory_order_relaxed)) : check_(check) {}
    void look() {
        if (check_ == nullptr) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(20)) return;
        last_ = now;
        check_();
    }

private:
    InterruptCheck check_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Calls body(block, worker) once for each block in [0, n_blocks); worker < worker_count(n_blocks, threads) identifies
// the thread, for state that belongs to it. The first exception stops the remaining blocks and is rethrown here.
inline int worker_count(std::int64_t n_blocks, int threads) {
    return static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, n_blocks)));
}

template <class Body>
void parallel_for(std::int64_t n_blocks, int threads, Body&& body) {
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stop{false};
    std::exception_ptr error;
    std::mutex error_mutex;

    auto keep_error = [&] {
        std::lock_guard<std::mutex> lock(error_mutex);
        if (!error) error = std::current_exception();
        stop.store(true, std::memory_order_relaxed);
    };
    auto work = [&](int worker, InterruptWatch watch) {
        try {
            while (!stop.load(std::memory_order_relaxed)) {
                const std::int64_t block = next.fetch_add(1, std::memory_order_relaxed);
                if (block >= n_blocks) break;
                body(block, worker);
                watch.look();
            }
        } catch (...) {
            keep_error();
        }
    };

    std::vector<std::thread> helpers;
    const int n_helpers = worker_count(n_blocks, threads) - 1;
    try {
        helpers.reserve(static_cast<std::size_t>(n_helpers));
        for (int i = 0; i < n_helpers; ++i) helpers.emplace_back(work, i + 1, InterruptWatch(nullptr));
    } catch (...) {
        // No more threads, or no memory for them: those that started and this one do the work.
    }
    work(0, InterruptWatch());
    for (auto& helper : helpers) helper.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace ramify
