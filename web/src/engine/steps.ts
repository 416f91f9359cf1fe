// The stages of one head of an attention as numbers (`foveate.look.stages`): what the engine computed, and what lies between.
import { base64Of } from "../core/numbers";
import type { StageDrawing, StepsDrawing } from "../core/types";
import { spreadOf, type Stage, type Tensor } from "./compiled";

/** An attention of one input: its stages as the engine computed them, its positions, its equations and its output matrix. */
export interface Attention { name: string; flat: Readonly<Record<Stage, Float32Array>>; rows: string[]; columns: string[]; equations: Partial<Record<string, string>>; output?: { weight: Tensor; bias?: Tensor | undefined } | undefined }
type Rows = Float64Array[]; // of queries or keys, or of the keys of each query one after the other
interface Made { title: string; equation: string; origin: string; rows: Rows; of: "query" | "key" | "pair" | "pair vector" }

const ORDER = ["query", "rotated query", "key", "rotated key", "product", "score", "bias", "masked score", "exp", "sum", "weights", "value", "weighted values", "context", "output of the head", "output"];
const CAPTURED = "computed by the engine", SOFTMAX = 1e-3; // the largest difference of weights that are a softmax
const CAPTION = "Computed: by the engine, for this output. Derived: computed from such stages and compared with the next stage. Decoder steps are labelled with the token that they produce, others with the one that is read.";

const dot = (a: Float64Array, b: Float64Array) => a.reduce((sum, x, i) => sum + x * b[i]!, 0);
const largest = (rows: Rows) => rows.reduce((most, row) => row.reduce((m, x) => (Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m), most), 0);

/** The largest difference from what the engine computed, relative to the largest number there (at least 1). */
function error(own: Rows, computed: Rows): number {
  const apart = own.map((row, t) => row.map((x, i) => (x === computed[t]![i] ? 0 : x - computed[t]![i]!)));
  return largest(apart) / Math.max(1, largest(computed));
}

/** The numbers of a head of each row: of (N, H, K) its (N, K). */
function ofHead(flat: Float32Array, count: number, heads: number, head: number): Rows {
  const size = flat.length / count / heads;
  return Array.from({ length: count }, (_, n) => Float64Array.from(flat.subarray((n * heads + head) * size, (n * heads + head + 1) * size)));
}

/** The output matrix's product with a context (V) of a head. */
function through({ shape, values, scale }: Tensor, context: Float64Array, head: number): Float64Array {
  const wide = shape[1]!;
  return Float64Array.from({ length: shape[0]! }, (_, row) => {
    let sum = 0;
    context.forEach((x, i) => { sum += x * values[row * wide + head * context.length + i]!; });
    return sum * (scale?.[row] ?? 1);
  });
}

/** The stages of a head, derived ones included. */
function stagesOf({ name, flat, rows: { length: T }, columns: { length: S }, equations, output }: Attention, head: number): Made[] {
  const weights = spreadOf(name, flat.weights, S, T), { heads } = weights, size = flat.context.length / T / heads;
  if (head < 0 || head >= heads) throw new Error(`head ${head} does not exist: ${name} has ${heads}, counting from 0`);
  const keyHeads = flat.value.length / S / size, keyHead = Math.floor((head * keyHeads) / heads), isCausal = flat.weights.length < heads * T * S;
  const made: Made[] = [], hides = isCausal ? ", −∞ where hidden" : "";
  const put = (title: string, of: Made["of"], own: Rows, equation = "", origin = CAPTURED) => { made.push({ title, equation, origin, rows: own, of }); return own; };
  const derive = (title: string, of: Made["of"], own: Rows, equation: string, to: string, apart: number) => put(title, of, own, equation, `derived · gives ${to} to ${apart.toExponential(0)}`);
  const map = (stage: "score" | "bias" | "weights", hidden: number) => {
    const { values } = stage === "weights" ? weights : spreadOf(name, flat[stage], S, T, hidden);
    return Array.from({ length: T }, (_, t) => Float64Array.from(values.subarray((head * T + t) * S, (head * T + t + 1) * S)));
  };
  const captured = (title: Stage, of: Made["of"], own: Rows, more = "") => put(title, of, own, (equations[title] ?? "") + more);
  for (const title of ["query", "rotated query"] as const) if (flat[title].length) captured(title, "query", ofHead(flat[title], T, heads, head));
  for (const title of ["key", "rotated key"] as const) if (flat[title].length) captured(title, "key", ofHead(flat[title], S, keyHeads, keyHead));
  const vectors = (kind: "query" | "key") => made.findLast(({ of }) => of === kind)?.rows ?? [], queries = vectors("query"), keys = vectors("key");

  const score = captured("score", "pair", map("score", -Infinity), hides), seen = (own: Rows) => own.map((row, t) => row.map((x, i) => (isCausal && i > t ? -Infinity : x)));
  if (equations.score?.includes("/ √K")) {
    const scale = 1 / Math.sqrt(queries[0]!.length), product = seen(queries.map((query) => Float64Array.from(keys, (key) => dot(query, key))));
    derive("product", "pair", product, `q · k_i${hides}`, "score", error(product.map((row) => row.map((x) => x * scale)), score));
  }
  const bias = flat.bias.length ? captured("bias", "pair", map("bias", 0)) : undefined, masked = bias ? score.map((row, t) => row.map((x, i) => x + bias[t]![i]!)) : score;
  const alpha = map("weights", 0), over = Number(/exp\(e_i \/ ([\d.e-]+)\)/.exec(equations.weights ?? "")?.[1] ?? 1);
  const exp = masked.map((row) => row.map((x) => Math.exp((x - Math.max(...row)) / over))), sums = exp.map((row) => Float64Array.of(row.reduce((a, b) => a + b, 0)));
  const apart = error(exp.map((row, t) => row.map((x) => x / sums[t]![0]!)), alpha), inside = over === 1 ? "exp(e_i − max_j e_j)" : `exp((e_i − max_j e_j) / ${over})`;
  if (bias) derive("masked score", "pair", masked, `e_i ← e_i + b_i${hides}`, "weights", apart);
  if (apart < SOFTMAX) {
    derive("exp", "pair", exp, inside, "weights", apart);
    derive("sum", "query", sums, `Σ_i ${inside}`, "weights", apart);
  }
  captured("weights", "pair", alpha);
  const value = captured("value", "key", ofHead(flat.value, S, keyHeads, keyHead)), context = ofHead(flat.context, T, heads, head);
  const parts = alpha.map((row) => Float64Array.from({ length: S * size }, (_, k) => row[Math.floor(k / size)]! * value[Math.floor(k / size)]![k % size]!));
  const sum = parts.map((row) => {
    const whole = new Float64Array(size);
    row.forEach((x, k) => { whole[k % size]! += x; });
    return whole;
  });
  derive("weighted values", "pair vector", parts, "α_i v_i", "context", error(sum, context));
  captured("context", "query", context);
  const whole = captured("output", "query", ofHead(flat.output, T, 1, 0));
  if (output) {
    const each = Array.from({ length: heads }, (_, h) => ofHead(flat.context, T, heads, h).map((c) => through(output.weight, c, h)));
    const all = each[0]!.map((_, t) => each[0]![t]!.map((_, i) => each.reduce((total, own) => total + own[t]![i]!, 0)));
    derive("output of the head", "query", each[head]!, "W_o c, of this head's columns of W_o", "output", error(all.map((row) => row.map((x, i) => x + (output.bias?.values[i] ?? 0))), whole));
  }
  return made.sort((a, b) => ORDER.indexOf(a.title) - ORDER.indexOf(b.title));
}

/** The stages of a head as a drawing, a frame for each query (`foveate.look.draw.stages.drawn`). */
export function steps(attention: Attention, head: number): StepsDrawing {
  const { name, rows, columns } = attention, stages = stagesOf(attention, head), T = rows.length, S = columns.length;
  const far = (word: string) => Math.max(0, ...stages.filter(({ title }) => title.endsWith(word)).map((each) => largest(each.rows)));
  return {
    kind: "steps", title: `${name.replaceAll("_", "-").replaceAll(".", " ")}, head ${head}`, caption: CAPTION, notes: [], frames: rows, frame: 0,
    stages: stages.map(({ title, equation, origin, rows: own, of }): StageDrawing => {
      const size = own[0]!.length, flat = new Float32Array(own.length * size), most = Math.max(largest(own), ["query", "key", "value"].includes(title) ? far(title) : 0, 1e-12);
      own.forEach((row, n) => flat.set(row, n * size));
      const frames = of === "key" ? [1, S, size] : of === "pair vector" ? [T, S, size / S] : [T, 1, size], isPositive = ["weights", "exp", "sum"].includes(title);
      return {
        title, equation, origin, shape: of === "key" ? frames.slice(1) : of === "pair vector" ? frames : [T, size], values: { shape: frames, codec: "f32", data: base64Of(new Uint8Array(flat.buffer)), url: "" },
        rows: of === "key" || of === "pair vector" ? columns : [], columns: of === "pair" ? columns : [], across: of === "pair" ? "" : title === "sum" ? "one" : "size",
        least: isPositive ? 0 : -most, most: title === "weights" ? 1 : most,
      };
    }),
  };
}
