// Storing keys and values, alone and with the q/k norms and rotations before it.
import type { Dim } from "../graph.ts";
import { defineOp, fixed, require, type Shapes, type Tensor } from "./op.ts";
import { normGroups } from "./rms-norm.ts";
import { rotate } from "./rope.ts";

/** [KV heads, head width] of the cache; both are numbers in every graph. */
export function cacheShape(shapes: Shapes): { kvHeads: number; headDim: number } {
  const [kvHeads, headDim] = shapes.cache as readonly Dim[];
  return { kvHeads: fixed(kvHeads, "KV heads"), headDim: fixed(headDim, "head width") };
}

function store(cache: Tensor, k: Tensor, v: Tensor, slots: Tensor): Tensor {
  const width = k.dims[1]!;
  for (let t = 0; t < slots.dims[0]!; t++) {
    const slot = slots.data[t]!;
    if (slot < 0) continue;
    cache.data.set(k.data.subarray(t * width, (t + 1) * width), slot * 2 * width);
    cache.data.set(v.data.subarray(t * width, (t + 1) * width), slot * 2 * width + width);
  }
  return cache;
}

export const kvWrite = defineOp("kv_write(cache: kv_C[…], k: f32[T,N], v: f32[T,N], slots: i32[T]) -> cache", {
  derive: ({ N }, _, shapes) => {
    const { kvHeads, headDim } = cacheShape(shapes);
    require(N === kvHeads * headDim, `k has ${N} columns, the cache ${kvHeads} x ${headDim}`);
    return {};
  },
  evaluate: ({ cache, k, v, slots }) => [store(cache!, k!, v!, slots!)],
});

export const qkNormRopeKvWrite = defineOp(
  "qk_norm_rope_kv_write(cache: kv_C[…], q: f32[T,N], k: f32[T,M], v: f32[T,M], table: f32[T,R], slots: i32[T], qw?: f32[D], kw?: f32[D], heads: i32, interleaved: i32, eps: f32) -> f32[T,N], cache",
  {
    derive: ({ N, M, R, D }, { heads }, shapes) => {
      const { kvHeads, headDim } = cacheShape(shapes);
      require(M === kvHeads * headDim &&
        N === heads! * headDim, `q ${N}, k ${M} columns, the cache ${kvHeads} x ${headDim}`);
      require(D === undefined || D === headDim, `norm weights have ${D} values, heads ${headDim}`);
      require(fixed(R, "R") <= headDim, `heads of ${headDim} cannot be rotated by ${R}`);
      return {};
    },
    evaluate: ({ cache, q, k, v, table, slots, qw, kw }, { heads, interleaved, eps }) => {
      const kvHeads = cache!.dims[3]!;
      const normed = qw ? normGroups(q!, heads!, eps!, false, qw) : q!;
      const keys = kw ? normGroups(k!, kvHeads, eps!, false, kw) : k!;
      store(cache!, rotate(keys, table!, kvHeads, interleaved!), v!, slots!);
      return [rotate(normed, table!, heads!, interleaved!), cache!];
    },
  },
);
