// A plan file's content as text, one line per thing, stable.
import { parseSignature } from "../ir/signature.ts";
import type { Plan, PlanInput, PlanOperand } from "./decode.ts";

function inputText({ name, type, dims, elements, offset }: PlanInput): string {
  return `${name}: ${type}[${dims}] at ${offset}, ${elements} elements`;
}

export function printPlan(plan: Plan): string {
  const { bounds, arenaBytes, inputBytes, kernels, weights, constants, inputs, states, groups, programs, outputs } =
    plan;
  const operandText = ({ space, index, type, dims, offset, stride }: PlanOperand): string => {
    switch (space) {
      case "omitted":
        return "-";
      case "arena":
        return `${type}[${dims}]@${offset}/${stride}`;
      case "input":
        return `$${inputs[index]!.name}`;
      case "state":
        return `&${states[index]!.name}`;
      case "weight":
        return `@${weights[index]!.name}`;
      case "constant":
        return `#${index}`;
      case "cache":
        return `&cache.${index}+${offset}`;
    }
  };
  const lines = [
    `bounds T=${bounds[0]} R=${bounds[1]} S=${bounds[2]}, arena ${arenaBytes}, inputs ${inputBytes} bytes`,
  ];
  for (const input of inputs) lines.push(`input ${inputText(input)}`);
  for (const state of states) lines.push(`state ${inputText(state)}`);
  groups.forEach(({ kind, window, layers, kvHeads, headDim, blockTokens, blockBytes, type }, i) => {
    lines.push(
      `cache ${i}: ${kind}(${window}) layers=${layers} ${type}[${blockTokens},${kvHeads},${headDim}] ${blockBytes} bytes/block`,
    );
  });
  for (const { name, layout, dims, sources } of weights) {
    const parts = sources.map(({ tensor, rowStart, rowCount, ropeHeads, transposed, addOne, scale }) => {
      const marks = [transposed && "^T", ropeHeads > 0 && `/${ropeHeads}`, scale !== 1 && `*${scale}`, addOne && "+1"];
      return `${tensor || "0"}[${rowStart}:${rowStart + rowCount}]${marks.filter(Boolean).join("")}`;
    });
    lines.push(`weight ${name}: ${layout}[${dims}] = ${parts.join(" + ")}`);
  }
  constants.forEach(({ name, dims }, i) => {
    lines.push(`constant #${i} ${name}: f32[${dims}]`);
  });
  for (const { name, steps } of programs) {
    lines.push(`${name}:`);
    for (const step of steps) {
      const { signature, tags, backend } = kernels[step.kernel]!;
      const { op, operands, scalars } = parseSignature(signature);
      const texts = step.operands.map(operandText);
      const values = step.scalars.map((value, i) => `${scalars[i]!.name}=${value}`);
      const results = texts.slice(operands.length).join(", ");
      const marks = [backend, tags].filter(Boolean).map((mark) => ` [${mark}]`);
      lines.push(
        `  ${op}(${[...texts.slice(0, operands.length), ...values].join(", ")}) -> ${results || "cache"}${marks.join("")} ; ${step.name}`,
      );
    }
  }
  for (const { name, program, operand } of outputs)
    lines.push(`output ${name} after ${program}: ${operandText(operand)}`);
  return `${lines.join("\n")}\n`;
}
