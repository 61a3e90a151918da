// p32_q6_k: for 256 k, [32 rows] f16 d, then for each 32 k nibbles (512 bytes, blocks.h), upper bits [2 halves of 16
// k][32 rows] u32 (256 bytes), scales [2 halves][32 rows] i8 (64 bytes): 105 cache lines, the bytes of the file.
// Upper bits: bits 2 (g % 4) of byte j belong to k 4 g + j, so a shift and an AND make them of a group.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 32, kMax = 63, kParts = 2, kSuper = 8, kHead = 64, kBlock = 832;
  static constexpr bool kHasMin = false, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) {
    const I32 upper = load<I32>(b + 512 + g / 4 * 128 + v * kWidth * 4), mask = set1(0x30303030);
    const int shift = 4 - g % 4 * 2;
    return nibbles(b, g, v) | ((shift >= 0 ? upper << shift : upper >> -shift) & mask);
  }
  IX_INLINE static F32 scale(const uint8_t* head, const uint8_t* b, int part, int v) {
    return load_f16(head + v * kWidth * 2) * to_f32(load_i8(b + 768 + part * 32 + v * kWidth));
  }

  // ggml block_q6_K: u8 low[128], u8 high[64], i8 scales[16], f16 d. Of each 128 k: 64 bytes of low, the nibbles of k
  // i and i + 64 together; 32 bytes of high, the upper bits of k i, i + 32, i + 64, i + 96 together.
  static constexpr int kSourceBytes = 210;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + row * 2, src + 208);
    out += kHead;
    for (int s = 0; s < 8; s++, out += kBlock) {
      const int i = s % 4;
      const uint8_t *low = src + s / 4 * 64 + i % 2 * 32, *high = src + 128 + s / 4 * 32;
      pack_nibbles(out, row, [&](int g) { return word(low + g * 4) >> (i / 2 * 4); });
      for (int half = 0; half < 2; half++) {
        uint32_t upper = 0;
        for (int g = 0; g < 4; g++) upper |= (word(high + (half * 4 + g) * 4) >> (2 * i) & 0x03030303u) << (2 * g);
        store(out + 512 + half * 128 + row * 4, upper);
        out[768 + half * 32 + row] = src[192 + s * 2 + half];
      }
    }
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q6_k, {"p32_q6_k", "q6_k", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q6_k, IX_LINEAR("p32_q6_k"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q6_k_f32, IX_LINEAR("p32_q6_k"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q6_k, IX_MOE_LINEAR("p32_q6_k"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q6_k_f32, IX_MOE_LINEAR("p32_q6_k"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q6_k, IX_EMBED("p32_q6_k"), "", embed_blocks<Format>, nullptr)
