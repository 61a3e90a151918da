// Earliest deadline first; requests without one come after all that have one. Missed deadlines are the caller's to abort.
import type { Sequence } from "../sequence.ts";
import { lastOf, type Policy } from "./policy.ts";

function order(a: Sequence, b: Sequence): number {
  if (a.deadlineMs !== b.deadlineMs) return a.deadlineMs < b.deadlineMs ? -1 : 1;
  return a.arrival - b.arrival;
}

export const deadline: Policy = {
  name: "deadline",
  order,
  victim: (running) => lastOf(running, order),
};
