// A model that learns: `learn.c` as WebAssembly, the batches of a task, and what the model makes of an example at any step.
import { largest } from "../core/levels";
import { bytesOf } from "../core/numbers";
import { batchOf, chance, END, FIRST, START, TASKS, type Example, type TaskName } from "./tasks";
import { wasm } from "./wasm";

/** What a run is a function of: the same settings give the same film. */
export interface Settings {
  task: TaskName; model: "transformer" | "recurrent"; positions: boolean; scaled: boolean; masked: boolean; attends: boolean;
  heads: number; rate: number; seed: number;
}
export const DEFAULTS: Settings = { task: "reverse", model: "transformer", positions: true, scaled: true, masked: true, attends: true, heads: 2, rate: 0.005, seed: 9 };

/** What the model makes of an example after some steps; rows of maps are target positions. */
export interface Frame {
  step: number;
  loss: number; // mean of the batches since the frame before
  output: string[];
  weights: Float32Array; // (heads, rows, columns)
  heads: number; rows: number; columns: number;
  right: number; // weight of a row on all its links: the mean of the rows that have some, and of all heads
}

interface Functions {
  memory: WebAssembly.Memory;
  _initialize(): void;
  malloc(bytes: number): number;
  new_learner(settings: number): number;
  weights(model: number): number;
  values(model: number): number;
  rows(model: number, i: number): number;
  columns(model: number, i: number): number;
  value(model: number, i: number): number;
  weights_of(model: number, map: number): number;
  forward(model: number, B: number, S: number, T: number, source: number, input: number): number;
  backward(model: number, target: number): number;
  update(model: number, rate: number): void;
}

export const MOST = 1500, BATCH = 32; // steps of a run; examples of a step
const WARM = 50, CROSS = 2, LONGEST = 32; // steps of growing rates; the map that is shown; positions
const SIZES = { transformer: 48, recurrent: 40 }, HIDDEN = 96;

/** Whether there is a frame after this step: many at first. */
export const isFrame = (step: number): boolean => step % (step < 200 ? 5 : step < 500 ? 10 : 25) === 0;

let code: Promise<WebAssembly.Module> | undefined;
const unpacked = () => new Response(new Blob([bytesOf(wasm)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

export class Learner {
  step = 0;
  private sum = 0;
  private count = 0;
  private readonly random: () => number;
  private readonly at: number; // addresses of three batches
  private readonly model: number;
  private readonly stored: { frame: number; loss: number; weights: Float32Array }[] = [];

  static async of(settings: Settings): Promise<Learner> {
    code ??= unpacked().then((bytes) => WebAssembly.compile(bytes));
    const { exports } = await WebAssembly.instantiate(await code, {});
    (exports as unknown as Functions)._initialize();
    return new Learner(exports as unknown as Functions, settings);
  }

  constructor(private readonly c: Functions, readonly settings: Settings) {
    const { task, model, positions, scaled, masked, attends, heads, seed } = settings;
    this.random = chance(seed);
    this.at = c.malloc(3 * 4 * BATCH * LONGEST);
    const numbers = [FIRST + TASKS[task].tokens.length, model === "transformer" ? 0 : 1, SIZES[model], HIDDEN, heads, positions, scaled, masked, attends, seed].map(Number);
    this.model = c.new_learner(this.write(0, Int32Array.from(numbers)));
    if (!this.model) throw new Error("too little memory to train here");
    this.store(NaN);
  }

  private write(place: number, values: Int32Array): number {
    const address = this.at + 4 * place * BATCH * LONGEST;
    new Int32Array(this.c.memory.buffer, address, values.length).set(values);
    return address;
  }

  /** All weights, in place. */
  private get values(): Float32Array {
    return new Float32Array(this.c.memory.buffer, this.c.value(this.model, 0), this.c.values(this.model));
  }
  get size(): number {
    return Array.from({ length: this.c.weights(this.model) }, (_, i) => this.c.rows(this.model, i) * this.c.columns(this.model, i)).reduce((a, b) => a + b);
  }

  private store(loss: number): void {
    this.stored.push({ frame: this.step, loss, weights: this.values.slice() });
  }

  private forward(examples: readonly Example[]): { T: number; S: number; target: number } {
    const { source, input, target, S, T } = batchOf(TASKS[this.settings.task], examples);
    this.c.forward(this.model, examples.length, S, T, this.write(0, source), this.write(1, input));
    return { T, S, target: this.write(2, target) };
  }

  /** One step; true where there is a frame after it. */
  learn(): boolean {
    const { c, model, settings } = this, task = TASKS[settings.task];
    const { target } = this.forward(Array.from({ length: BATCH }, () => task.draw(this.random)));
    this.sum += c.backward(model, target);
    this.count++;
    c.update(model, settings.rate * Math.min(1, ++this.step / WARM));
    if (!isFrame(this.step)) return false;
    this.store(this.sum / this.count);
    this.sum = this.count = 0;
    return true;
  }

  /** The frames from a number on, of an example; what has been learnt since stays. */
  frames(example: Example, from: number): Frame[] {
    const now = this.values.slice();
    const made = this.stored.slice(from).map(({ frame, loss, weights }) => {
      this.values.set(weights);
      return this.look(example, frame, loss);
    });
    this.values.set(now);
    return made;
  }

  /** The most probable tokens one after another, up to the end sign. */
  private greedy(example: Example): number[] {
    const { c, model, settings } = this, task = TASKS[settings.task], { source, S } = batchOf(task, [example]), ids: number[] = [];
    const V = FIRST + task.tokens.length, at = this.write(0, source), most = Math.min(LONGEST - 1, example.target.length + 6);
    while (ids.length < most) {
      const logits = c.forward(model, 1, S, ids.length + 1, at, this.write(1, Int32Array.of(START, ...ids)));
      const last = new Float32Array(c.memory.buffer, logits + 4 * V * ids.length, V), next = 1 + largest(last.subarray(1));
      if (next === END) break;
      ids.push(next);
    }
    return ids;
  }

  private look(example: Example, step: number, loss: number): Frame {
    const { c, model, settings } = this, task = TASKS[settings.task], heads = settings.model === "transformer" ? settings.heads : 1;
    const output = this.greedy(example).map((id) => task.tokens[id - FIRST] ?? "?");
    const { T: rows, S: columns } = this.forward([example]), address = c.weights_of(model, CROSS), size = heads * rows * columns;
    const weights = address ? new Float32Array(c.memory.buffer, address, size).slice() : new Float32Array(size);
    const each = example.links.flatMap(([t, s]) => Array.from({ length: heads }, (_, head) => weights[(head * rows + t) * columns + s]!));
    return { step, loss, output, weights, heads, rows, columns, right: each.reduce((a, b) => a + b, 0) / heads / new Set(example.links.map(([t]) => t)).size };
  }
}
