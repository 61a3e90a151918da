// How many tokens were computed for each tenant (virtual counters), for policies that share the machine fairly.
// Not here: limits and bills; a tenant is forgotten with its last sequence.

export interface Tenant {
  readonly name: string;
  /** Tokens computed; a newcomer starts at the least of those present, so that idling earns no credit. */
  served: number;
  numSequences: number;
}

export class Tenants {
  readonly #present = new Map<string, Tenant>();

  join(name: string): Tenant {
    let tenant = this.#present.get(name);
    if (tenant === undefined) {
      let least = Number.POSITIVE_INFINITY;
      for (const { served } of this.#present.values()) least = Math.min(least, served);
      tenant = { name, served: Number.isFinite(least) ? least : 0, numSequences: 0 };
      this.#present.set(name, tenant);
    }
    tenant.numSequences++;
    return tenant;
  }

  leave(tenant: Tenant): void {
    if (--tenant.numSequences === 0) this.#present.delete(tenant.name);
  }
}
