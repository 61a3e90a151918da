// The activation kinds of docs/plan.md over vectors, picked once per kernel call, not per element.
#pragma once
#include "cpu/act/vec_math.h"

namespace ix::cpu {
namespace {

struct Silu {
  IX_INLINE Vf operator()(Vf x) const { return x / (splat(1.0f) + exp(-x)); }
};
struct GeluErf {
  IX_INLINE Vf operator()(Vf x) const { return gelu_erf(x); }
};
struct GeluTanh {  // 0.5 x (1 + tanh(z)) = x sigmoid(2z)
  IX_INLINE Vf operator()(Vf x) const {
    const Vf z = x * fma(x * x, splat(0.7978845608f * 0.044715f), splat(0.7978845608f));
    return x / (splat(1.0f) + exp(splat(-2.0f) * z));
  }
};
struct Relu {
  IX_INLINE Vf operator()(Vf x) const { return x < Vf{} ? Vf{} : x; }
};
struct QuickGelu {
  IX_INLINE Vf operator()(Vf x) const { return x / (splat(1.0f) + exp(splat(-1.702f) * x)); }
};
struct Sigmoid {
  IX_INLINE Vf operator()(Vf x) const { return sigmoid(x); }
};
struct Tanh {
  IX_INLINE Vf operator()(Vf x) const { return tanh(x); }
};

// body(function object) for the kind
template <class F>
inline void with_activation(int64_t kind, F&& body) {
  switch (kind) {
    case 0:
      return body(Silu());
    case 1:
      return body(GeluErf());
    case 2:
      return body(GeluTanh());
    case 3:
      return body(Relu());
    case 4:
      return body(QuickGelu());
    case 5:
      return body(Sigmoid());
    default:
      return body(Tanh());
  }
}

}  // namespace
}  // namespace ix::cpu
