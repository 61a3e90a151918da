// Storing keys and values in the cache.
import type { Dim } from "../graph.ts";
import { defineOp, fixed, require, type Shapes, type Tensor } from "./op.ts";

/** [KV heads, head width] of the cache; both are numbers in every graph. */
export function cacheShape(shapes: Shapes): { kvHeads: number; headDim: number } {
  const [kvHeads, headDim] = shapes.cache as readonly Dim[];
  return { kvHeads: fixed(kvHeads, "KV heads"), headDim: fixed(headDim, "head width") };
}

/** Puts each token's K and V into its slot. */
export function store(cache: Tensor, k: Tensor, v: Tensor, slots: Tensor): Tensor {
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
