// p32_q5_k: for 256 k, [32 rows] f16 d, [32 rows] f16 dmin, then for each 32 k nibbles (512 bytes) and fifth bits (128
// bytes, blocks.h) and [32 rows] u8 scale, [32 rows] u8 minimum: 90 cache lines, 1.023 of the file's bytes.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 0, kMax = 31, kParts = 1, kSuper = 8, kHead = 128, kBlock = 704;
  static constexpr bool kHasMin = true, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return nibbles(b, g, v) | fifth_bits(b + 512, g, v); }
  IX_INLINE static F32 scale(const uint8_t* head, const uint8_t* b, int, int v) {
    return load_f16(head + v * kWidth * 2) * to_f32(load_u8(b + 640 + v * kWidth));
  }
  IX_INLINE static F32 minimum(const uint8_t* head, const uint8_t* b, int v) {
    return load_f16(head + 64 + v * kWidth * 2) * to_f32(load_u8(b + 672 + v * kWidth));
  }

  // ggml block_q5_K: as block_q4_K, with u8 high[32] before the nibbles: bit s of high[i] is the fifth bit of k 32 s +
  // i.
  static constexpr int kSourceBytes = 176;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + row * 2, src);
    copy16(out + 64 + row * 2, src + 2);
    out += kHead;
    for (int s = 0; s < 8; s++, out += kBlock) {
      pack_nibbles(out, row, [&](int g) { return word(src + 48 + s / 2 * 32 + g * 4) >> (s % 2 * 4); });
      pack_fifth_bits(out + 512, row, [&](int g) { return word(src + 16 + g * 4) >> s; });
      out[640 + row] = scale_of_k(src + 4, s);
      out[672 + row] = minimum_of_k(src + 4, s);
    }
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q5_k, {"p32_q5_k", "q5_k", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q5_k, IX_LINEAR("p32_q5_k"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q5_k_f32, IX_LINEAR("p32_q5_k"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q5_k, IX_MOE_LINEAR("p32_q5_k"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q5_k_f32, IX_MOE_LINEAR("p32_q5_k"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q5_k, IX_EMBED("p32_q5_k"), "", embed_blocks<Format>, nullptr)
