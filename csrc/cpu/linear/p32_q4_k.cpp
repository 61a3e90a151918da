// p32_q4_k: for 256 k, [32 rows] f16 d, [32 rows] f16 dmin, then for each 32 k nibbles (512 bytes, blocks.h) and
// [32 rows] u8 scale, [32 rows] u8 minimum: 74 cache lines, 1.028 of the file's bytes (which has 6 bits for these).
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 0, kMax = 15, kParts = 1, kSuper = 8, kHead = 128, kBlock = 576;
  static constexpr bool kHasMin = true, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return nibbles(b, g, v); }
  IX_INLINE static F32 scale(const uint8_t* head, const uint8_t* b, int, int v) {
    return load_f16(head + v * kWidth * 2) * to_f32(load_u8(b + 512 + v * kWidth));
  }
  IX_INLINE static F32 minimum(const uint8_t* head, const uint8_t* b, int v) {
    return load_f16(head + 64 + v * kWidth * 2) * to_f32(load_u8(b + 544 + v * kWidth));
  }

  // ggml block_q4_K: f16 d, f16 dmin, 12 bytes of 6-bit scales and minimums, u8 q[128]: for each 64 k 32 bytes, low
  // nibbles the first 32 k; w = (d scale) q - dmin minimum.
  static constexpr int kSourceBytes = 144;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + row * 2, src);
    copy16(out + 64 + row * 2, src + 2);
    out += kHead;
    for (int s = 0; s < 8; s++, out += kBlock) {
      pack_nibbles(out, row, [&](int g) { return word(src + 16 + s / 2 * 32 + g * 4) >> (s % 2 * 4); });
      out[512 + row] = scale_of_k(src + 4, s);
      out[544 + row] = minimum_of_k(src + 4, s);
    }
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q4_k, {"p32_q4_k", "q4_k", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q4_k, IX_LINEAR("p32_q4_k"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q4_k_f32, IX_LINEAR("p32_q4_k"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q4_k, IX_MOE_LINEAR("p32_q4_k"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q4_k_f32, IX_MOE_LINEAR("p32_q4_k"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q4_k, IX_EMBED("p32_q4_k"), "", embed_blocks<Format>, nullptr)
