// The CPU backend: the table of csrc/core/backend_abi.h over the kernels of the best instruction set that this machine
// runs.
#pragma once
#include "core/backend_abi.h"

namespace ix::cpu {

// One instruction set's kernels and layouts.
struct IsaTable {
  const char* name;
  const ix_kernel* const* kernels;
  uint32_t num_kernels;
  const ix_layout* const* layouts;
  uint32_t num_layouts;
};

// The best table that this CPU runs, or the one that INFERX_CPU_ISA names (a test aid; ignored if it cannot run here).
const IsaTable& isa_table();

}  // namespace ix::cpu
