// Opening models: config layouts, names and shapes of GGUF tensors, dequantized values, paths that are wrong.
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { BoundedReader } from "../../lib/formats/bounded-reader.ts";
import { type Checkpoint, openCheckpoint, type TensorInfo } from "../../lib/formats/checkpoint.ts";
import { canDequantize, dequantize } from "../../lib/formats/dequantize.ts";
import { type DType, dtypeOfGgml } from "../../lib/formats/dtypes.ts";
import { architectureOf, normaliseHfConfig } from "../../lib/formats/hf-config.ts";
import { readSafetensors } from "../../lib/formats/safetensors.ts";
import { errorOf } from "./error-of.ts";
import { f32, i32s, type TypedValue, text, texts, u32, type WrittenTensor, writeGguf } from "./gguf-writer.ts";

const golden = join(import.meta.dirname, "../../../shared/golden");
const hasGolden = existsSync(golden);
const skipped = hasGolden ? "" : " SKIPPED: needs ../shared/golden";
const goldenTest = test.skipIf(!hasGolden);

const root = mkdtempSync(join(tmpdir(), "ix-checkpoint-"));
afterAll(() => rmSync(root, { recursive: true }));

const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));

describe("config.json in both layouts", () => {
  /** Keys that no builder reads; transformers 5 writes them, 4 does not. */
  const bookkeeping =
    "transformers_version pretraining_tp qk_head_dim num_nextn_predict_layers use_bidirectional_attention add_cross_attention is_decoder vision_config".split(
      " ",
    );
  const relevant = (path: string) => {
    const config = normaliseHfConfig(readJson(path));
    for (const key of bookkeeping) delete config[key];
    return config;
  };
  const folders = hasGolden
    ? readdirSync(golden).filter((name) => existsSync(join(golden, name, "config.v5.json")))
    : [];

  goldenTest(`become equal, for all golden folders${skipped}`, () => {
    expect(folders.length).toBeGreaterThan(30);
    for (const name of folders) {
      const folder = join(golden, name);
      expect(relevant(join(folder, "config.v5.json")), name).toEqual(relevant(join(folder, "config.json")));
    }
  });

  test("older spellings", () => {
    const rope = normaliseHfConfig({
      model_type: "phi3",
      rope_scaling: { type: "su", short_factor: [1], long_factor: [2] },
      original_max_position_embeddings: 96,
    });
    expect(rope.rope_scaling).toEqual({
      rope_type: "longrope",
      short_factor: [1],
      long_factor: [2],
      original_max_position_embeddings: 96,
    });
    expect(normaliseHfConfig({ model_type: "gemma2", num_hidden_layers: 3, sliding_window: 8 }).layer_types).toEqual([
      "sliding_attention",
      "full_attention",
      "sliding_attention",
    ]);
    expect(
      normaliseHfConfig({
        model_type: "qwen2",
        num_hidden_layers: 3,
        sliding_window: 8,
        use_sliding_window: true,
        max_window_layers: 2,
      }).layer_types,
    ).toEqual(["full_attention", "full_attention", "sliding_attention"]);
    expect(
      normaliseHfConfig({ model_type: "qwen2", sliding_window: 8, use_sliding_window: false }).sliding_window,
    ).toBeNull();
    expect(normaliseHfConfig({ model_type: "gemma2", attn_logit_softcapping: null }).attn_logit_softcapping).toBeNull();
    expect(normaliseHfConfig({ model_type: "gpt2" }).tie_word_embeddings).toBe(true);
    expect(normaliseHfConfig({ model_type: "llama", dtype: "bfloat16" })).toMatchObject({
      torch_dtype: "bfloat16",
      tie_word_embeddings: false,
    });
  });

  test("a text model inside one for images", () => {
    const config = normaliseHfConfig({
      architectures: ["Gemma3ForConditionalGeneration"],
      model_type: "gemma3",
      text_config: { model_type: "gemma3_text", hidden_size: 64, num_hidden_layers: 6, sliding_window: 8 },
    });
    expect(config).toMatchObject({
      hidden_size: 64,
      head_dim: 256,
      rope_theta: 1e6,
      rope_local_base_freq: 1e4,
      tie_word_embeddings: true,
    });
    expect(config.layer_types).toEqual([...Array(5).fill("sliding_attention"), "full_attention"]);
  });

  test("no architecture", () => {
    expect(architectureOf({ model_type: "qwen3" })).toBe("Qwen3ForCausalLM");
    expect(errorOf(() => architectureOf({ model_type: "elk" }))).toMatchObject({
      code: "IX_MODEL_CONFIG",
      details: { key: "architectures" },
    });
  });
});

describe("Hugging Face folders", () => {
  goldenTest(`all golden folders open${skipped}`, () => {
    for (const base of [golden, join(golden, "formats")]) {
      for (const name of readdirSync(base).filter((entry) => existsSync(join(base, entry, "config.json")))) {
        const checkpoint = openCheckpoint(join(base, name));
        expect(checkpoint.tensors.size, name).toBeGreaterThan(0);
        expect(checkpoint.eosTokenIds, name).toEqual([500]);
        expect(checkpoint.tokenizer?.kind, name).toBe(
          existsSync(join(base, name, "tokenizer.json")) ? "json" : undefined,
        );
        for (const tensor of checkpoint.tensors.values()) expect(checkpoint.files[tensor.file], name).toBeDefined();
      }
    }
  });

  goldenTest(`template, special tokens, GPT-2's transposed matrices${skipped}`, () => {
    const llama = openCheckpoint(join(golden, "llama"));
    expect(llama).toMatchObject({ kind: "hf", architecture: "LlamaForCausalLM" });
    expect(llama.specialTokens).toMatchObject({
      bosToken: "<|begin_of_text|>",
      eosToken: "<|end_of_text|>",
      padToken: "<|pad|>",
    });
    expect(llama.chatTemplate).toBe(readJson(join(golden, "llama/tokenizer_config.json")).chat_template);
    const jinja = openCheckpoint(join(golden, "llama_rope_tied"));
    expect(jinja.chatTemplate).toBe(readFileSync(join(golden, "llama_rope_tied/chat_template.jinja"), "utf8"));
    const gpt2 = openCheckpoint(join(golden, "gpt2"));
    expect(gpt2.tensors.get("transformer.h.0.attn.c_attn.weight")).toMatchObject({
      shape: [64, 192],
      transposed: true,
    });
    expect(gpt2.tensors.get("transformer.wte.weight")!.transposed).toBeUndefined();
  });

  goldenTest(`named templates, files of the older kinds${skipped}`, () => {
    const folder = join(root, "named");
    cpSync(join(golden, "llama"), folder, { recursive: true, mode: 0 });
    const path = join(folder, "tokenizer_config.json");
    rmSync(path, { force: true });
    const named = [
      { name: "default", template: "D" },
      { name: "tool_use", template: "T" },
    ];
    writeFileSync(path, JSON.stringify({ chat_template: named, bos_token: { content: "<b>" }, image_token: "<i>" }));
    rmSync(join(folder, "tokenizer.json"), { force: true });
    writeFileSync(join(folder, "tokenizer.model"), "sp");
    const checkpoint = openCheckpoint(folder);
    expect(checkpoint.chatTemplates).toEqual({ default: "D", tool_use: "T" });
    expect(checkpoint.specialTokens).toMatchObject({ bosToken: "<b>", imageToken: "<i>", eosToken: "<|end_of_text|>" });
    expect(checkpoint.tokenizer).toMatchObject({ kind: "sentencepiece" });
    writeFileSync(join(folder, "chat_template.json"), JSON.stringify({ chat_template: "J" }));
    expect(openCheckpoint(folder).chatTemplate).toBe("J");
  });
});

describe("paths that are wrong", () => {
  test("nothing there, no config, another kind of file", () => {
    expect(errorOf(() => openCheckpoint(join(root, "absent"))).code).toBe("IX_FILE_NOT_FOUND");
    expect(errorOf(() => openCheckpoint("a\0b")).code).toBe("IX_FILE_READ");
    const folder = join(root, "bare");
    mkdirSync(folder);
    writeFileSync(join(folder, "x.gguf"), "");
    const bare = errorOf(() => openCheckpoint(folder));
    expect([bare.code, bare.message]).toEqual(["IX_MODEL_CONFIG", expect.stringContaining("x.gguf")]);
    writeFileSync(join(folder, "model.bin"), "");
    expect(errorOf(() => openCheckpoint(join(folder, "model.bin"))).code).toBe("IX_MODEL_FORMAT");
    expect(errorOf(() => openCheckpoint(join(folder, "x.gguf"))).code).toBe("IX_MODEL_FORMAT");
    writeFileSync(join(folder, "config.json"), "[1]");
    expect(errorOf(() => openCheckpoint(folder)).code).toBe("IX_MODEL_FORMAT");
    writeFileSync(join(folder, "config.json"), "{}");
    expect(errorOf(() => openCheckpoint(folder)).code).toBe("IX_FILE_NOT_FOUND");
  });
});

/** Rows of a tensor, in the model's order. */
function readRow(checkpoint: Checkpoint, tensor: TensorInfo, row: number): Float32Array {
  const [numRows] = tensor.shape as [number];
  const heads = tensor.rowPermutation?.heads ?? 0;
  let stored = row;
  if (heads) {
    const width = numRows / heads;
    const [head, inHead] = [Math.floor(row / width), row % width];
    stored = head * width + 2 * (inHead % (width / 2)) + Math.floor(inHead / (width / 2));
  }
  const rowBytes = tensor.byteLength / numRows;
  using reader = new BoundedReader(checkpoint.files[tensor.file]!.path);
  return dequantize(tensor.dtype, reader.readAt(tensor.byteOffset + stored * rowBytes, rowBytes));
}

function expectClose(got: Float32Array, wanted: ArrayLike<number>, name: string): void {
  expect(got.length, name).toBe(wanted.length);
  const worst = got.reduce((max, value, i) => Math.max(max, Math.abs(value - wanted[i]!)), 0);
  expect(worst, name).toBeLessThanOrEqual(1e-6);
}

describe("dequantization", () => {
  goldenTest(`every block type with a decoder${skipped}`, () => {
    const path = join(golden, "formats/gguf/blocks.safetensors");
    const { tensors } = readSafetensors(path);
    const { types } = readJson(join(golden, "formats/gguf/blocks.json")) as {
      types: Record<string, { ggml_type: number }>;
    };
    using reader = new BoundedReader(path);
    const bytes = (name: string) => reader.readAt(tensors.get(name)!.byteOffset, tensors.get(name)!.byteLength);
    const checked: DType[] = [];
    for (const [name, { ggml_type }] of Object.entries(types)) {
      const dtype = dtypeOfGgml.get(ggml_type)!;
      expect(dtype, name).toBe(name.toLowerCase());
      if (!canDequantize(dtype)) continue;
      expectClose(dequantize(dtype, bytes(`${name}.raw`)), dequantize("f32", bytes(`${name}.f32`)), name);
      checked.push(dtype);
    }
    const wanted: DType[] = [
      "q4_0",
      "q4_1",
      "q5_0",
      "q5_1",
      "q8_0",
      "q2_k",
      "q3_k",
      "q4_k",
      "q5_k",
      "q6_k",
      "iq4_nl",
      "iq4_xs",
    ];
    expect(checked).toEqual(expect.arrayContaining(wanted));
  });

  goldenTest(`rows of all golden GGUF files${skipped}`, () => {
    const folder = join(golden, "formats/gguf");
    const files = readdirSync(folder).filter((name) => name.endsWith(".gguf"));
    expect(files.length).toBe(18);
    for (const name of files) {
      const checkpoint = openCheckpoint(join(folder, name));
      const expected = readJson(join(folder, name.replace(".gguf", ".expected.json")));
      const rows = Object.entries(expected.dequant_rows as Record<string, Record<string, number[]>>);
      expect(rows.length, name).toBeGreaterThan(0);
      for (const [key, byRow] of rows) {
        const tensor = checkpoint.tensors.get(key.endsWith(".weight") ? key : `${key}.weight`)!;
        for (const [row, wanted] of Object.entries(byRow))
          expectClose(readRow(checkpoint, tensor, Number(row)), wanted, `${name} ${key} ${row}`);
      }
    }
  });

  goldenTest(`every row of q and k, un-permuted, is the one of the same model in safetensors${skipped}`, () => {
    const gguf = openCheckpoint(join(golden, "formats/gguf/llama-F32.gguf"));
    const hf = openCheckpoint(join(golden, "formats/llama_sharded"));
    for (const name of ["q_proj", "k_proj", "v_proj"].map((part) => `model.layers.0.self_attn.${part}.weight`)) {
      const [ours, wanted] = [gguf.tensors.get(name)!, hf.tensors.get(name)!];
      expect(ours.shape, name).toEqual(wanted.shape);
      for (let row = 0; row < ours.shape[0]!; row++) {
        expect(readRow(gguf, ours, row), `${name} ${row}`).toEqual(readRow(hf, wanted, row));
      }
    }
  });

  test("halves, and what cannot be done", () => {
    const halves = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00);
    expect([...dequantize("f16", new Uint8Array(halves.buffer))]).toEqual([
      1,
      -2,
      2 ** -24,
      65504,
      Number.POSITIVE_INFINITY,
      Number.NaN,
    ]);
    expect(errorOf(() => dequantize("iq1_s", new Uint8Array(50))).code).toBe("IX_UNSUPPORTED_FORMAT");
    expect(errorOf(() => dequantize("q8_0", new Uint8Array(33))).code).toBe("IX_INVALID_ARGUMENT");
  });
});

describe("GGUF", () => {
  const hyper = (arch: string, more: [string, TypedValue][] = []): [string, TypedValue][] => {
    const values: [string, TypedValue][] = [
      ["general.architecture", text(arch)],
      [`${arch}.context_length`, u32(128)],
      [`${arch}.embedding_length`, u32(8)],
      [`${arch}.block_count`, u32(2)],
      [`${arch}.feed_forward_length`, u32(16)],
      [`${arch}.attention.head_count`, u32(4)],
      [`${arch}.attention.layer_norm_rms_epsilon`, f32(2 ** -20)],
    ];
    const replaced = new Set(more.map(([key]) => key));
    return [...values.filter(([key]) => !replaced.has(key)), ...more];
  };
  const tensor = (name: string, ...dims: number[]): WrittenTensor => ({ name, dtype: "f32", dims });
  const embedding = tensor("token_embd.weight", 8, 4);
  let numFiles = 0;
  const open = (metadata: [string, TypedValue][], tensors: WrittenTensor[] = []) => {
    const path = join(root, `${numFiles++}.gguf`);
    writeFileSync(path, writeGguf(metadata, [embedding, ...tensors]));
    return openCheckpoint(path);
  };
  const names = (checkpoint: Checkpoint) => [...checkpoint.tensors.keys()];

  test("hyper-parameters of llama, with what is absent inferred", () => {
    const { config, architecture } = open(hyper("llama"), [tensor("output.weight", 8, 4)]);
    expect(architecture).toBe("LlamaForCausalLM");
    expect(config).toMatchObject({
      hidden_size: 8,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      head_dim: 2,
    });
    expect(config).toMatchObject({
      vocab_size: 4,
      tie_word_embeddings: false,
      rope_theta: 10_000,
      rope_scaling: null,
      rms_norm_eps: 2 ** -20,
    });
    expect(open(hyper("llama")).config.tie_word_embeddings).toBe(true);
  });

  test("names, permuted rows, shapes as Hugging Face has them", () => {
    const { tensors } = open(hyper("llama", [["llama.attention.head_count_kv", u32(2)]]), [
      tensor("blk.1.attn_q.weight", 8, 8),
      tensor("blk.1.attn_q.bias", 8),
      tensor("blk.1.attn_k.weight", 8, 4),
      tensor("blk.1.attn_v.weight", 8, 4),
      tensor("blk.0.ffn_down.weight", 16, 8),
    ]);
    const q = { kind: "llama-rope", heads: 4 };
    expect(tensors.get("model.layers.1.self_attn.q_proj.weight")).toMatchObject({ shape: [8, 8], rowPermutation: q });
    expect(tensors.get("model.layers.1.self_attn.q_proj.bias")).toMatchObject({ shape: [8], rowPermutation: q });
    expect(tensors.get("model.layers.1.self_attn.k_proj.weight")).toMatchObject({
      shape: [4, 8],
      rowPermutation: { heads: 2 },
    });
    expect(tensors.get("model.layers.1.self_attn.v_proj.weight")!.rowPermutation).toBeUndefined();
    expect(tensors.get("model.layers.0.mlp.down_proj.weight")!.shape).toEqual([8, 16]);
    const qwen = open(hyper("qwen3"), [tensor("blk.0.attn_q.weight", 8, 8), tensor("blk.0.attn_q_norm.weight", 2)]);
    expect(qwen.tensors.get("model.layers.0.self_attn.q_proj.weight")!.rowPermutation).toBeUndefined();
    expect(names(qwen)).toContain("model.layers.0.self_attn.q_norm.weight");
  });

  test("experts, stacked and single", () => {
    const moe: [string, TypedValue][] = [
      ["llama.expert_count", u32(3)],
      ["llama.expert_used_count", u32(2)],
    ];
    const mixtral = open(hyper("llama", moe), [
      tensor("blk.1.ffn_gate_exps.weight", 8, 16, 3),
      tensor("blk.0.ffn_down.2.weight", 16, 8),
    ]);
    expect(mixtral.architecture).toBe("MixtralForCausalLM");
    expect(mixtral.config).toMatchObject({ num_local_experts: 3, num_experts_per_tok: 2 });
    const [first, second] = [0, 1].map(
      (e) => mixtral.tensors.get(`model.layers.1.block_sparse_moe.experts.${e}.w1.weight`)!,
    );
    expect(first).toMatchObject({ shape: [16, 8], byteLength: 512 });
    expect(second!.byteOffset - first!.byteOffset).toBe(512);
    expect(names(mixtral)).toContain("model.layers.0.block_sparse_moe.experts.2.w2.weight");
    const qwen = open(
      hyper("qwen3moe", [
        ["qwen3moe.expert_count", u32(3)],
        ["qwen3moe.expert_used_count", u32(2)],
      ]),
      [
        tensor("blk.0.ffn_gate_inp.weight", 8, 3),
        tensor("blk.0.ffn_gate_exps.weight", 8, 12, 3),
        tensor("blk.1.ffn_gate.weight", 8, 16),
      ],
    );
    expect(qwen.config).toMatchObject({
      num_experts: 3,
      norm_topk_prob: true,
      mlp_only_layers: [1],
      moe_intermediate_size: 12,
    });
    expect(names(qwen)).toContain("model.layers.0.mlp.experts.2.gate_proj.weight");
  });

  test("gemma's norms, windows, caps and query scale", () => {
    const more: [string, TypedValue][] = [
      ["gemma2.attention.key_length", u32(6)],
      ["gemma2.attention.sliding_window", u32(16)],
      ["gemma2.attn_logit_softcapping", f32(50)],
      ["gemma2.final_logit_softcapping", f32(30)],
    ];
    const gemma = open(hyper("gemma2", more), [
      tensor("blk.0.attn_norm.weight", 8),
      tensor("blk.0.ffn_norm.weight", 8),
      tensor("blk.0.attn_q.weight", 8, 24),
    ]);
    expect(gemma.config).toMatchObject({
      head_dim: 6,
      query_pre_attn_scalar: 6,
      attn_logit_softcapping: 50,
      final_logit_softcapping: 30,
    });
    expect(gemma.config.layer_types).toEqual(["sliding_attention", "full_attention"]);
    expect(gemma.tensors.get("model.layers.0.input_layernorm.weight")!.offsetOne).toBe(true);
    expect(gemma.tensors.get("model.layers.0.pre_feedforward_layernorm.weight")!.offsetOne).toBe(true);
    expect(gemma.tensors.get("model.layers.0.self_attn.q_proj.weight")!.offsetOne).toBeUndefined();
  });

  test("rope scaling: linear, yarn, factors in tensors", () => {
    const scaling = (more: [string, TypedValue][], tensors: WrittenTensor[] = []) =>
      open(hyper("llama", more), tensors).config.rope_scaling;
    expect(scaling([["llama.rope.scale_linear", f32(4)]])).toEqual({ rope_type: "linear", factor: 4 });
    const factor: [string, TypedValue] = ["llama.rope.scaling.factor", f32(8)];
    const original: [string, TypedValue] = ["llama.rope.scaling.original_context_length", u32(64)];
    expect(scaling([["llama.rope.scaling.type", text("yarn")], factor, original])).toEqual({
      rope_type: "yarn",
      factor: 8,
      original_max_position_embeddings: 64,
    });
    const data = (...values: number[]) => new Uint8Array(Float32Array.from(values).buffer);
    const freqs = { ...tensor("rope_freqs.weight", 2), data: data(1, 8) };
    expect(scaling([], [freqs])).toEqual({
      rope_type: "longrope",
      short_factor: [1, 8],
      long_factor: [1, 8],
      attention_factor: 1,
      original_max_position_embeddings: 128,
    });
    const phi3 = open(
      hyper("phi3", [
        ["phi3.rope.scaling.original_context_length", u32(64)],
        ["phi3.rope.dimension_count", u32(1)],
      ]),
      [
        { ...tensor("rope_factors_long.weight", 2), data: data(2, 3) },
        { ...tensor("rope_factors_short.weight", 2), data: data(1, 1.5) },
        tensor("blk.0.ffn_up.weight", 8, 32),
      ],
    );
    expect(phi3.config.rope_scaling).toEqual({
      rope_type: "longrope",
      long_factor: [2, 3],
      short_factor: [1, 1.5],
      original_max_position_embeddings: 64,
    });
    expect(phi3.config.partial_rotary_factor).toBe(0.5);
    expect(names(phi3)).toEqual(["model.embed_tokens.weight", "model.layers.0.mlp.gate_up_proj.weight"]);
    expect(errorOf(() => scaling([["llama.rope.scaling.type", text("odd")], factor]))).toMatchObject({
      code: "IX_MODEL_CONFIG",
    });
  });

  test("the other architectures", () => {
    expect(open(hyper("llama", [["llama.attention.sliding_window", u32(16)]]))).toMatchObject({
      architecture: "MistralForCausalLM",
      config: { sliding_window: 16 },
    });
    expect(open(hyper("smollm3")).config.no_rope_layers).toEqual([1, 1]);
    expect(open(hyper("qwen2")).architecture).toBe("Qwen2ForCausalLM");
    const olmo = open(hyper("olmo2"), [tensor("blk.0.post_ffw_norm.weight", 8)]);
    expect(names(olmo)).toContain("model.layers.0.post_feedforward_layernorm.weight");
    const gemma3 = open(
      hyper("gemma3", [
        ["gemma3.block_count", u32(6)],
        ["gemma3.attention.sliding_window", u32(16)],
      ]),
    );
    expect(gemma3.config).toMatchObject({
      query_pre_attn_scalar: 2,
      rope_local_base_freq: 10_000,
      final_logit_softcapping: null,
    });
    expect(gemma3.config.layer_types).toEqual([...Array(5).fill("sliding_attention"), "full_attention"]);
    const gpt2 = open(hyper("gpt2", [["gpt2.attention.layer_norm_epsilon", f32(0.5)]]), [
      tensor("blk.0.attn_qkv.weight", 8, 24),
      tensor("position_embd.weight", 8, 128),
    ]);
    expect(gpt2.config).toMatchObject({
      n_embd: 8,
      n_layer: 2,
      n_head: 4,
      n_positions: 128,
      layer_norm_epsilon: 0.5,
      tie_word_embeddings: true,
    });
    expect(gpt2.tensors.get("transformer.h.0.attn.c_attn.weight")).toMatchObject({ shape: [24, 8] });
    expect(gpt2.tensors.get("transformer.h.0.attn.c_attn.weight")!.transposed).toBeUndefined();
  });

  test("tokens with a role, templates, ends of answers", () => {
    const checkpoint = open([
      ...hyper("llama"),
      ["tokenizer.ggml.tokens", texts(["<s>", "</s>", "<|im_end|>", "a"])],
      ["tokenizer.ggml.token_type", i32s([3, 3, 3, 1])],
      ["tokenizer.ggml.bos_token_id", u32(0)],
      ["tokenizer.ggml.eos_token_id", u32(1)],
      ["tokenizer.ggml.padding_token_id", u32(0xffffffff)],
      ["tokenizer.chat_template", text("D")],
      ["tokenizer.chat_template.tool_use", text("T")],
    ]);
    expect(checkpoint.specialTokens).toEqual({ bosToken: "<s>", eosToken: "</s>" });
    expect(checkpoint.eosTokenIds).toEqual([1, 2]);
    expect(checkpoint.chatTemplates).toEqual({ default: "D", tool_use: "T" });
    expect(checkpoint.tokenizer?.kind).toBe("gguf");
  });

  test.each([
    "embedding_length",
    "block_count",
    "attention.head_count",
    "feed_forward_length",
    "context_length",
    "attention.layer_norm_rms_epsilon",
  ])("without %s", (key) => {
    const metadata = hyper("llama").filter(([name]) => name !== `llama.${key}`);
    expect(errorOf(() => open(metadata))).toMatchObject({ code: "IX_MODEL_CONFIG", details: { key: `llama.${key}` } });
  });

  test("contradictions and unknown architectures", () => {
    expect(errorOf(() => open([["general.name", text("x")]]))).toMatchObject({
      code: "IX_MODEL_CONFIG",
      details: { key: "general.architecture" },
    });
    expect(errorOf(() => open(hyper("elk"))).code).toBe("IX_UNSUPPORTED_ARCHITECTURE");
    expect(errorOf(() => open(hyper("llama", [["llama.embedding_length", text("8")]]))).code).toBe("IX_MODEL_CONFIG");
    expect(errorOf(() => open(hyper("llama", [["llama.attention.head_count", i32s([4, 2])]]))).code).toBe(
      "IX_MODEL_CONFIG",
    );
    expect(open(hyper("llama", [["llama.attention.head_count", i32s([4, 4])]])).config.num_attention_heads).toBe(4);
    const tokens: [string, TypedValue] = ["tokenizer.ggml.tokens", texts(["a", "b", "c", "d", "e"])];
    expect(errorOf(() => open([...hyper("llama"), tokens]))).toMatchObject({
      code: "IX_MODEL_CONFIG",
      details: { key: "tokenizer.ggml.tokens" },
    });
    const flat = [tensor("blk.0.ffn_gate_exps.weight", 8, 16)];
    expect(errorOf(() => open(hyper("llama", [["llama.expert_count", u32(3)]]), flat)).code).toBe("IX_MODEL_FORMAT");
  });
});
