// Tenants share the machine by tokens computed: whose tenant got least goes first (virtual token counters, Sheng et al. 2024,
// "Fairness in Serving Large Language Models"). A newcomer starts at the least counter present, so idling earns no credit.
import type { Sequence } from "../sequence.ts";
import { lastOf, type Policy } from "./policy.ts";

function order(a: Sequence, b: Sequence): number {
  return a.tenant.served - b.tenant.served || a.arrival - b.arrival;
}

export const fair: Policy = {
  name: "fair",
  order,
  victim: (running) => lastOf(running, order),
};
