// Which devices may run a model, and why the GPU is not among them. Not here: whether a device has kernels for it (prepare.ts tries).
import { availableParallelism } from "node:os";
import type { NativeBinding, NativeDeviceInfo } from "../../types/native.d.ts";
import { InferxError, toInferxError } from "../base/errors.ts";
import { checkChoice, checkInt } from "../base/options.ts";
import { cudaLibrary } from "../native/binding.ts";

export interface DeviceChoice {
  info: NativeDeviceInfo;
  library: string;
  threads: number;
}

/**
 * The devices that may run a model, best first; `note`: why the best kind is not among them, where `auto` chooses.
 * @throws IX_INVALID_ARGUMENT; IX_NO_DEVICE with the reason; IX_DEVICE for a GPU that met an error and is still in use
 */
export function deviceChoices(
  binding: NativeBinding,
  options: { device?: "auto" | "cpu" | "cuda" | undefined; threads?: number | undefined },
): { choices: DeviceChoice[]; note: string | undefined } {
  const wanted = checkChoice("device", options.device ?? "auto", ["auto", "cpu", "cuda"]);
  const threads = options.threads === undefined ? 0 : checkInt("threads", options.threads, 1, 1024);
  if (threads > 4 * availableParallelism()) {
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      `threads ${threads} is far above the ${availableParallelism()} processors of this machine`,
      { option: "threads" },
    );
  }
  const library = wanted === "cpu" ? "" : cudaLibrary(); // looking at a GPU takes some of its memory
  const { usable, unusable } = binding.devices(library);
  const kinds = wanted === "auto" ? (["cuda", "cpu"] as const) : [wanted];
  const found = kinds.flatMap((kind) => usable.find((device) => device.kind === kind) ?? []);
  const missing = unusable.find((device) => device.kind === kinds[0]);
  if (missing && missing.code !== "IX_NO_DEVICE")
    throw toInferxError(Object.assign(new Error(missing.reason), missing));
  if (found.length === 0) {
    const reason = missing?.reason ?? "no such device was found";
    throw new InferxError("IX_NO_DEVICE", `the ${wanted} device cannot be used: ${reason}`, { device: wanted, reason });
  }
  return { choices: found.map((info) => ({ info, library, threads })), note: missing?.reason };
}
