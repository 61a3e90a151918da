// What a CPU kernel may use of its surroundings: parallel sections on the device's threads. No std, no templates with
// external linkage: this header is included by objects compiled for newer instruction sets.
#pragma once
#include <type_traits>

#include "core/backend_abi.h"

// The CPU's stream: a parallel section runs fn(ctx, chunk, thread) for every chunk in [0, chunks); thread is in
// [0, num_threads). Chunks are claimed one by one; the call returns when all are done.
struct ix_stream {
  void (*run)(ix_stream*, int chunks, void (*fn)(void* ctx, int chunk, int thread), void* ctx);
  int num_threads;
};

namespace ix::cpu {
namespace {

// parallel(stream, chunks, [&](int chunk, int thread) { ... })
template <class F>
inline __attribute__((always_inline)) void parallel(ix_stream* stream, int chunks, F&& body) {
  if (chunks <= 0) return;
  if (chunks == 1 || stream->num_threads == 1) {
    for (int i = 0; i < chunks; i++) body(i, 0);
    return;
  }
  using Body = std::remove_reference_t<F>;
  stream->run(
      stream, chunks, [](void* ctx, int chunk, int thread) { (*static_cast<Body*>(ctx))(chunk, thread); }, &body);
}

}  // namespace
}  // namespace ix::cpu
