// Elementwise ops of one and two operands, gather and concat: see docs/plan.md.
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;

template <class F>
void unary(ix_stream* stream, const ix_kernel_call* call, F f) {
  const Floats x(call->operands[0]), y(call->operands[1]);
  const int columns = call->operands[1].dims[1];
  for_vectors(stream, call->operands[1].dims[0], columns, width_for(columns, x, y),
              [=] __device__(auto p) { store(y[p.row] + p.column, map(f, p.of(x))); });
}
struct Neg {
  __device__ float operator()(float x) const { return -x; }
};
struct Exp {
  __device__ float operator()(float x) const { return expf(x); }
};
struct Recip {
  __device__ float operator()(float x) const { return 1.0f / x; }
};
struct Sqrt {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct Rsqrt {
  __device__ float operator()(float x) const { return 1.0f / sqrtf(x); }
};
struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Softcap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};
template <class F>
void launch_unary(ix_stream* stream, const ix_kernel_call* call) {
  unary(stream, call, F());
}
void launch_scale(ix_stream* stream, const ix_kernel_call* call) {
  unary(stream, call, Scale{float(call->attrs[0].f)});
}
void launch_softcap(ix_stream* stream, const ix_kernel_call* call) {
  unary(stream, call, Softcap{float(call->attrs[0].f)});
}

// b may have one row or one column, which is repeated
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Sub {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct Mul {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Div {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
template <class F, class B>
void launch_binary(ix_stream* stream, const ix_kernel_call* call) {
  const Floats a(call->operands[0]), y(call->operands[2]);
  const Rows<B> b(call->operands[1]);
  const int columns = call->operands[2].dims[1];
  const bool one_row = call->operands[1].dims[0] == 1, one_column = call->operands[1].dims[1] == 1;
  for_vectors(stream, call->operands[2].dims[0], columns, one_column ? Width<4>{1} : width_for(columns, a, b, y),
              [=] __device__(auto p) {
                const auto left = p.of(a);
                const auto right = load<p.kCount>(b[one_row ? 0 : p.row] + (one_column ? 0 : p.column));
                store(y[p.row] + p.column, map(F(), left, right));
              });
}

// a row outside of x gives zeros
template <class T>
void launch_gather(ix_stream* stream, const ix_kernel_call* call) {
  const Rows<T> x(call->operands[0]), y(call->operands[2]);
  const int32_t* rows = static_cast<const int32_t*>(call->operands[1].data);
  const int num_rows = call->operands[0].dims[0], columns = call->operands[2].dims[1];
  for_vectors(stream, call->operands[2].dims[0], columns, width_for(columns, x, y), [=] __device__(auto p) {
    const int from = __ldcg(rows + p.row);
    Vector<p.kCount> v{};
    if (from >= 0 && from < num_rows) v = load<p.kCount>(x[from] + p.column);
    store(y[p.row] + p.column, v);
  });
}

void launch_concat(ix_stream* stream, const ix_kernel_call* call) {
  const Floats a(call->operands[0]), b(call->operands[1]), y(call->operands[2]);
  const int first = call->operands[0].dims[1];
  for_elements(stream, call->operands[2].dims[0], call->operands[2].dims[1],
               [=] __device__(int r, int c) { y[r][c] = c < first ? a(r, c) : b(r, c - first); });
}
}  // namespace

IX_KERNEL(scale, "scale(x: f32[T,D], factor: f32) -> f32[T,D]", "", launch_scale, nullptr)
IX_KERNEL(softcap, "softcap(x: f32[T,D], cap: f32) -> f32[T,D]", "", launch_softcap, nullptr)
IX_KERNEL(neg, "neg(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Neg>, nullptr)
IX_KERNEL(exp, "exp(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Exp>, nullptr)
IX_KERNEL(recip, "recip(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Recip>, nullptr)
IX_KERNEL(sqrt, "sqrt(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Sqrt>, nullptr)
IX_KERNEL(rsqrt, "rsqrt(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Rsqrt>, nullptr)
IX_KERNEL(tanh, "tanh(x: f32[T,D]) -> f32[T,D]", "", launch_unary<Tanh>, nullptr)
IX_KERNEL(add, "add(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", (launch_binary<Add, float>), nullptr)
IX_KERNEL(add_bf16, "add(a: f32[T,D], b: bf16[T,D]) -> f32[T,D]", "", (launch_binary<Add, __nv_bfloat16>), nullptr)
IX_KERNEL(sub, "sub(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", (launch_binary<Sub, float>), nullptr)
IX_KERNEL(mul, "mul(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", (launch_binary<Mul, float>), nullptr)
IX_KERNEL(div, "div(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", (launch_binary<Div, float>), nullptr)
IX_KERNEL(max, "max(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", (launch_binary<Max, float>), nullptr)
IX_KERNEL(gather, "gather(x: f32[T,D], rows: i32[S]) -> f32[S,D]", "", launch_gather<float>, nullptr)
IX_KERNEL(gather_bf16, "gather(x: bf16[T,D], rows: i32[S]) -> bf16[S,D]", "", launch_gather<__nv_bfloat16>, nullptr)
IX_KERNEL(concat, "concat(a: f32[T,D], b: f32[T,E]) -> f32[T,F]", "", launch_concat, nullptr)
