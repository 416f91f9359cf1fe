// A packed file (`foveate.engine.packed`): a safetensors file with one JSON text among its metadata.
import type { Tensor } from "./compiled";
import type { TokenizerTree } from "./tokenizer";

export type Task = "translation" | "prefix_translation" | "language" | "classification";
export const STOPS = ["count", "bound", "shrink"] as const; // when a beam ends
export interface SearchTree {
  method?: "greedy" | "beam" | "sample";
  sampling: boolean; beam_size: number; length_penalty: number; length_offset?: number; stop?: (typeof STOPS)[number]; forced_end?: boolean; max_ratio: number; max_extra: number; min_length: number; no_repeat: number;
  whole_characters: boolean; shortlist: boolean; temperature: number; top_k?: number; top_p?: number; min_p?: number; repetition_penalty: number; seed: number;
}
export interface Header {
  version: number;
  task: Task;
  program: number[];
  attentions: string[];
  equations?: Record<string, string>[]; // of the stages of each attention
  tokenizers: Record<string, TokenizerTree>;
  max_length: number;
  search: SearchTree;
  labels?: string[];
  reach?: number | null;
  format?: unknown;
  licence?: string;
  made_of?: Record<string, string>;
}
export interface Packed {
  header: Header;
  weights: Tensor[];
  names: string[]; // of the weights
  shortlist?: readonly [often: Tensor, likely: Tensor];
}
interface Entry { dtype: string; shape: number[]; data_offsets: [number, number] }

const VERSION = 1, KEY = "foveate", LARGEST = 2 ** 26, SHORTLIST = ["shortlist.often", "shortlist.likely"] as const;

/** IEEE 754 numbers of 16 bits. */
export function widened(halves: Uint16Array): Float32Array {
  return Float32Array.from(halves, (bits) => {
    const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

const READERS: Record<string, (bytes: ArrayBuffer) => Tensor["values"]> = {
  F32: (bytes) => new Float32Array(bytes), F16: (bytes) => widened(new Uint16Array(bytes)),
  I8: (bytes) => new Int8Array(bytes), I32: (bytes) => new Int32Array(bytes),
};
const SIZES: Record<string, number> = { F32: 4, F16: 2, I8: 1, I32: 4 };

function tensor(name: string, { dtype, shape, data_offsets: [from, to] }: Entry, data: ArrayBuffer): Tensor {
  const count = shape.reduce((product, size) => product * size, 1);
  if (!(dtype in READERS)) throw new Error(`${name} has numbers of the kind ${dtype}`);
  if (count > LARGEST || shape.length > 4) throw new Error(`${name} has more than ${LARGEST} numbers`);
  if (!(from >= 0 && to <= data.byteLength && to - from === count * SIZES[dtype]!)) throw new Error(`${name} is cut off`);
  const values = READERS[dtype]!(data.slice(from, to));
  if (values instanceof Float32Array && !values.every(Number.isFinite)) throw new Error(`${name} holds numbers that are not finite`);
  return { shape, values };
}

/** Header and weights of a packed file. Throws an error that says what is wrong with it. */
export function read(file: ArrayBuffer): Packed {
  const length = file.byteLength < 8 ? Infinity : Number(new DataView(file).getBigUint64(0, true));
  if (length > Math.min(LARGEST, file.byteLength - 8)) throw new Error("not a packed file, or is cut off");
  const { __metadata__: metadata, ...entries } = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as
    Record<string, Entry> & { __metadata__?: Record<string, string> };
  if (!metadata?.[KEY]) throw new Error("the file does not hold a foveate model");
  const header = JSON.parse(metadata[KEY]) as Header;
  if (header.version !== VERSION) throw new Error(`the file has the layout ${header.version}; this page reads ${VERSION}`);
  const data = file.slice(8 + length);
  const tensors = new Map(Object.keys(entries).sort().map((name) => [name, tensor(name, entries[name]!, data)]));
  const [often, likely] = SHORTLIST.map((name) => tensors.get(name));
  const names = [...tensors.keys()].filter((name) => !name.startsWith("shortlist.") && !name.endsWith(".scale"));
  const weights = names.map((name) => {
    const { shape, values } = tensors.get(name)!, scale = tensors.get(`${name}.scale`)?.values;
    if (values instanceof Float32Array) return { shape, values };
    if (!(scale instanceof Float32Array) || shape.length !== 2 || scale.length !== shape[0]) throw new Error(`${name} has no scale for each of its rows`);
    return { shape, values, scale };
  });
  header.attentions ??= [];
  return { header, weights, names, ...(often && likely && { shortlist: [often, likely] as const }) };
}
