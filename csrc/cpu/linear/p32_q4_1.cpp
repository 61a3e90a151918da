// p32_q4_1: for 32 k, nibbles (512 bytes, blocks.h), [32 rows] f16 scale, [32 rows] f16 minimum: 10 cache lines, the
// bytes of the file.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 0, kMax = 15, kParts = 1, kSuper = 1, kHead = 0, kBlock = 640;
  static constexpr bool kHasMin = true, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return nibbles(b, g, v); }
  IX_INLINE static F32 scale(const uint8_t*, const uint8_t* b, int, int v) {
    return load_f16(b + 512 + v * kWidth * 2);
  }
  IX_INLINE static F32 minimum(const uint8_t*, const uint8_t* b, int v) { return -load_f16(b + 576 + v * kWidth * 2); }

  // ggml block_q4_1: f16 d, f16 m, u8 q[16] as q4_0; w = d q + m.
  static constexpr int kSourceBytes = 20;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + 512 + row * 2, src);
    copy16(out + 576 + row * 2, src + 2);
    pack_nibbles(out, row, [&](int g) { return word(src + 4 + g % 4 * 4) >> (g / 4 * 4); });
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q4_1, {"p32_q4_1", "q4_1", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q4_1, IX_LINEAR("p32_q4_1"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q4_1_f32, IX_LINEAR("p32_q4_1"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q4_1, IX_MOE_LINEAR("p32_q4_1"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q4_1_f32, IX_MOE_LINEAR("p32_q4_1"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q4_1, IX_EMBED("p32_q4_1"), "", embed_blocks<Format>, nullptr)
