// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and Gumbel noise
// from its words.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

namespace ix::cuda {

struct PhiloxKey {
  uint32_t key[2];
  uint32_t counter[3];  // words 1 .. 3 of the counter

  __device__ void words(uint32_t c0, uint32_t (&out)[4]) const {
    uint32_t c1 = counter[0], c2 = counter[1], c3 = counter[2], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
      const uint32_t high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u, high1 = __umulhi(c2, 0xCD9E8D57u),
                     low1 = c2 * 0xCD9E8D57u;
      c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
  }
};

constexpr float kMaxGumbel = 17.33f;  // -log(-log(1 - 2^-25)) = 17.3287
constexpr float kMostBelow = 2.86f;   // no noise is less than log(-log(2^-25)) = 2.8526 below 0

// -log(-log(u)) for u = (x + 0.5) * 2^-24, x = the upper 24 bits of the word. Near 1 f32 cannot hold u, but it can hold
// 1 - u.
__device__ inline float gumbel(uint32_t word) {
  const uint32_t x = word >> 8;
  const bool upper = x >= 1u << 23;
  const float small = (float(upper ? (1u << 24) - 1 - x : x) + 0.5f) * 0x1p-24f;
  return -logf(upper ? -log1pf(-small) : -logf(small));
}

}  // namespace ix::cuda
