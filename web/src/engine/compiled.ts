// The engine in C as WebAssembly: models of a program and tensors, and searches with them.
// The structs are those of model.h, search.h and layers.h with pointers of 4 bytes.

export type Numbers = Float32Array | Float64Array | Int32Array | Int8Array | Uint8Array;
export interface Tensor {
  shape: readonly number[];
  values: Float32Array | Int8Array | Int32Array;
  scale?: Float32Array; // of the rows of int8
}
export interface Sampling {
  temperature: number;
  topK: number; // 0: all
  topP: number;
  minP: number;
  repetitionPenalty: number;
  seed: number;
}
/** How outputs are searched for; a beam of one without a length penalty is greedy search. */
export interface Settings {
  start: number;
  end: number;
  width: number;
  best: number;
  lengthPenalty: number;
  lengthOffset: number;
  stop: number; // when a beam ends: a place in STOPS
  minLength: number;
  noRepeat: number;
  reach: number; // tokens that a language model reads at once, 0: any number
  never: readonly number[];
  sampling?: Sampling;
  characters?: Uint8Array; // the states of UTF-8 behind each token (8, V)
  certain?: number; // a given token with at least this id has p = 1, such as a language
  forcedEnd?: boolean; // whether an output that is cut off counts as ended, with p = 1
}
export interface Output { ids: number[]; ended: boolean; logP: number; score: number }
export interface Partial { ids: number[]; logP: number }
/** What a source is searched with; outputs begin with a prefix, or hold the ids of a vocabulary. */
export interface Source { ids: readonly number[]; limit: number; prefix?: readonly number[]; vocabulary?: readonly number[] }
/** The weights of an attention (heads, rows, columns). */
export interface AttentionMap { name: string; heads: number; rows: number; columns: number; values: Float32Array }

export const STAGES = ["query", "rotated query", "key", "rotated key", "value", "score", "bias", "weights", "context", "output"] as const;
export type Stage = (typeof STAGES)[number];
const REFUSALS: Record<number, string> = {
  0: "an id that the model does not know", [-1]: "no room: there is too little memory", [-2]: "scores that are not finite",
  [-3]: "more tokens than the model has positions", [-4]: "a model of another kind, or with other labels",
};
const TENSOR = 24, SETTINGS = 104, TAP = 32, POSITIONS = 1 << 20, ROOM = 16;
const WITH_SIMD = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11);

function check(answer: number, begin: string): void {
  if (answer <= 0) throw new Error(begin + REFUSALS[answer]);
}

/** Whether WebAssembly has SIMD here: a module that uses it is valid. */
export const hasSIMD = () => WebAssembly.validate(WITH_SIMD);

interface Functions {
  memory: WebAssembly.Memory;
  malloc(bytes: number): number;
  free(address: number): void;
  read_model(program: number, count: number, tensors: number, tensorCount: number): number;
  free_model(model: number): void;
  new_search(model: number, settings: number): number;
  free_search(search: number): void;
  add_source(search: number, number: number, ids: number, count: number, prefix: number, given: number, limit: number, vocabulary: number, allowed: number): number;
  advance(search: number, positions: number): number;
  results(search: number, to: number, room: bigint): bigint;
  hypotheses(search: number, to: number, room: bigint): bigint;
  force(search: number, ids: number, count: number, target: number, length: number, logP: number): number;
  classify(search: number, ids: number, count: number, scores: number, labels: number): number;
  clear(search: number): void;
  observe(search: number, taps: number, count: number): void;
  keep_all(search: number, to: number): number;
  instruction_set(): number;
  _initialize(): void;
}

export class Engine {
  private constructor(readonly functions: Functions) {
    functions._initialize();
  }

  static async of(code: BufferSource): Promise<Engine> {
    const { instance } = await WebAssembly.instantiate(code);
    return new Engine(instance.exports as unknown as Functions);
  }

  /** The address of zeros. */
  room(bytes: number): number {
    const address = this.functions.malloc(bytes + 8);
    if (!address) throw new Error(REFUSALS[-1]);
    new Uint8Array(this.functions.memory.buffer, address, bytes + 8).fill(0);
    return address;
  }

  /** The address of a copy. */
  put(values: Numbers): number {
    const address = this.room(values.byteLength);
    new Uint8Array(this.functions.memory.buffer, address).set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return address;
  }

  floats(address: number, count: number): Float32Array {
    return new Float32Array(this.functions.memory.buffer, address, count).slice();
  }

  view(address: number): DataView {
    return new DataView(this.functions.memory.buffer, address);
  }

  /** Call with the addresses of copies, which are freed then. */
  lend<Result>(arrays: readonly Numbers[], call: (...addresses: number[]) => Result): Result {
    const addresses = arrays.map((array) => this.put(array));
    try {
      return call(...addresses);
    } finally {
      addresses.forEach((address) => this.functions.free(address));
    }
  }
}

export class CompiledModel {
  readonly address: number;
  readonly #weights: number[] = [];

  constructor(readonly engine: Engine, numbers: readonly number[], tensors: readonly Tensor[]) {
    const { functions } = engine, structs = engine.room(tensors.length * TENSOR);
    const addresses = tensors.map(({ shape, values, scale }, n) => {
      const rows = shape.length > 1 ? Math.max(1, shape[0]!) : 1, both = [engine.put(values), scale ? engine.put(scale) : 0];
      const fields = [scale ? 1 : 0, rows, values.length / rows, 0, ...both];
      fields.forEach((field, k) => engine.view(structs + n * TENSOR).setInt32(4 * k, field, true));
      return both;
    });
    this.address = engine.lend([Float64Array.from(numbers)], (program) => functions.read_model(program, numbers.length, structs, tensors.length));
    const isCopied = (n: number) => !engine.view(structs + n * TENSOR).getInt32(12, true); // the model refers to the others
    addresses.forEach((both, n) => (isCopied(n) ? both.forEach((address) => functions.free(address)) : this.#weights.push(...both)));
    functions.free(structs);
    if (!this.address) throw new Error("the program does not fit the engine");
  }

  free(): void {
    const { functions } = this.engine;
    functions.free_model(this.address);
    this.#weights.forEach((address) => functions.free(address));
  }
}

/** A search with a model. */
export class CompiledSearch {
  readonly #engine: Engine;
  readonly #address: number;
  readonly #tables: number[];

  constructor(model: CompiledModel, { sampling, ...own }: Settings) {
    const engine = this.#engine = model.engine;
    const never = engine.put(Int32Array.from(own.never)), after = own.characters ? engine.put(own.characters) : 0;
    this.#tables = [never, after];
    const ruled = own.minLength || own.noRepeat ? 1 : 0;
    const whole = [sampling ? 1 : 0, own.stop, own.width, own.start, own.end, own.best, ROOM, own.reach, ruled, own.minLength, own.noRepeat, sampling?.topK ?? 0];
    const real = [own.lengthPenalty, own.lengthOffset, sampling?.temperature ?? 1, sampling?.topP ?? 1, sampling?.minP ?? 0, sampling?.repetitionPenalty ?? 1];
    const settings = new Uint8Array(SETTINGS), fields = new DataView(settings.buffer);
    whole.forEach((field, k) => fields.setInt32(4 * k, field, true));
    real.forEach((field, k) => fields.setFloat32(48 + 4 * k, field, true));
    fields.setBigUint64(72, BigInt(sampling?.seed ?? 0), true);
    [never, own.never.length, after, 0, own.certain ?? 0, own.forcedEnd ? 1 : 0].forEach((field, k) => fields.setInt32(80 + 4 * k, field, true));
    this.#address = engine.lend([settings], (address) => engine.functions.new_search(model.address, address));
    if (!this.#address) throw new Error("a setting is out of bounds");
  }

  free(): void {
    this.#engine.functions.free_search(this.#address);
    this.#tables.forEach((address) => this.#engine.functions.free(address));
  }

  /** The outputs of each source, best first. After each step come, where wanted, the partial outputs of all that are left. */
  *outputs(sources: readonly Source[], everyStep = false): Generator<Map<number, Partial[]>, Output[][]> {
    const { functions } = this.#engine, outputs: Output[][] = sources.map(() => []);
    functions.clear(this.#address);
    sources.forEach(({ ids, limit, prefix = [], vocabulary = [] }, number) => {
      const arrays = [ids, prefix, vocabulary].map((array) => Int32Array.from(array));
      const added = this.#engine.lend(arrays, (read, given, allowed) =>
        functions.add_source(this.#address, number, read!, ids.length, given!, prefix.length, limit, allowed!, vocabulary.length));
      check(added, `source ${number + 1} has `);
    });
    for (let left = 1; left;) {
      left = functions.advance(this.#address, everyStep ? 1 : POSITIONS);
      check(left || 1, "the search has ");
      this.#readResults(outputs);
      if (everyStep && left) yield this.#partial();
    }
    return outputs;
  }

  #taken(function_: "results" | "hypotheses"): [Int32Array, Float32Array] {
    const { functions } = this.#engine, count = Number(functions[function_](this.#address, 0, 0n));
    const address = this.#engine.room(4 * count);
    functions[function_](this.#address, address, BigInt(count));
    const numbers = new Int32Array(functions.memory.buffer, address, count).slice();
    functions.free(address);
    return [numbers, new Float32Array(numbers.buffer)];
  }

  #readResults(outputs: Output[][]): void {
    const [taken, real] = this.#taken("results");
    for (let at = 0; at < taken.length;) {
      const number = taken[at]!, count = taken[at + 1]!;
      at += 2;
      for (let k = 0; k < count; k++) {
        const length = taken[at]!, ids = [...taken.subarray(at + 4, at + 4 + length)];
        outputs[number]!.push({ ids, ended: taken[at + 1] === 1, logP: real[at + 2]!, score: real[at + 3]! });
        at += 4 + length;
      }
    }
  }

  #partial(): Map<number, Partial[]> {
    const [taken, real] = this.#taken("hypotheses"), partial = new Map<number, Partial[]>();
    for (let at = 0; at < taken.length;) {
      const number = taken[at]!, count = taken[at + 1]!, size = taken[at + 2]! + 1;
      at += 3;
      partial.set(number, Array.from({ length: count }, (_, k) => at + k * size)
        .map((from) => ({ logP: real[from]!, ids: [...taken.subarray(from + 1, from + size)] })));
      at += count * size;
    }
    return partial;
  }

  /** Log p of all tokens at each position of a given output, its end included. */
  distributions(source: readonly number[], target: readonly number[]): Float32Array[] {
    const engine = this.#engine, { functions } = engine, size = functions.keep_all(this.#address, 0);
    const address = engine.room(4 * size * target.length);
    try {
      functions.keep_all(this.#address, address);
      this.logProbabilities(source, target);
      return target.map((_, t) => engine.floats(address + 4 * t * size, size));
    } finally {
      functions.keep_all(this.#address, 0);
      functions.free(address);
    }
  }

  /** Log p of each token of a given output, its end included. */
  logProbabilities(source: readonly number[], target: readonly number[]): Float32Array {
    const engine = this.#engine, logP = new Float32Array(target.length);
    return engine.lend([Int32Array.from(source), Int32Array.from(target), logP], (read, written, to) => {
      check(engine.functions.force(this.#address, read!, source.length, written!, target.length, to!), "the pair has ");
      return engine.floats(to!, target.length);
    });
  }

  /** The scores of all labels for the ids of a text. */
  labelScores(text: readonly number[], labels: number): Float32Array {
    const engine = this.#engine;
    return engine.lend([Int32Array.from(text), new Float32Array(labels)], (read, to) => {
      check(engine.functions.classify(this.#address, read!, text.length, to!, labels), "the text has ");
      return engine.floats(to!, labels);
    });
  }

  /** Stages of attentions, by their numbers in the program, as `compute` calls this search; each is flat. */
  stages(taps: readonly (readonly [number, Stage])[], compute: () => unknown): Float32Array[] {
    const engine = this.#engine, { functions } = engine, structs = engine.room(taps.length * TAP), addresses: number[] = [];
    const tap = (n: number) => engine.view(structs + n * TAP);
    taps.forEach(([attention, stage], n) => {
      tap(n).setInt32(0, attention, true);
      tap(n).setInt32(4, STAGES.indexOf(stage), true);
    });
    try {
      functions.observe(this.#address, structs, taps.length);
      compute(); // how many numbers there are
      const sizes = taps.map((_, n) => Number(tap(n).getBigInt64(24, true)));
      sizes.forEach((size, n) => {
        addresses.push(engine.room(4 * size));
        tap(n).setInt32(8, addresses[n]!, true);
        tap(n).setBigInt64(16, BigInt(size), true);
        tap(n).setBigInt64(24, 0n, true);
      });
      compute();
      return sizes.map((size, n) => engine.floats(addresses[n]!, size));
    } finally {
      functions.observe(this.#address, 0, 0);
      [structs, ...addresses].forEach((address) => functions.free(address));
    }
  }

  /** The maps of attentions, by their order in the program: an encoder reads `read` positions, a decoder `written`. */
  maps(names: readonly string[], compute: () => unknown, read: number, written: number): AttentionMap[] {
    const weights = this.stages(names.map((_, n) => [n, "weights"] as const), compute);
    return names.map((name, n) => spreadOf(name, weights[n]!, read, written));
  }
}

/** Numbers of all pairs of an attention, query by query and in it head by head, as (heads, rows, columns); those of keys that are hidden are `hidden`. */
export function spreadOf(name: string, flat: Float32Array, read: number, written: number, hidden = 0): AttentionMap {
  const isCausal = name.startsWith("decoder") && !name.endsWith("cross_attention");
  const rows = name.startsWith("encoder") ? read : name.startsWith("decoder") ? written : 1, columns = isCausal ? written : read;
  const heads = flat.length / (isCausal ? (written * (written + 1)) / 2 : rows * columns), values = new Float32Array(heads * rows * columns).fill(hidden);
  for (let row = 0, at = 0; row < rows; row++)
    for (let head = 0, seen = isCausal ? row + 1 : columns; head < heads; head++, at += seen)
      values.set(flat.subarray(at, at + seen), (head * rows + row) * columns);
  return { name, heads, rows, columns, values };
}
