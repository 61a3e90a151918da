// A model folder, a file or random weights on the executor, without engine and scheduler: what golden and conformance tests look at.
import { compileModel } from "../../lib/compile/compile.ts";
import { openModelSource, type RandomModel } from "../../lib/compile/model-source.ts";
import { SingleRun } from "../../lib/engine/single-run.ts";
import { native } from "../../lib/native/binding.ts";
import { deviceKind, openTestDevice } from "../device.ts";

export interface RunOptions {
  numerics?: "f32" | "fast";
  cacheDtype?: "f32" | "bf16";
  maxStepTokens?: number;
  contextLength?: number;
  checked?: boolean;
}

export type NativeRun = SingleRun;

export const NativeRun = {
  open(from: string | RandomModel, options: RunOptions = {}): Promise<SingleRun> {
    const { numerics = "f32", cacheDtype = "f32", maxStepTokens = 256, checked = true } = options;
    const { contextLength = 1024 } = options;
    const { checkpoint } = openModelSource(from);
    const binding = native();
    const device = openTestDevice(binding);
    const compiled = compileModel(checkpoint, {
      kernels: device.kernels(),
      numerics,
      cacheDtype,
      maxStepTokens,
      maxSequences: 1,
      maxLogitRows: maxStepTokens,
      contextLength,
      tokensPerBlock: deviceKind === "cuda" ? 64 : 32,
      architectures: [],
      panelBytes: (layout, columns) => device.panelBytes(layout, columns),
      panelRows: device.layouts()[0]!.panelRows,
    });
    return SingleRun.open(binding, device, compiled, contextLength, { checked });
  },
};
