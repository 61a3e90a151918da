// How a CPU kernel file registers itself. Every file under csrc/cpu/<family>/ is compiled once per instruction set with
// INFERX_ISA set; IX_KERNEL makes one constant table entry with that name in it, and CMake collects the entries by
// scanning for the macro. No static initializers run.
#pragma once
#include "core/backend_abi.h"
#include "cpu/stream.h"

#define IX_CONCAT_(a, b, c) a##b##_##c
#define IX_CONCAT(a, b, c) IX_CONCAT_(a, b, c)

// IX_KERNEL(name, signature, tags, launch, workspace): `name` is unique among all CPU kernels. Must stand at file
// scope, one per line, outside of namespaces and of other macros (CMake scans for it).
#define IX_KERNEL(name, signature, tags, launch, workspace)       \
  extern const ix_kernel IX_CONCAT(ix_kernel_, name, INFERX_ISA); \
  const ix_kernel IX_CONCAT(ix_kernel_, name, INFERX_ISA) = {signature, tags, __FILE_NAME__, launch, workspace};

// IX_LAYOUT(name, layout): the same for packed weight layouts; `layout` is a braced ix_layout initialiser.
#define IX_LAYOUT(name, ...)                                      \
  extern const ix_layout IX_CONCAT(ix_layout_, name, INFERX_ISA); \
  const ix_layout IX_CONCAT(ix_layout_, name, INFERX_ISA) = __VA_ARGS__;
