// Tensor core products of bf16 with f32 sums: mma.sync (sm_80 on) and wgmma (sm_90a alone).
#pragma once
#include <stdint.h>

namespace ix::cuda {

__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// c[16,8] += a[16,16] b[16,8]. Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a and c, column g of b.
__device__ inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A tile of rows of 128 bytes, swizzled as the copy engine does, K-major, at a multiple of 1024 (or 32 * k step) bytes.
__device__ inline uint64_t wgmma_tile(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define IX_R4(c, o) "+f"(c[o]), "+f"(c[o + 1]), "+f"(c[o + 2]), "+f"(c[o + 3])
#define IX_R16(c, o) IX_R4(c, o), IX_R4(c, o + 4), IX_R4(c, o + 8), IX_R4(c, o + 12)
// c[64,kTokens] += a[64,16] b[kTokens,16]^T, by a warpgroup
template <int kTokens>
__device__ inline void wgmma(float (&c)[kTokens / 2], uint64_t a, uint64_t b) {
  if constexpr (kTokens == 8)
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : IX_R4(c, 0)
                 : "l"(a), "l"(b));
  else if constexpr (kTokens == 16)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;"
        : IX_R4(c, 0), IX_R4(c, 4)
        : "l"(a), "l"(b));
  else if constexpr (kTokens == 32)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
        "%16, %17, 1, 1, 1, 0, 0;"
        : IX_R16(c, 0)
        : "l"(a), "l"(b));
  else
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%"
        "29,%30,%31}, "
        "%32, %33, 1, 1, 1, 0, 0;"
        : IX_R16(c, 0), IX_R16(c, 16)
        : "l"(a), "l"(b));
}
#undef IX_R4
#undef IX_R16
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
#endif

}  // namespace ix::cuda
