// A growable list of 32-bit integers that is refilled every step and sent as it lies: no allocation once it has grown.

export class IntList {
  length = 0;
  #data: Int32Array;

  constructor(capacity = 256) {
    this.#data = new Int32Array(capacity);
  }

  push(value: number): void {
    if (this.length === this.#data.length) this.#grow(this.length + 1);
    this.#data[this.length++] = value;
  }

  /** Appends source[from, to). */
  append(source: Int32Array, from: number, to: number): void {
    if (this.length + to - from > this.#data.length) this.#grow(this.length + to - from);
    if (to - from === 1) this.#data[this.length] = source[from]!;
    else this.#data.set(source.subarray(from, to), this.length);
    this.length += to - from;
  }

  at(index: number): number {
    return this.#data[index]!;
  }

  /** The filled part, without a copy: valid until the next push. */
  view(): Int32Array {
    return this.#data.subarray(0, this.length);
  }

  /** All of the memory, `length` integers of which are filled. Replaced when the list grows. */
  get storage(): Int32Array {
    return this.#data;
  }

  clear(): void {
    this.length = 0;
  }

  /** Forgets the first `count` integers. */
  drop(count: number): void {
    this.#data.copyWithin(0, count, this.length);
    this.length -= count;
  }

  #grow(capacity: number): void {
    const grown = new Int32Array(Math.max(capacity, this.#data.length * 2));
    grown.set(this.#data);
    this.#data = grown;
  }
}
