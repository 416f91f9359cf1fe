// The inside of an attention as one scene, with the numbers that the engine computed (`foveate.look.draw.scenery`).
import { HIGH, WIDE } from "../core/insides";
import { base64Of } from "../core/numbers";
import { spoken } from "../core/text";
import type { Numbers, SceneDrawing, ScenePanel, SceneStop } from "../core/types";
import { spreadOf, type Stage } from "./compiled";

/** An attention of one input: its stages as the engine computed them, the inputs of its positions and what a decoder writes at each, and its equations. */
export interface Attention { name: string; flat: Readonly<Record<Stage, Float32Array>>; rows: string[]; columns: string[]; writes: string[]; equations: Partial<Record<string, string>> }

const ORDER: readonly (readonly [string, Stage, string])[] = [ // of stops: the row of the picture, its stage, what it is called
  ["q", "query", "Query"], ["k", "key", "Keys"], ["e", "score", "Scores"], ["α", "weights", "Weights"], ["v", "value", "Values"], ["c", "context", "Mean of the values"], ["o", "output", "All heads times W"],
];

/** Numbers (N, H, K) of positions as (H, N, K), with the heads that share a key each on its own. */
function byHead(flat: Float32Array, count: number, own: number, heads: number): Numbers {
  const size = flat.length / count / own, made = new Float32Array(heads * count * size);
  for (let h = 0; h < heads; h++) for (let n = 0; n < count; n++)
    made.set(flat.subarray((n * own + Math.floor((h * own) / heads)) * size, (n * own + Math.floor((h * own) / heads) + 1) * size), (h * count + n) * size);
  return { shape: [heads, count, size], codec: "f32", data: base64Of(new Uint8Array(made.buffer)), url: "" };
}

/** A head of an attention as a scene, one query of it at a time. */
export function inside({ name, flat, rows, columns, writes, equations }: Attention, head: number): SceneDrawing {
  const T = rows.length, S = columns.length, { heads, values } = spreadOf(name, flat.weights, S, T), size = flat.context.length / T / heads;
  if (head < 0 || head >= heads) throw new Error(`${name} has ${heads} heads`);
  const map = (own: ArrayLike<number>): Numbers => ({ shape: [heads, T, S], codec: "f32", data: base64Of(new Uint8Array(Float32Array.from(own).buffer)), url: "" });
  const keyHeads = flat.value.length / S / size, isOne = rows.join() === columns.join(), memory = isOne ? "x_i" : "h_i", parts = spoken(name);
  const shown = isOne && T > 1 ? [...ORDER, ["E", "score", "All scores"], ["A", "weights", "All weights"]] as const : ORDER;
  const order = ["h", ...ORDER.slice(0, -1).map(([row]) => row)];
  const stop = (stage: string, caption: string, shows: readonly string[], lit: readonly string[]): SceneStop => ({
    name: stage ? `numbers ${stage}` : "all numbers", caption, box: [0, 0, WIDE, HIGH], panel: 0, shows: shows.map((each) => `${name} ${each}`),
    lit: [...lit, "h word", ...lit.flatMap((each) => [`name ${each}`, `name own ${each}`])].map((each) => `${name} ${each}`),
  });
  const scores = spreadOf(name, flat.score, S, T, -Infinity).values, product = flat.query.slice(0, size).reduce((sum, q, n) => sum + q * flat.key[n]!, 0) / Math.sqrt(size); // of the first query and key
  return {
    kind: "scene", title: `${parts.replace("layers", "layer")}, head ${head}`, caption: "Computed by the engine.", notes: [],
    nodes: [{ name, label: "", form: "group", box: [0, 0, WIDE, HIGH], hue: null, tag: "", detail: [], texts: [], level: 0 }], edges: [],
    panels: [{
      node: name, rows, columns, reads: {}, tokens: (writes.length ? { writes: writes.map((word) => [word]) } : {}) as ScenePanel["tokens"], units: {}, head, row: 0, score: Math.abs(product - scores[0]!) < 0.01 + 0.001 * Math.abs(product) ? "scaled_dot" : "", normalizer: "softmax", equations: Object.fromEntries(Object.entries(equations).map(([stage, text]) => [stage, text ?? ""])),
      letters: { q: "q", k: "k_i", e: "e_i", α: "α_i", v: "v_i", c: "c", own: "x", h: memory, memory },
      values: {
        query: byHead(flat.query, T, heads, heads), key: byHead(flat.key, S, keyHeads, heads), value: byHead(flat.value, S, keyHeads, heads), context: byHead(flat.context, T, heads, heads),
        score: map(scores), weights: map(values), output: byHead(flat.output, T, 1, 1),
      },
    }],
    stops: [stop("", `${writes.length ? `Before “${writes[0]}” is written, the` : "The"} query of “${rows[0]}” and each key give a score, softmax weights, c the mean of the values.`, order, order),
      ...shown.map(([row, stage, text]) => {
        const isAlone = row === "o" || row === "E" || row === "A", lit = isAlone ? [row] : order.slice(0, order.indexOf(row) + 1);
        return stop(row, [text, isAlone && row !== "o" ? "" : equations[stage]].filter(Boolean).join(": ") + ".", isAlone ? lit : order, lit);
      })],
  };
}
