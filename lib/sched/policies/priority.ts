// Higher `priority` first, the older one among equals. Low priorities wait as long as higher ones keep coming: that is the point.
import type { Sequence } from "../sequence.ts";
import { lastOf, type Policy } from "./policy.ts";

function order(a: Sequence, b: Sequence): number {
  return b.priority - a.priority || a.arrival - b.arrival;
}

export const priority: Policy = {
  name: "priority",
  order,
  victim: (running) => lastOf(running, order),
  overtakes: (waiting, running) => waiting.priority > running.priority,
};
