// First come, first served: the oldest request runs to its end whatever comes later, so nobody starves.
import type { Sequence } from "../sequence.ts";
import { lastOf, type Policy } from "./policy.ts";

function order(a: Sequence, b: Sequence): number {
  return a.arrival - b.arrival;
}

export const fcfs: Policy = {
  name: "fcfs",
  order,
  victim: (running) => lastOf(running, order),
};
