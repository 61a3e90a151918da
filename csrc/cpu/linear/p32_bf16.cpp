// p32_bf16: [k / 2][32 rows][2 k] bf16, the order of VDPBF16PS and of AMX tiles. An odd K is padded with a zero.
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
using Exact = FloatLinear<Bf16Source>;
using Dot = FloatLinear<Bf16DotSource>;
}  // namespace

IX_LAYOUT(p32_bf16, {"p32_bf16", "bf16", kPanel, Exact::panel_bytes, pack_float_panel<Bf16Source, 2>})
IX_KERNEL(linear_bf16, IX_LINEAR("p32_bf16"), "numerics=bf16", linear<Dot>, linear_workspace<Dot>)
IX_KERNEL(linear_bf16_f32, IX_LINEAR("p32_bf16"), "numerics=f32", linear<Exact>, linear_workspace<Exact>)
IX_KERNEL(moe_linear_bf16, IX_MOE_LINEAR("p32_bf16"), "numerics=bf16", moe_linear<Dot>, moe_workspace<Dot>)
IX_KERNEL(moe_linear_bf16_f32, IX_MOE_LINEAR("p32_bf16"), "numerics=f32", moe_linear<Exact>, moe_workspace<Exact>)
IX_KERNEL(embed_bf16, IX_EMBED("p32_bf16"), "", embed_float<Bf16Source>, nullptr)
