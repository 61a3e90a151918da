// p32_f32: [k][32 rows] f32.
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
using Linear = FloatLinear<F32Source>;
}

IX_LAYOUT(p32_f32, {"p32_f32", "f32", kPanel, Linear::panel_bytes, pack_float_panel<F32Source, 4>})
IX_KERNEL(linear_f32, IX_LINEAR("p32_f32"), "numerics=f32", linear<Linear>, linear_workspace<Linear>)
IX_KERNEL(moe_linear_f32, IX_MOE_LINEAR("p32_f32"), "numerics=f32", moe_linear<Linear>, moe_workspace<Linear>)
IX_KERNEL(embed_f32, IX_EMBED("p32_f32"), "", embed_float<F32Source>, nullptr)
