// The text form of an op's or a kernel's interface (grammar in docs/plan.md) and its parser. Nothing here knows any op.
import { InferxError } from "../base/errors.ts";

export interface Operand {
  readonly name: string;
  readonly optional: boolean;
  /** "f32", "W" (any weight layout), "kv_C" (any cache type), "p32_q8_0", ... */
  readonly type: string;
  /** Names or literal numbers; empty for "[...]". */
  readonly dims: readonly string[];
}

export interface Scalar {
  readonly name: string;
  readonly type: "f32" | "i32";
}

/** A result that is an operand changed in place has its name here. */
export interface Result {
  readonly type: string;
  readonly dims: readonly string[];
  readonly inPlaceOf?: string;
}

export interface Signature {
  readonly op: string;
  readonly operands: readonly Operand[];
  readonly scalars: readonly Scalar[];
  readonly results: readonly Result[];
}

const headPattern = /^([a-z][a-z0-9_]*)\((.*)\)\s*->\s*(.+)$/s;
const parameterPattern = /^([a-z_][A-Za-z0-9_]*)(\?)?\s*:\s*([A-Za-z][A-Za-z0-9_]*)(\[([^[\]]*)\])?$/;
const resultPattern = /^([A-Za-z][A-Za-z0-9_]*)(\[([^[\]]*)\])?$/;

/** Splits at commas outside of brackets. */
function parts(text: string): string[] {
  return text.trim() === "" ? [] : text.split(/,(?![^[]*\])/).map((part) => part.trim());
}

function dimsOf(text: string): string[] {
  return text === "…" || text === "..." ? [] : text.split(",").map((dim) => dim.trim());
}

/**
 * Parses "op(operand: type[dims], optional?: type[dims], scalar: f32) -> type[dims], operand".
 * @throws IX_NO_KERNEL with the text when it does not follow the grammar.
 */
export function parseSignature(text: string): Signature {
  const refuse = (why: string) => new InferxError("IX_NO_KERNEL", `signature "${text}": ${why}`);
  const head = headPattern.exec(text.trim());
  if (!head) throw refuse("expected op(parameters) -> results");
  const operands: Operand[] = [];
  const scalars: Scalar[] = [];
  for (const part of parts(head[2]!)) {
    const match = parameterPattern.exec(part);
    if (!match) throw refuse(`cannot read parameter "${part}"`);
    const [, name, optional, type, brackets, dims] = match as unknown as [
      string,
      string,
      string?,
      string?,
      string?,
      string?,
    ];
    if (brackets !== undefined) {
      if (scalars.length > 0) throw refuse(`operand ${name} comes after a scalar`);
      operands.push({ name, optional: optional !== undefined, type: type!, dims: dimsOf(dims!) });
    } else if (type === "f32" || type === "i32") {
      scalars.push({ name, type });
    } else {
      throw refuse(`scalar ${name} must be f32 or i32`);
    }
  }
  const results = parts(head[3]!).map((part): Result => {
    const match = resultPattern.exec(part);
    if (!match) throw refuse(`cannot read result "${part}"`);
    if (match[2] !== undefined) return { type: match[1]!, dims: dimsOf(match[3]!) };
    const operand = operands.find((o) => o.name === match[1]);
    if (!operand) throw refuse(`result "${part}" is neither type[dims] nor an operand`);
    return { type: operand.type, dims: operand.dims, inPlaceOf: operand.name };
  });
  return { op: head[1]!, operands, scalars, results };
}
