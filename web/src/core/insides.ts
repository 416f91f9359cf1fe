// What is inside a box of a scene: an attention's sentence with its heads, and one query of it in numbers.
import { floats, type Values } from "./numbers";
import type { SceneEdge, SceneNode, ScenePanel } from "./types";

export const WIDE = 1240, HIGH = 560; // of a camera stop, in units of its own
const MOST = 12, KEYS = 8, WRITTEN = 3; // positions; keys beside one query; numbers of a vector that are written
const FAINT = 0.02; // smaller weights are not drawn
const HUES = [0, 1, 2, 3, 5, 6]; // of heads; the fifth is black

type Box = [number, number, number, number];
type Point = [number, number];

/** A node with the numbers that are written in it, and how strongly it is filled, from 0 to 1. */
export interface Inner extends SceneNode { texts?: string[]; level?: number }
export interface Inside { nodes: Inner[]; edges: SceneEdge[] }

/** A stage of a panel as rows by head. Pure. */
export const rowOf = ({ shape, ...rest }: Values, head: number, row: number): Float64Array => {
  const [heads = 1, height = 1, width = 1] = shape, which = Math.min(head, heads - 1);
  return floats({ shape, ...rest }, (which * height + row) * width, width);
};

export const written = (value: number): string => (value === -Infinity ? "−∞" : value.toFixed(2).replace("-", "−"));
export const hueOf = (head: number): number => HUES[head % HUES.length]!;

/** The largest weights of a row, at most `most`, in the order of the text. Pure. */
export function largestOf(weights: ArrayLike<number>, most: number): number[] {
  const order = Array.from(weights, (_, k) => k).sort((a, b) => weights[b]! - weights[a]!);
  return order.slice(0, most).sort((a, b) => a - b);
}

/** The nodes and edges inside an attention, on the canvas of its camera stop. Pure. */
export function insideOf(panel: ScenePanel, values: ReadonlyMap<string, Values>, [left, top, wide]: Box): Inside {
  const nodes: Inner[] = [], edges: SceneEdge[] = [], unit = wide / WIDE, name = panel.node;
  const at = (x: number, y: number): Point => [left + unit * x, top + unit * y];
  const boxAt = (x: number, y: number, w: number, h: number): Box => [...at(x, y), unit * w, unit * h];
  const put = (key: string, label: string, box: Box, tag: string, more: Partial<Inner> = {}) =>
    nodes.push({ name: `${name} ${key}`, label, box, form: "box", hue: null, detail: [], tag: `${name} ${tag}`, ...more });
  const line = (key: string, points: Point[], tag: string, more: Partial<SceneEdge> = {}) =>
    edges.push({ name: `${name} ${key}`, points, weight: null, hue: null, tag: `${name} ${tag}`, ...more });

  heads(); if (values.has("query") && values.has("key")) numbers();
  return { nodes, edges };

  function words(role: string, texts: readonly string[], y: number, away: number): number[] {
    const pitch = WIDE / texts.length, close = pitch < 150;
    return texts.map((word, k) => {
      const room = close ? 2 * pitch : pitch, middle = pitch * (k + 0.5);
      put(`${role} ${k}`, word, boxAt(middle - room / 2, y + (close && k % 2 ? away : 0), room - 8, 40), "heads", { form: "word" });
      return middle;
    });
  }

  function heads() {
    const weights = values.get("weights")!, [count = 1] = weights.shape;
    const over = words("query", panel.rows.slice(0, MOST), 82, -30), under = words("key", panel.columns.slice(0, MOST), 480, 34);
    for (let h = 0; h < count; h++) {
      put(`chip ${h}`, `head ${h}`, boxAt(620 + 150 * (h - count / 2) + 5, 0, 140, 42), "heads", { hue: hueOf(h), level: 0.4 });
      const shift = 6 * (h - (count - 1) / 2);
      over.forEach((x, t) => rowOf(weights, h, t).slice(0, MOST).forEach((alpha, k) => {
        if (alpha < FAINT) return;
        const a = x + shift, b = under[k]! + shift;
        line(`head ${h} query ${t} ${k}`, [at(a, 124), at(a, 300), at(b, 300), at(b, 476)], `head ${h}`, { weight: alpha, hue: hueOf(h) });
      }));
    }
  }

  function numbers() {
    const { head, row } = panel, [weights, scores] = [rowOf(values.get("weights")!, head, row), rowOf(values.get("score")!, head, row)];
    const keys = largestOf(weights, KEYS), pitch = 980 / keys.length, wide = Math.min(130, pitch - 10), first = 256;
    const vector = (stage: string, position: number, other = 0) => Array.from(rowOf(values.get(stage)!, other, position).slice(0, WRITTEN), written);
    const cell = (key: string, x: number, y: number, texts: string[], stage: string, more: Partial<Inner> = {}) => {
      const box = boxAt(x, y, x < first ? 130 : wide, texts.length > 1 ? 88 : 42);
      put(key, "", box, stage, { texts, ...more });
      return box;
    };
    const join = (key: string, from: Box, to: Box, stage: string, more: Partial<SceneEdge> = {}) =>
      line(key, [[from[0] + from[2] / 2, from[1]], [to[0] + to[2] / 2, to[1] + to[3]]], stage, more);
    const rows: [string, number][] = [["v", 4], ["α", 122], ["e", 194], ["k", 266], ["h", 400]];
    for (const [stage, y] of rows) put(`name ${stage}`, stage, boxAt(first - 44, y, 34, stage === "α" || stage === "e" ? 42 : 88), stage, { form: "word" });
    for (const [stage, y] of [["c", 4], ["q", 266], ["h", 400]] as const) put(`name own ${stage}`, stage, boxAt(8, y, 34, 88), stage, { form: "word" });
    put("h word", panel.rows[row]!, boxAt(12, 500, 196, 44), "h", { form: "word" });
    const own = values.has("h") ? cell("h own", 46, 400, vector("h", row), "h") : undefined;
    const query = cell("q own", 46, 266, vector("query", row, head), "q", { hue: 1, level: 0.25 });
    const answer = cell("c own", 46, 4, vector("context", row, head), "c", { hue: 3, level: 0.25 });
    if (own) join("q from", own, query, "q");
    keys.forEach((k, place) => {
      const x = first + pitch * place, memory = values.has("memory") ? "memory" : undefined;
      put(`h word ${k}`, panel.columns[k]!, boxAt(x - 4, 500, wide + 8, 44), "h", { form: "word" });
      const h = memory && cell(`h ${k}`, x, 400, vector(memory, k), "h");
      const key = cell(`k ${k}`, x, 266, vector("key", k, head), "k", { hue: 0, level: 0.25 });
      const score = cell(`e ${k}`, x, 194, [written(scores[k]!)], "e");
      const weight = cell(`α ${k}`, x, 122, [written(weights[k]!)], "α", { hue: 5, level: weights[k]! });
      const value = cell(`v ${k}`, x, 4, vector("value", k, head), "v", { hue: 2, level: 0.25 });
      if (h) join(`k from ${k}`, h, key, "k");
      join(`e from ${k}`, key, score, "e");
      join(`α from ${k}`, score, weight, "α");
      line(`c from ${k}`, [[value[0], value[1] + value[3] / 2], [answer[0] + answer[2], answer[1] + answer[3] / 2]].map(([u, v], end) => (end ? [u, v] : [u! + value[2] / 2, value[1] + value[3]])) as Point[], "c", { weight: weights[k]!, hue: 3 });
    });
    joined();
    line("e from query", [at(176, 310), at(first - 60, 310), at(first - 60, 215), at(first - 48, 215)], "e", { hue: 1 });
  }

  /** The answers of all heads side by side, and the vector that one matrix makes of them. */
  function joined() {
    const context = values.get("context")!, [heads = 1] = context.shape, pitch = Math.min(190, 1180 / heads), first = (WIDE - pitch * heads) / 2;
    const out = boxAt(530, 24, 180, 88), matrix = boxAt(first, 200, pitch * heads, 70);
    put("o out", "", out, "o", { texts: vectorOf("output", 0) });
    put("o word", `“${panel.rows[panel.row]!}”`, boxAt(720, 44, 300, 44), "o", { form: "word" });
    put("o matrix", "W_o", matrix, "o", { hue: 3 });
    line("o from matrix", [[out[0] + out[2] / 2, matrix[1]], [out[0] + out[2] / 2, out[1] + out[3]]], "o");
    for (let head = 0; head < heads; head++) {
      const x = first + pitch * head, box = boxAt(x + 8, 350, pitch - 16, 96);
      put(`o head ${head}`, "", box, "o", { texts: vectorOf("context", head), hue: hueOf(head), level: 0.3 });
      put(`o chip ${head}`, `head ${head}`, boxAt(x, 460, pitch, 44), "o", { form: "word" });
      line(`o from ${head}`, [[box[0] + box[2] / 2, box[1]], [box[0] + box[2] / 2, matrix[1] + matrix[3]]], "o", { hue: hueOf(head) });
    }
  }

  function vectorOf(stage: string, head: number): string[] {
    return Array.from(rowOf(values.get(stage)!, head, panel.row).slice(0, WRITTEN), written);
  }
}
