// Runs a prompt through the executor and through the reference interpreter, and compares what every step of the plan made.
import type { NativeBinding, NativeDevice } from "../../types/native.d.ts";
import type { CompiledModel } from "../compile/compile.ts";
import type { Checkpoint } from "../compile/model-source.ts";
import { interpretForward } from "../compile/reference.ts";
import { SingleRun } from "./single-run.ts";

export interface StepDifference {
  /** Place among the plan's steps. */
  step: number;
  name: string;
  /** Largest absolute difference of any result, divided by the largest reference value (at least 1). */
  error: number;
}

/**
 * Yields each step that makes activations, in order. The executor runs once per step; the interpreter once.
 * `contextLength`: what `compiled` was made for.
 */
export async function* planDifferences(
  binding: NativeBinding,
  device: NativeDevice,
  checkpoint: Checkpoint,
  compiled: CompiledModel,
  contextLength: number,
  tokens: readonly number[],
): AsyncGenerator<StepDifference> {
  const reference = interpretForward(checkpoint, compiled, tokens);
  const run = await SingleRun.open(binding, device, compiled, contextLength);
  try {
    for (const [step, { name, results }] of reference.entries()) {
      run.reset();
      run.executor.probe(step);
      run.forward(tokens);
      const made = run.executor.probed();
      let error = 0;
      results.forEach(({ data, isInteger }, i) => {
        if (isInteger || !made[i]) return;
        let worst = 0;
        let largest = 1;
        for (let k = 0; k < data.length; k++) {
          worst = Math.max(worst, Math.abs(made[i].data[k]! - data[k]!));
          largest = Math.max(largest, Math.abs(data[k]!));
        }
        error = Math.max(error, Number.isNaN(worst) ? Number.POSITIVE_INFINITY : worst / largest);
      });
      if (made.length > 0) yield { step, name, error };
    }
  } finally {
    run.close();
  }
}
