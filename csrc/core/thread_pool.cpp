#include "core/thread_pool.h"

#include <algorithm>
#include <array>

#include "core/platform.h"

namespace ix {

namespace {
constexpr int64_t kIdleSpinNs = 200'000;  // hides the 30 us wake-up across short serial gaps within a step
constexpr int64_t kJoinSpinNs = 20'000;
// A join that takes so long while a thread inside of a chunk stands still: a rival's time slice, and not a short errand
// of the host process.
constexpr int64_t kStallNs = 1'000'000;
constexpr int64_t kRecentNs = 50'000'000;
constexpr int kStalls = 3;  // within kRecentNs: the pool does with less
constexpr int64_t kSpareNs = 400'000'000, kMaxSpareNs = 6'400'000'000;
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

void ThreadPool::begin(int threads) {
  while (int(workers_.size()) + 1 < threads) {
    const int index = int(workers_.size()) + 1;
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->thread = std::thread([this, index, self = workers_.back().get()] { work(*self, index); });
    workers_.back()->thread.detach();  // lives as long as the process and holds no state that must be torn down
  }
  if (spared_ > 0 && platform::now_ns() > spared_until_) spared_ = 0;
  limit_.store(std::max(1, threads - spared_), std::memory_order_relaxed);
  began_ = platform::now_ns();
  cpu_began_ = platform::cpu_ns(platform::own_cpu_clock());
  slept_ = 0;
}

// The caller, too, may have lost its core. Long leases lose a little to errands anyhow.
void ThreadPool::end() {
  if (limit_.load(std::memory_order_relaxed) == 1 || cpu_began_ == 0) return;
  const int64_t whole = platform::now_ns() - began_ - slept_,
                lost = whole - (platform::cpu_ns(platform::own_cpu_clock()) - cpu_began_);
  if (lost > std::max(2 * kStallNs, whole / 8)) spare_thread();
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
  drain(nullptr, 0);
  join(chunks);
}

// Waits for chunks that other threads are inside of; there is at most one per thread.
void ThreadPool::join(int chunks) {
  if (!spin(kJoinSpinNs, [&] { return done_.load(std::memory_order_acquire) == uint32_t(chunks); }))
    wait_stalled(chunks);
}

void ThreadPool::wait_stalled(int chunks) {
  const int threads = limit_.load(std::memory_order_relaxed);
  struct Sample {
    Worker* worker;
    int64_t cpu;
  };
  std::array<Sample, 64> inside;
  size_t count = 0;
  for (int i = 0; i + 1 < threads && count < inside.size(); i++) {
    Worker* worker = workers_[size_t(i)].get();
    if (worker->inside.load(std::memory_order_relaxed)) inside[count++] = {worker, platform::cpu_ns(worker->clock)};
  }
  const int64_t start = platform::now_ns();
  while (done_.load(std::memory_order_acquire) != uint32_t(chunks)) {
    joining_.store(1);
    const uint32_t seen = done_.load();
    if (seen != uint32_t(chunks)) platform::wait_on(&done_, seen);
    joining_.store(0);
  }
  const int64_t waited = platform::now_ns() - start;
  slept_ += waited;
  if (waited < kStallNs) return;
  const bool stood_still = std::any_of(inside.begin(), inside.begin() + std::ptrdiff_t(count), [&](const Sample& s) {
    return s.cpu > 0 && platform::cpu_ns(s.worker->clock) - s.cpu < waited / 2;
  });
  if (stood_still) spare_thread();  // else it was a long chunk
}

// After some stalls, or at once when the last attempt with all threads has only just begun.
void ThreadPool::spare_thread() {
  const int64_t now = platform::now_ns();
  const bool again = now - spared_until_ < kRecentNs;
  stalls_ = now - last_stall_ < kRecentNs ? stalls_ + 1 : 1;
  last_stall_ = now;
  if (!again && stalls_ < kStalls) return;
  spare_ns_ = again ? std::min(2 * spare_ns_, kMaxSpareNs) : kSpareNs;
  spared_until_ = now + spare_ns_;
  spared_++;
  limit_.fetch_sub(1, std::memory_order_relaxed);
}

// A claim is a compare-and-swap of the very word that was looked at, so it belongs to the section whose limit was
// checked.
bool ThreadPool::drain(Worker* self, int thread) {
  bool any = false;
  uint64_t word = word_.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t next = word & kMask, chunks = word >> 20 & kMask;
    if (next >= chunks || thread >= limit_.load(std::memory_order_relaxed)) return any;
    if (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (self) self->inside.store(true, std::memory_order_relaxed);
    section_(ctx_, int(next), thread);
    if (self) self->inside.store(false, std::memory_order_relaxed);
    any = true;
    if (done_.fetch_add(1) + 1 == chunks && joining_.load()) platform::wake(&done_, 1);
    word = word_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(Worker& self, int thread) {
  self.clock = platform::own_cpu_clock();
  const auto idle = [&] {
    return thread >= limit_.load(std::memory_order_relaxed) || [&] {
      const uint64_t word = word_.load(std::memory_order_seq_cst);
      return (word & kMask) >= (word >> 20 & kMask);
    }();
  };
  for (;;) {
    drain(&self, thread);
    if (spin(kIdleSpinNs, [&] { return !idle(); })) continue;
    const uint32_t seen = wake_.load();
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (idle()) platform::wait_on(&wake_, seen);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace ix
