// The shapes and formats of the files that make-gguf.mjs writes: which tensors a file has, of which type and size.
// Which tensor gets which type follows llama.cpp's rules for the format.

export const shapes = {
  "135M": { hidden: 576, layers: 30, heads: 9, kvHeads: 3, headDim: 64, ffn: 1536, vocabulary: 49_152 },
  "0.6B": { hidden: 1024, layers: 28, heads: 16, kvHeads: 8, headDim: 128, ffn: 3072, vocabulary: 151_936 },
  "1.1B": { hidden: 2048, layers: 22, heads: 32, kvHeads: 4, headDim: 64, ffn: 5632, vocabulary: 32_000 },
};

/**
 * Bits of a type: GGUF's id, elements and bytes of a block; `halves`: offset and size of the f16 scales of a block, for
 * the rest of the block is random as it stands; `rms` of the elements when those sizes are 1. Signed scales and opposite
 * minima keep the mean of the weights at zero. bf16 and f16 have `mask`: the random bits of an element, sign and four
 * octaves. `narrow`: what llama.cpp takes for rows that are not whole blocks of 256.
 */
export const types = {
  f16: { id: 1, elements: 2, bytes: 4, mask: 0x8fff8fff, rms: 7.06 },
  q4_0: { id: 2, elements: 32, bytes: 18, halves: [[0, 1]], signed: true, rms: 7.08 },
  q5_0: { id: 6, elements: 32, bytes: 22, halves: [[0, 1]], signed: true, rms: 14.1 },
  q5_1: {
    id: 7,
    elements: 32,
    bytes: 24,
    halves: [
      [0, 1],
      [2, -15.5],
    ],
    rms: 15.5,
  },
  q8_0: { id: 8, elements: 32, bytes: 34, halves: [[0, 1]], rms: 113 },
  q4_k: {
    id: 12,
    elements: 256,
    bytes: 144,
    halves: [
      [0, 1],
      [2, 7.5],
    ],
    narrow: "q5_0",
    rms: 406,
  },
  q5_k: {
    id: 13,
    elements: 256,
    bytes: 176,
    halves: [
      [0, 1],
      [2, 15.5],
    ],
    narrow: "q5_1",
    rms: 832,
  },
  q6_k: { id: 14, elements: 256, bytes: 210, halves: [[208, 1]], narrow: "q8_0", rms: 2085 },
  bf16: { id: 30, elements: 2, bytes: 4, mask: 0x81ff81ff, rms: 7.06 },
};
/** `fileType` is llama.cpp's number; `more`: the type of attn_v and ffn_down in the layers that get more bits. */
export const formats = {
  F16: { fileType: 1, base: "f16", output: "f16" },
  Q4_0: { fileType: 2, base: "q4_0", output: "q6_k" },
  Q8_0: { fileType: 7, base: "q8_0", output: "q8_0" },
  Q4_K_M: { fileType: 15, base: "q4_k", more: "q6_k", output: "q6_k" },
  Q5_K_M: { fileType: 17, base: "q5_k", more: "q6_k", output: "q6_k" },
  Q6_K: { fileType: 18, base: "q6_k", output: "q6_k" },
  BF16: { fileType: 32, base: "bf16", output: "bf16" },
};

/** The first and last eighth of the layers and every third between. */
function hasMoreBits(layer, numLayers) {
  const eighth = Math.floor(numLayers / 8);
  return layer < eighth || layer >= Math.floor((7 * numLayers) / 8) || (layer - eighth) % 3 === 2;
}

/** Every tensor of a file: `{name, dims (innermost first), type, bytes, rms}`; `type` undefined: norm weights, f32 ones. */
export function tensorsOf(shapeName, formatName) {
  const { hidden, layers, heads, kvHeads, headDim, ffn, vocabulary } = shapes[shapeName];
  const { base, more = base, output } = formats[formatName];
  const norm = (name) => ({ name, dims: [hidden], type: undefined, bytes: hidden * 4 });
  const matrix = (name, columns, rows, wanted, rms = columns ** -0.5) => {
    const type = columns % types[wanted].elements ? types[wanted].narrow : wanted;
    const { elements, bytes } = types[type];
    return { name, dims: [columns, rows], type, bytes: ((columns * rows) / elements) * bytes, rms };
  };
  // Outputs that are added to the residual are scaled so that it keeps its size through all layers.
  const residual = (columns) => (columns * 2 * layers) ** -0.5;
  const layer = (l) => {
    const raised = hasMoreBits(l, layers) ? more : base;
    return [
      norm(`blk.${l}.attn_norm.weight`),
      matrix(`blk.${l}.attn_q.weight`, hidden, heads * headDim, base),
      matrix(`blk.${l}.attn_k.weight`, hidden, kvHeads * headDim, base),
      matrix(`blk.${l}.attn_v.weight`, hidden, kvHeads * headDim, raised),
      matrix(`blk.${l}.attn_output.weight`, heads * headDim, hidden, base, residual(heads * headDim)),
      norm(`blk.${l}.ffn_norm.weight`),
      matrix(`blk.${l}.ffn_gate.weight`, hidden, ffn, base),
      matrix(`blk.${l}.ffn_up.weight`, hidden, ffn, base),
      matrix(`blk.${l}.ffn_down.weight`, ffn, hidden, raised, residual(ffn)),
    ];
  };
  return [
    matrix("token_embd.weight", hidden, vocabulary, base, 1),
    ...Array.from({ length: layers }, (_, l) => layer(l)).flat(),
    norm("output_norm.weight"),
    matrix("output.weight", hidden, vocabulary, output),
  ];
}

/** Bytes of weights that one decoding step reads: all but the embedding, of which it reads a row. */
export function bytesPerToken(shapeName, formatName) {
  return tensorsOf(shapeName, formatName)
    .filter(({ name }) => name !== "token_embd.weight")
    .reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Operations (a multiplication and an addition are two) of a prompt's token in the layers; the head runs once a prompt. */
export function operationsPerToken(shapeName) {
  return tensorsOf(shapeName, "F16")
    .filter(({ name }) => /^blk.*(attn|ffn)_(q|k|v|output|gate|up|down)/.test(name))
    .reduce((sum, { dims }) => sum + 2 * dims[0] * dims[1], 0);
}
