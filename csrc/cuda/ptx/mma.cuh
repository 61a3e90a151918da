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
// kHalves: a and b are f16 in place of bf16.
template <bool kHalves = false>
__device__ inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
#define IX_MMA(types)                                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." types               \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])             \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
  if constexpr (kHalves)
    IX_MMA("f16.f16");
  else
    IX_MMA("bf16.bf16");
#undef IX_MMA
}

// Four 8x8 matrices of bf16, of which lane 8i + j names row j of matrix i: lane (g, t) gets columns 2t and 2t + 1 of
// row g of each, or (transposed) rows 2t and 2t + 1 of column g.
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A tile of rows of 128 bytes, swizzled as the copy engine does, K-major, at a multiple of 1024 (or 32 * k step) bytes.
__device__ inline uint64_t wgmma_tile(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// The same of a tile whose rows run along K (in lines of 64 columns of b, then the next 64 at `next` bytes).
__device__ inline uint64_t wgmma_tile_transposed(uint32_t address, uint32_t next) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(next >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

#define IX_R4(c, o) "+f"(c[o]), "+f"(c[o + 1]), "+f"(c[o + 2]), "+f"(c[o + 3])
#define IX_R16(c, o) IX_R4(c, o), IX_R4(c, o + 4), IX_R4(c, o + 8), IX_R4(c, o + 12)
#define IX_N32                                                                                             \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
  "%28,%29,%30,%31"
// c[64,kTokens] += a[64,16] b[kTokens,16]^T, by a warpgroup. kHalves: as in mma()
template <int kTokens, bool kHalves = false>
__device__ inline void wgmma(float (&c)[kTokens / 2], uint64_t a, uint64_t b) {
#define IX_WGMMA(tokens, registers, operands, ...)                                                         \
  if constexpr (kHalves)                                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" tokens "k16.f32.f16.f16 {" registers "}, " operands   \
                 ", 1, 1, 1, 0, 0;"                                                                        \
                 : __VA_ARGS__                                                                             \
                 : "l"(a), "l"(b));                                                                        \
  else                                                                                                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" tokens "k16.f32.bf16.bf16 {" registers "}, " operands \
                 ", 1, 1, 1, 0, 0;"                                                                        \
                 : __VA_ARGS__                                                                             \
                 : "l"(a), "l"(b))
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64);
  if constexpr (kTokens == 8) {
    IX_WGMMA("8", "%0,%1,%2,%3", "%4, %5", IX_R4(c, 0));
  } else if constexpr (kTokens == 16) {
    IX_WGMMA("16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8, %9", IX_R4(c, 0), IX_R4(c, 4));
  } else if constexpr (kTokens == 32) {
    IX_WGMMA("32", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16, %17", IX_R16(c, 0));
  } else {
    IX_WGMMA("64", IX_N32, "%32, %33", IX_R16(c, 0), IX_R16(c, 16));
  }
#undef IX_WGMMA
}
#define IX_R64(c) IX_R16(c, 0), IX_R16(c, 16), IX_R16(c, 32), IX_R16(c, 48)
#define IX_N40 IX_N32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define IX_N48 IX_N40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define IX_N64 IX_N48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define IX_N128                                                                                              \
  IX_N64                                                                                                     \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,"    \
  "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// c[64,kColumns] = a[64,16] b[kColumns,16]^T, added to what is there if `add`
template <int kColumns>
__device__ inline void wgmma_into(float (&c)[kColumns / 2], uint64_t a, uint64_t b, int add) {
  static_assert(kColumns == 64 || kColumns == 128 || kColumns == 256);
  if constexpr (kColumns == 64)
    asm volatile("{.reg .pred p; setp.ne.s32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" IX_N32
                 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : IX_R16(c, 0), IX_R16(c, 16)
                 : "l"(a), "l"(b), "r"(add));
  else if constexpr (kColumns == 128)
    asm volatile("{.reg .pred p; setp.ne.s32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" IX_N64
                 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : IX_R64(c)
                 : "l"(a), "l"(b), "r"(add));
  else
    asm volatile(
        "{.reg .pred p; setp.ne.s32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" IX_N128
        "}, %128, %129, p, 1, 1, 0, 0;}"
        : IX_R64(c), IX_R16(c, 64), IX_R16(c, 80), IX_R16(c, 96), IX_R16(c, 112)
        : "l"(a), "l"(b), "r"(add));
}
// c[64,kColumns] += a[64,16] b[16,kColumns], b a transposed tile; a as mma() takes it, of the 16 rows of each warp
template <int kColumns>
__device__ inline void wgmma_registers(float (&c)[kColumns / 2], const uint32_t (&a)[4], uint64_t b) {
  static_assert(kColumns == 64 || kColumns == 80 || kColumns == 96 || kColumns == 128);
  if constexpr (kColumns == 64)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" IX_N32
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : IX_R16(c, 0), IX_R16(c, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else if constexpr (kColumns == 80)
    asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" IX_N40
                 "}, {%40,%41,%42,%43}, %44, 1, 1, 1, 1;"
                 : IX_R16(c, 0), IX_R16(c, 16), IX_R4(c, 32), IX_R4(c, 36)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else if constexpr (kColumns == 96)
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" IX_N48
                 "}, {%48,%49,%50,%51}, %52, 1, 1, 1, 1;"
                 : IX_R16(c, 0), IX_R16(c, 16), IX_R16(c, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" IX_N64
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : IX_R64(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef IX_R64
#undef IX_N32
#undef IX_N40
#undef IX_N48
#undef IX_N64
#undef IX_N128
#undef IX_R4
#undef IX_R16
// Keeps what the compiler may do with sums on its side of a fence or wait.
template <int kCount>
__device__ inline void wgmma_pin(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(c[i])::"memory");
}
// Registers of a warpgroup's threads: given back by copying ones, taken by computing ones.
template <int kCount>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
#endif

}  // namespace ix::cuda
