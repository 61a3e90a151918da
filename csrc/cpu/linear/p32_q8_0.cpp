// p32_q8_0: for 32 k, [8 groups][32 rows][4 k] u8 = weight + 128 (1024 bytes), [32 rows] f16 scale: 17 cache lines,
// the bytes of the file.
#include "cpu/linear/blocks.h"
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
struct Format {
  static constexpr int kOffset = 128, kMax = 255, kParts = 1, kSuper = 1, kHead = 0, kBlock = 1088;
  static constexpr bool kHasMin = false, kPacked = false;
  IX_INLINE static I32 quants(const uint8_t* b, int g, int v) { return load<I32>(b + g * 128 + v * kWidth * 4); }
  IX_INLINE static F32 scale(const uint8_t*, const uint8_t* b, int, int v) {
    return load_f16(b + 1024 + v * kWidth * 2);
  }

  // ggml block_q8_0: f16 d, i8 q[32].
  static constexpr int kSourceBytes = 34;
  static void pack(const uint8_t* src, uint8_t* out, int row) {
    copy16(out + 1024 + row * 2, src);
    for (int g = 0; g < kGroups; g++) store(out + g * 128 + row * 4, word(src + 2 + g * 4) ^ 0x80808080u);
  }
};

using Int8 = Int8Linear<Format>;
using Exact = DequantizedLinear<Format>;
}  // namespace

IX_LAYOUT(p32_q8_0, {"p32_q8_0", "q8_0", kPanel, block_panel_bytes<Format>, pack_panel<Format>})
IX_KERNEL(linear_q8_0, IX_LINEAR("p32_q8_0"), "numerics=int8", linear<Int8>, linear_workspace<Int8>)
IX_KERNEL(linear_q8_0_f32, IX_LINEAR("p32_q8_0"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_q8_0, IX_MOE_LINEAR("p32_q8_0"), "numerics=int8", moe_linear<Int8>, moe_workspace<Int8>)
IX_KERNEL(moe_linear_q8_0_f32, IX_MOE_LINEAR("p32_q8_0"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_q8_0, IX_EMBED("p32_q8_0"), "", embed_blocks<Format>, nullptr)
