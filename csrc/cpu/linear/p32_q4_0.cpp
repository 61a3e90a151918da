// p32_q4_0: for 32 k, nibbles (512 bytes, blocks.h), [32 rows] f16 scale: 9 cache lines, the bytes of the file.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 8, kMax = 15, kParts = 1, kSuper = 1, kHead = 0, kBlock = 576;
  static constexpr bool kHasMin = false, kPacked = true;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return nibbles(b, g, v); }
  IX_INLINE static F32 scale(const uint8_t*, const uint8_t* b, int, int v) {
    return load_f16(b + 512 + v * kWidth * 2);
  }

  // ggml block_q4_0: f16 d, u8 q[16]: low nibbles are k 0-15, high ones 16-31.
  static constexpr int kSourceBytes = 18;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + 512 + row * 2, src);
    pack_nibbles(out, row, [&](int g) { return word(src + 2 + g % 4 * 4) >> (g / 4 * 4); });
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q4_0, {"p32_q4_0", "q4_0", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q4_0, IX_LINEAR("p32_q4_0"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q4_0_f32, IX_LINEAR("p32_q4_0"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q4_0, IX_MOE_LINEAR("p32_q4_0"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q4_0_f32, IX_MOE_LINEAR("p32_q4_0"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q4_0, IX_EMBED("p32_q4_0"), "", embed_blocks<Format>, nullptr)
