// Norms of q and k, their rotation and the storing of keys and values in one pass.
import { cacheShape, store } from "./kv-write.ts";
import { defineOp, fixed, require } from "./op.ts";
import { normGroups } from "./rms-norm.ts";
import { rotate } from "./rope.ts";

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
