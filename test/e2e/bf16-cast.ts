// Writes a Hugging Face folder again with its f32 tensors rounded to bf16 (nearest, ties to even). For tests only.
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

function round(bits: number): number {
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Returns `target`, which it makes. The checkpoint is one model.safetensors of f32 and bf16 tensors without NaN. */
export function castToBf16(source: string, target: string): string {
  cpSync(source, target, { recursive: true });
  const file = readFileSync(join(source, "model.safetensors"));
  const headerBytes = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString("utf8", 8, 8 + headerBytes)) as Record<string, Entry>;
  const parts: Buffer[] = [];
  let offset = 0;
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [start, end] = entry.data_offsets;
    let data = file.subarray(8 + headerBytes + start, 8 + headerBytes + end);
    if (entry.dtype === "F32") {
      const rounded = Buffer.alloc(data.length / 2);
      for (let i = 0; i < rounded.length; i += 2) rounded.writeUInt16LE(round(data.readUInt32LE(2 * i)), i);
      data = rounded;
    } else if (entry.dtype !== "BF16") throw new Error(`${name} is ${entry.dtype}`);
    header[name] = { dtype: "BF16", shape: entry.shape, data_offsets: [offset, offset + data.length] };
    parts.push(data);
    offset += data.length;
  }
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(target, "model.safetensors"), Buffer.concat([prefix, text, ...parts]));
  return target;
}
