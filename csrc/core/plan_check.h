// Whether a plan's steps may run without another look: operands as the kernels' signatures promise them, nothing read
// before it was written, nothing overwritten while it is needed.
#pragma once

namespace ix {

struct Plan;

// Throws IX_PLAN, naming the step. Completes the steps with what their signatures say.
void check_steps(Plan& plan);

}  // namespace ix
