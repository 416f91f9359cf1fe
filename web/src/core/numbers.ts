// Arrays as they come (base64, or bytes at an address) and as they are read: one value at a time.
import { palette } from "./palette";
import type { Numbers } from "./types";

/** An array of one codec; `at` gives the value of a cell, NaN where it is blank; `add` adds a run of them. */
export interface Values {
  readonly shape: readonly number[];
  readonly length: number;
  at(index: number): number;
  add(to: Float64Array, from: number): void;
}

export class Weights implements Values {
  readonly length: number;
  constructor(readonly shape: readonly number[], readonly steps: Uint16Array) {
    this.length = steps.length;
  }
  at(index: number): number {
    return this.steps[index]! / palette.steps;
  }
  add(to: Float64Array, from: number): void {
    for (let i = 0; i < to.length; i++) to[i]! += this.steps[from + i]! / palette.steps;
  }
}

export class Exact implements Values {
  readonly length: number;
  constructor(readonly shape: readonly number[], readonly values: Float32Array) {
    this.length = values.length;
  }
  at(index: number): number {
    return this.values[index]!;
  }
  add(to: Float64Array, from: number): void {
    for (let i = 0; i < to.length; i++) to[i]! += this.values[from + i]!;
  }
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

export function base64Of(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

/** Little-endian bytes as the array they are. Throws where their count is not that of the shape. */
export function read(shape: readonly number[], codec: Numbers["codec"], bytes: Uint8Array<ArrayBuffer>): Values {
  const width = codec === "u16" ? 2 : 4, count = shape.reduce((a, b) => a * b, 1);
  if (bytes.length !== count * width)
    throw new Error(`${bytes.length} bytes for an array of ${shape.join(" × ")} (${codec}): ${count * width} were due`);
  return codec === "u16"
    ? new Weights(shape, new Uint16Array(bytes.buffer, bytes.byteOffset, count))
    : new Exact(shape, new Float32Array(bytes.buffer, bytes.byteOffset, count));
}

const fetched = new Map<string, Promise<Values>>();
const given = new Map<string, Uint8Array<ArrayBuffer>>();

/** Bytes that came by another way, under the address that drawings have for them. */
export const provide = (url: string, bytes: Uint8Array<ArrayBuffer>): unknown => given.set(url, bytes);

/** The values, at once where the bytes are here, else when they have come. */
export function decode(numbers: Numbers): Values | Promise<Values> {
  const here = given.get(numbers.url) ?? (numbers.url ? undefined : bytesOf(numbers.data));
  if (here) return read(numbers.shape, numbers.codec, here);
  const known = fetched.get(numbers.url);
  if (known) return known;
  const coming = fetch(numbers.url).then(async (answer) => {
    if (!answer.ok) throw new Error(`${numbers.url}: ${answer.status} ${answer.statusText}`);
    return read(numbers.shape, numbers.codec, new Uint8Array(await answer.arrayBuffer()));
  });
  fetched.set(numbers.url, coming);
  if (fetched.size > 64) fetched.delete(fetched.keys().next().value!); // the oldest
  coming.catch(() => fetched.delete(numbers.url)); // another try may do better
  return coming;
}

/** The same numbers with their bytes inside: what a page of its own needs. */
export async function inlined(numbers: Numbers): Promise<Numbers> {
  if (!numbers.url) return numbers;
  const bytes = given.get(numbers.url) ?? new Uint8Array(await (await fetch(numbers.url)).arrayBuffer());
  return { ...numbers, url: "", data: base64Of(bytes) };
}

/** Values of a flat array, as Python has them. */
export function floats(values: Values, from = 0, count = values.length): Float64Array {
  const made = new Float64Array(count);
  values.add(made, from);
  return made;
}
