#include "core/thread_pool.h"

#include <algorithm>

#include "core/platform.h"

namespace ix {

namespace {
constexpr int64_t kIdleSpinNs = 200'000;  // hides the 30 us wake-up across short serial gaps within a step
constexpr int64_t kJoinSpinNs = 20'000;
constexpr int kClockEvery = 32;  // pauses between two looks at the clock

// Spins until `done()` or until the time is over; false when it is over.
template <class F>
bool spin(int64_t ns, F&& done) {
  const int64_t until = platform::now_ns() + ns;
  for (int i = 1;; i++) {
    if (done()) return true;
    platform::pause();
    if (i % kClockEvery == 0 && platform::now_ns() > until) return false;
  }
}
}  // namespace

ThreadPool& ThreadPool::instance() {
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

void ThreadPool::prepare(int threads) {
  while (int(threads_.size()) + 1 < threads) {
    const int index = int(threads_.size()) + 1;
    threads_.emplace_back([this, index] { work(index); });
    threads_.back().detach();  // lives as long as the process and holds no state that must be torn down
  }
  limit_.store(threads, std::memory_order_relaxed);
}

void ThreadPool::run(int chunks, Section section, void* ctx) {
  if (chunks > int(kMask)) {  // more chunks than a word can count: in parts
    struct Part {
      Section section;
      void* ctx;
      int base;
    } part{section, ctx, 0};
    for (; part.base < chunks; part.base += int(kMask))
      run(
          std::min(chunks - part.base, int(kMask)),
          [](void* c, int chunk, int thread) {
            auto* p = static_cast<Part*>(c);
            p->section(p->ctx, p->base + chunk, thread);
          },
          &part);
    return;
  }
  section_ = section;
  ctx_ = ctx;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (word_.load(std::memory_order_relaxed) >> 40) + 1;
  word_.store(generation << 40 | uint64_t(chunks) << 20, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1);
    platform::wake(&wake_, -1);
  }
  drain(0);
  join(chunks);
}

// Waits for chunks that other threads are inside of; there is at most one per thread.
void ThreadPool::join(int chunks) {
  const auto finished = [&] { return done_.load(std::memory_order_acquire) == uint32_t(chunks); };
  while (!spin(kJoinSpinNs, finished)) {
    joining_.store(1);
    const uint32_t seen = done_.load();
    if (seen != uint32_t(chunks)) platform::wait_on(&done_, seen);
    joining_.store(0);
  }
}

// A claim is a compare-and-swap of the very word that was looked at, so it belongs to the section whose limit was
// checked.
bool ThreadPool::drain(int thread) {
  bool any = false;
  uint64_t word = word_.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t next = word & kMask, chunks = word >> 20 & kMask;
    if (next >= chunks || thread >= limit_.load(std::memory_order_relaxed)) return any;
    if (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    section_(ctx_, int(next), thread);
    any = true;
    if (done_.fetch_add(1) + 1 == chunks && joining_.load()) platform::wake(&done_, 1);
    word = word_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  const auto idle = [&] {
    return thread >= limit_.load(std::memory_order_relaxed) || [&] {
      const uint64_t word = word_.load(std::memory_order_seq_cst);
      return (word & kMask) >= (word >> 20 & kMask);
    }();
  };
  for (;;) {
    drain(thread);
    if (spin(kIdleSpinNs, [&] { return !idle(); })) continue;
    const uint32_t seen = wake_.load();
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (idle()) platform::wait_on(&wake_, seen);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace ix
