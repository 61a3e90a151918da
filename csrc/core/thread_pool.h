// The process-wide pool of CPU threads, for short parallel sections (a decode step has about 200 of them).
//
// Rules that keep it alive on a shared machine:
//  * the caller takes part and never waits for a thread that has not claimed a chunk: if that thread's core is taken,
//    the caller does the whole loop alone;
//  * chunks are claimed one by one, so a slow thread gets less work;
//  * every wait spins for a bounded time, then sleeps;
//  * a thread that loses its core within a chunk makes everybody wait for a time slice of its rival: then the pool does
//    with one thread less for a while, which leaves the rival a core, and tries again.
// One section runs at a time: whoever wants to run sections holds a Lease.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ix {

class ThreadPool {
 public:
  using Section = void (*)(void* ctx, int chunk, int thread);

  static ThreadPool& instance();  // never destroyed: its threads may outlive main's statics

  // Exclusive use of the pool, with at most `threads` threads, the caller included.
  class Lease {
   public:
    Lease(ThreadPool& pool, int threads) : pool_(pool), lock_(pool.mutex_) { pool.begin(threads); }
    ~Lease() { pool_.end(); }
    Lease(const Lease&) = delete;
    void run(int chunks, Section section, void* ctx) { pool_.run(chunks, section, ctx); }

   private:
    ThreadPool& pool_;
    std::lock_guard<std::mutex> lock_;
  };

 private:
  struct Worker {
    std::thread thread;
    alignas(64) std::atomic<bool> inside{false};  // of a chunk
    std::atomic<int64_t> clock{0};                // of its processor time
  };

  ThreadPool() = default;
  void begin(int threads);
  void end();
  void run(int chunks, Section section, void* ctx);
  void join(int chunks);
  void wait_stalled(int chunks);
  void spare_thread();
  bool drain(Worker* self, int thread);  // self: null for the caller
  void work(Worker& self, int thread);

  // word_ = generation:24 | chunks:20 | next:20. Claiming a chunk names the section, so a thread that wakes late can
  // never run a chunk of a finished one: a successful claim keeps that section's caller waiting.
  static constexpr uint64_t kMask = (1u << 20) - 1;
  alignas(64) std::atomic<uint64_t> word_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> joining_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> limit_{1};    // threads that may take part in the current lease
  int spared_ = 0, stalls_ = 0;  // threads that the pool does without; stalls of late
  int64_t last_stall_ = 0, spared_until_ = 0, spare_ns_ = 0;
  int64_t began_ = 0, cpu_began_ = 0, slept_ = 0;  // of the lease: the clocks at its start, ns that its caller slept
  Section section_ = nullptr;
  void* ctx_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;
};

}  // namespace ix
