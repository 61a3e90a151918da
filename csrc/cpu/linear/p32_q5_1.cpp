// p32_q5_1: for 32 k, nibbles (512 bytes) and fifth bits (128 bytes, blocks.h), [32 rows] f16 scale, [32 rows] f16
// minimum: 12 cache lines, the bytes of the file.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 0, kMax = 31, kParts = 1, kSuper = 1, kHead = 0, kBlock = 768;
  static constexpr bool kHasMin = true, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return nibbles(b, g, v) | fifth_bits(b + 512, g, v); }
  IX_INLINE static F32 scale(const uint8_t*, const uint8_t* b, int, int v) {
    return load_f16(b + 640 + v * kWidth * 2);
  }
  IX_INLINE static F32 minimum(const uint8_t*, const uint8_t* b, int v) { return -load_f16(b + 704 + v * kWidth * 2); }

  // ggml block_q5_1: f16 d, f16 m, u32 fifth bits (bit k), u8 q[16] as q4_0; w = d q + m.
  static constexpr int kSourceBytes = 24;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    const uint32_t high = word(src + 4);
    copy16(out + 640 + row * 2, src);
    copy16(out + 704 + row * 2, src + 2);
    pack_nibbles(out, row, [&](int g) { return word(src + 8 + g % 4 * 4) >> (g / 4 * 4); });
    pack_fifth_bits(out + 512, row, [&](int g) { return spread_bits(high >> (4 * g)); });
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q5_1, {"p32_q5_1", "q5_1", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q5_1, IX_LINEAR("p32_q5_1"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q5_1_f32, IX_LINEAR("p32_q5_1"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q5_1, IX_MOE_LINEAR("p32_q5_1"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q5_1_f32, IX_MOE_LINEAR("p32_q5_1"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q5_1, IX_EMBED("p32_q5_1"), "", embed_blocks<Format>, nullptr)
