// What the machine itself can do on the given number of threads: bytes read from memory a second and dot-product
// operations a second (a multiplication and an addition are two), 0 where the processor lacks the instruction.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static volatile uint64_t sink;

/** Best of several passes: `amount` of work on every thread, per second. */
template <class Work>
double best_rate(int num_threads, double amount, Work work) {
  double best = 0;
  for (int pass = 0; pass < 8; pass++) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; t++) threads.emplace_back(work, t);
    for (auto& thread : threads) thread.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount * num_threads / seconds.count());
  }
  return best;
}

int main(int, char** argv) {
  const int num_threads = std::max(1, std::atoi(argv[1]));
  const size_t bytes = size_t(256) << 20;  // a thread's; far more than the caches hold
  auto* memory = static_cast<char*>(std::aligned_alloc(1 << 21, bytes * num_threads));
  madvise(memory, bytes * num_threads, MADV_HUGEPAGE);
  std::fill_n(memory, bytes * num_threads, 1);
  const double read = best_rate(num_threads, double(bytes), [&](int t) {
    constexpr int kStreams = 4;
    const size_t words = bytes / 8 / kStreams;
    const auto* p = reinterpret_cast<const uint64_t*>(memory + bytes * t);
    uint64_t sum[kStreams][8] = {};
    for (size_t i = 0; i < words; i += 8)
      for (int s = 0; s < kStreams; s++)
        for (int j = 0; j < 8; j++) sum[s][j] += p[s * words + i + j];
    for (auto& stream : sum)
      for (uint64_t word : stream) sink = sink + word;
  });

  double int8 = 0, bf16 = 0;
  constexpr int kChains = 12, kRepeats = 4, kRounds = 2'000'000;  // enough chains to hide the latency
#ifdef __AVX512VNNI__
  int8 = best_rate(num_threads, 128.0 * kChains * kRepeats * kRounds, [](int t) {
    __m512i sum[kChains] = {}, a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(char(t));
    for (int i = 0; i < kRounds; i++)
      for (int repeat = 0; repeat < kRepeats; repeat++)  // in registers: unrolled
        for (auto& s : sum) asm("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(b));
    for (auto& s : sum) sink = sink + uint64_t(_mm512_reduce_add_epi32(s));
  });
#endif
#ifdef __AVX512BF16__
  bf16 = best_rate(num_threads, 64.0 * kChains * kRepeats * kRounds, [](int t) {
    __m512 sum[kChains] = {};
    __m512i a = _mm512_set1_epi16(0x3f80), b = _mm512_set1_epi16(short(t));
    for (int i = 0; i < kRounds; i++)
      for (int repeat = 0; repeat < kRepeats; repeat++)  // in registers: unrolled
        for (auto& s : sum) asm("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(a), "v"(b));
    for (auto& s : sum) sink = sink + uint64_t(_mm512_reduce_add_ps(s));
  });
#endif
  std::printf("{\"readBytes\": %.4g, \"int8Operations\": %.4g, \"bf16Operations\": %.4g}\n", read, int8, bf16);
}
