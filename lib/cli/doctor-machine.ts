// The doctor's look at the machine: Node, processor, cores and memory, with the limits of containers.
import { existsSync, readFileSync } from "node:fs";
import os from "node:os";
import type { Finding } from "./doctor.ts";
import { formatBytes } from "./terminal.ts";

const oldestNode = [20, 9] as const;

export function checkNode(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const recent = major > oldestNode[0] || (major === oldestNode[0] && minor >= oldestNode[1]);
  const found = `${process.version}, Node-API ${process.versions.napi}, ${process.platform}-${process.arch}`;
  if (!recent) return { name: "Node", status: "bad", found, mend: `install Node ${oldestNode.join(".")} or newer` };
  return { name: "Node", status: "ok", found };
}

/** The levels of csrc/cpu, best first, with the flags of /proc/cpuinfo that each wants. */
const levels: [name: string, flags: string[]][] = [
  ["AVX-512 with VNNI and BF16", ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"]],
  ["AVX2 with FMA", ["avx2", "fma", "f16c"]],
];

export function checkProcessor(): Finding {
  const model = os.cpus()[0]?.model.trim() ?? "unknown";
  if (process.arch !== "x64" || !existsSync("/proc/cpuinfo")) {
    return {
      name: "Processor",
      status: "note",
      found: `${model} (${process.arch})`,
      mend: "kernels are portable here; the fast ones are for x86-64 on Linux",
    };
  }
  const flags = new Set(/^flags\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1]?.trim().split(" "));
  const level = levels.find(([, wanted]) => wanted.every((flag) => flags.has(flag)));
  if (level) return { name: "Processor", status: "ok", found: `${model}: ${level[0]}` };
  return {
    name: "Processor",
    status: "note",
    found: `${model}: no AVX2`,
    mend: "scalar kernels work, but slowly; a processor with AVX2 is many times faster",
  };
}

function firstLine(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").split("\n")[0];
  } catch {
    return undefined; // no such limit on this system
  }
}

/** CPUs' worth of time that the container may use, or undefined without a limit. */
function cpuQuota(): number | undefined {
  const [v2Quota, v2Period] = firstLine("/sys/fs/cgroup/cpu.max")?.split(" ") ?? [];
  if (v2Quota && v2Period && v2Quota !== "max") return Number(v2Quota) / Number(v2Period);
  const quota = Number(firstLine("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") ?? -1);
  const period = Number(firstLine("/sys/fs/cgroup/cpu/cpu.cfs_period_us") ?? 0);
  return quota > 0 && period > 0 ? quota / period : undefined;
}

export function checkCores(): Finding {
  const total = os.cpus().length;
  const allowed = os.availableParallelism();
  const quota = cpuQuota();
  const limits = [
    allowed < total && `${allowed} by CPU affinity`,
    quota !== undefined && `${quota.toFixed(1)} by the container's quota`,
  ];
  const found = [`${total} logical`, ...limits.filter(Boolean)].join(", ");
  if (quota !== undefined && quota < 1) {
    return { name: "Cores", status: "note", found, mend: "less than one core: raise the container's CPU limit" };
  }
  return { name: "Cores", status: "ok", found };
}

const leastBytes = 256 * 2 ** 20;

export function checkMemory(): Finding {
  const limit = process.constrainedMemory() ?? 0;
  const total = os.totalmem();
  const limited = limit > 0 && limit < total;
  const free = Math.min(os.freemem(), limited ? limit - process.memoryUsage.rss() : Number.POSITIVE_INFINITY);
  const found = `${formatBytes(free)} free of ${formatBytes(limited ? limit : total)}${limited ? " (container's limit)" : ""}`;
  if (free < leastBytes)
    return {
      name: "Memory",
      status: "note",
      found,
      mend: "close other programs or raise the container's memory limit",
    };
  return { name: "Memory", status: "ok", found };
}
