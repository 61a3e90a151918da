// p32_f16: [k][32 rows] f16.
#include "cpu/linear/launch.h"

using namespace ix::cpu;

namespace {
using Linear = FloatLinear<F16Source>;
}

IX_LAYOUT(p32_f16, {"p32_f16", "f16", kPanel, Linear::panel_bytes, pack_float_panel<F16Source, 2>})
IX_KERNEL(linear_f16, IX_LINEAR("p32_f16"), "numerics=f32", linear<Linear>, linear_workspace<Linear>)
IX_KERNEL(moe_linear_f16, IX_MOE_LINEAR("p32_f16"), "numerics=f32", moe_linear<Linear>, moe_workspace<Linear>)
IX_KERNEL(embed_f16, IX_EMBED("p32_f16"), "", embed_float<F16Source>, nullptr)
