// The policies by name; a new one is a file beside this one and a line here.
import { deadline } from "./deadline.ts";
import { fair } from "./fair.ts";
import { fcfs } from "./fcfs.ts";
import { priority } from "./priority.ts";

export { type Policy, sortNearlySorted } from "./policy.ts";
export const policies = { fcfs, priority, fair, deadline } as const;
export type PolicyName = keyof typeof policies;
