// Arrays as they come (base64, or bytes at an address) and as they are read: one value at a time.
import { palette } from "./palette";
import type { Numbers } from "./types";

/** An array as it came: `raw` times `unit` are its values, NaN where it is blank. */
export interface Values {
  readonly shape: readonly number[];
  readonly raw: Uint16Array | Float32Array;
  readonly unit: number;
}

const builtIn = (Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  if (builtIn) return builtIn.call(Uint8Array, base64); // several times as fast
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
    ? { shape, raw: new Uint16Array(bytes.buffer, bytes.byteOffset, count), unit: 1 / palette.steps }
    : { shape, raw: new Float32Array(bytes.buffer, bytes.byteOffset, count), unit: 1 };
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

/** Values as numbers: `count` from a place on, or the mean of several such runs one after the other. */
export function floats({ raw, unit }: Values, from = 0, count = raw.length, runs = 1): Float64Array {
  const made = new Float64Array(count);
  for (let run = 0; run < runs; run++) for (let i = 0, k = from + run * count; i < count; i++, k++) made[i]! += raw[k]!;
  const parts = Math.round(1 / unit) * runs; // one division: as near as a number can be
  for (let i = 0; i < count; i++) made[i]! /= parts;
  return made;
}
