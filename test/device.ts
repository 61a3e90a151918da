// The device that kernel and golden tests run on: the CPU, or what INFERX_TEST_DEVICE names.
import { cudaLibrary, native } from "../lib/native/binding.ts";
import type { NativeBinding, NativeDevice } from "../types/native.d.ts";

export const deviceKind: "cpu" | "cuda" = process.env.INFERX_TEST_DEVICE === "cuda" ? "cuda" : "cpu";

export function openTestDevice(binding: NativeBinding): NativeDevice {
  return new binding.Device(deviceKind, 0, 2, deviceKind === "cuda" ? cudaLibrary() : "");
}

/** Undefined where the addon is not built: tests of it say then that they are skipped. */
export function addon(): NativeBinding | undefined {
  try {
    return native();
  } catch {
    return undefined;
  }
}
