// What is inside a box of a scene: an attention's sentence with its heads and one query of it in numbers, a cell, or words with vectors over them.
import { floats, type Values } from "./numbers";
import { written } from "./text";
import type { SceneEdge, SceneNode, ScenePanel } from "./types";

export const WIDE = 1240, HIGH = 560; // of a camera stop, in units of its own
const MOST = 12, KEYS = 9, WRITTEN = 3; // positions; keys beside one query; numbers of a vector that are written
const FAINT = 0.02; // smaller weights are not drawn
const LINE = 29, BACK = /^gradient of /, RECTIFIED = ["activation", "ReLU"]; // height of a number among others; stages whose zeros are empty
const HUES = [0, 1, 2, 3, 5, 6]; // of heads; the fifth is black

const DOWN = ["cell before", "before", "input", "fed", "forget gate", "input gate", "candidate", "reset gate", "update gate", "output gate", "kept", "added"]; // stages of a cell, from above
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

  if (values.has("state")) cell();
  else if (!values.has("weights")) positions();
  else {
    heads();
    if (values.has("query") && values.has("key")) numbers();
  }
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
    const isOne = panel.rows.join() === panel.columns.join(); // else the query is a decoder's
    for (const [stage, y] of [["c", 4], ["q", 266], ["h", 400]] as const) put(`name own ${stage}`, stage === "h" && !isOne ? "s" : stage, boxAt(8, y, 34, 88), stage, { form: "word" });
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
      const value = cell(`v ${k}`, x, 4, vector("value", k, head), "v", { hue: 2, level: 0.1 + 0.9 * weights[k]! });
      if (h) join(`k from ${k}`, h, key, "k");
      if (h) line(`v from ${k}`, [at(x + wide, 430), at(x + wide + 5, 430), at(x + wide + 5, 48), at(x + wide, 48)], "v"); // beside the key
      join(`e from ${k}`, key, score, "e");
      join(`α from ${k}`, score, weight, "α");
      const low = value[1] + value[3], bus = low + 14 * unit, middle = value[0] + value[2] / 2, end = answer[0] + answer[2] / 2;
      line(`c from ${k}`, [[middle, low], [middle, bus], [end, bus], [end, answer[1] + answer[3]]], "c");
    });
    joined();
    line("e from query", [at(176, 310), at(first - 60, 310), at(first - 60, 215), at(first - 48, 215)], "e", { hue: 1 });
  }

  /** The answers of all heads side by side, and the vector that one matrix makes of them. */
  function joined() {
    const context = values.get("context")!, [heads = 1] = context.shape, pitch = Math.min(190, 1180 / heads), first = (WIDE - pitch * heads) / 2;
    const out = boxAt(530, 24, 180, 88), matrix = boxAt(first, 200, pitch * heads, 70);
    put("o out", "", out, "o", { texts: vectorOf("output", 0) });
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

  /** Words side by side, and over each what a block computes from it: stages from below, a box for each number. */
  function positions() {
    const stages = [...values.keys()], named = stages.map((stage) => stage.replace(BACK, "")), aside = Math.max(...named.map((name) => 17 * name.length)) + 20;
    const from = Math.max(0, panel.row - KEYS + 1), words = panel.rows.slice(from, from + KEYS), pitch = (WIDE - aside) / words.length, wide = Math.min(pitch - 14, 240);
    const parts = stages.map((stage): number => (panel.tokens[stage] ? 2 : 1)), slot = (HIGH - 50) / parts.reduce((a, b) => a + b), boxes = new Map<string, Box[]>(); // a number under its token needs two lines
    let floor = HIGH - 50;
    const middle = (k: number, count: number) => aside + pitch * (count === 1 ? words.length / 2 : k + 0.5); // of one vector for all words
    words.forEach((word, k) => put(`words ${k}`, word, boxAt(aside + pitch * k, HIGH - 44, pitch - 6, 40), "words", { form: "word" }));
    stages.forEach((stage, level) => {
      const own = stage.replaceAll(" ", "-"), made = values.get(stage)!, [, tall = 1, width = 1] = made.shape, each = LINE * parts[level]!, room = slot * parts[level]!;
      const count = Math.max(1, Math.min(Math.floor((room - 26) / each), width)), high = each * count, y = floor - (room + high) / 2, isBack = BACK.test(stage), isBlank = RECTIFIED.includes(stage);
      const rows = Array.from({ length: tall === 1 ? 1 : Math.min(words.length, tall - from) }, (_, k) => rowOf(made, 0, tall === 1 ? 0 : from + k).slice(0, count));
      const largest = Math.max(1e-12, ...rows.flatMap((row) => [...row]).map(Math.abs).filter(isFinite));
      floor -= room;
      put(`${own} name`, named[level]!, boxAt(0, y, aside - 12, high), own, { form: "word" });
      boxes.set(stage, rows.map((row, k) => {
        const x = middle(k, tall) - wide / 2, tokens = panel.tokens[stage]?.[tall === 1 ? 0 : from + k];
        row.forEach((value, i) => {
          if (Number.isNaN(value)) return;
          const isZero = isBlank && value === 0, token = tokens?.[i];
          const text = isZero ? "" : isBack ? (value < 100 ? value.toPrecision(2) : value.toFixed(0)) : !token && width === 1 && Number.isInteger(value) ? String(value) : written(value);
          put(`${own} ${k} ${i}`, `${named[level]!} of ${words[k] ?? ""}`, boxAt(x, y + each * i, wide, each), own, { texts: token ? [token, text] : [text], hue: isZero ? null : value < 0 ? 1 : 0, level: (0.6 * Math.abs(value)) / largest, detail: [panel.equations[stage] ?? ""] });
        });
        return boxAt(x, y, wide, high);
      }));
    });
    if (!stages.some((stage) => BACK.test(stage)))
      boxes.get(stages[0]!)!.forEach(([x, y, w, tall], k) => line(`words from ${k}`, [[x + w / 2, top + unit * (HIGH - 44)], [x + w / 2, y + tall]], stages[0]!.replaceAll(" ", "-")));
    for (const stage of stages) for (const read of panel.reads[stage] ?? []) {
      const own = stage.replaceAll(" ", "-"), lower = boxes.get(read)!, upper = boxes.get(stage)!, isBelow = stages.indexOf(read) < stages.indexOf(stage), isNext = Math.abs(stages.indexOf(read) - stages.indexOf(stage)) === 1;
      for (let k = 0; k < Math.max(lower.length, upper.length); k++) {
        const a = lower[Math.min(k, lower.length - 1)]!, b = upper[Math.min(k, upper.length - 1)]!, gap = 5 * unit;
        const straight: Point[] = isBelow ? [[a[0] + a[2] / 2, a[1]], [b[0] + b[2] / 2, b[1] + b[3]]] : [[a[0] + a[2] / 2, a[1] + a[3]], [b[0] + b[2] / 2, b[1]]];
        const beside: Point[] = [[a[0] + a[2], a[1] + a[3] / 2], [a[0] + a[2] + gap, a[1] + a[3] / 2], [b[0] + b[2] + gap, b[1] + b[3] / 2], [b[0] + b[2], b[1] + b[3] / 2]];
        line(`${own} from ${read} ${k}`, isNext ? straight : beside, own);
      }
    }
  }

  /** A cell at one step: what it reads at the left, then each stage right of all that it is computed from. */
  function cell() {
    const own = (stage: string) => stage.replaceAll(" ", "-"); // no name begins with another
    const columns = levelsOf(panel.reads), count = Math.max(...columns.values()) + 1, across = (WIDE - 20) / count, boxes = new Map<string, Box>();
    for (let level = 0; level < count; level++) {
      const stages = DOWN.concat([...columns.keys()]).filter((stage, k, all) => columns.get(stage) === level && all.indexOf(stage) === k), down = HIGH / stages.length;
      stages.forEach((stage, k) => {
        const box = boxAt(12 + across * level, down * (k + 0.5) - 50, across - 46, 100), isGate = stage.endsWith(" gate");
        boxes.set(stage, box);
        const hue = isGate ? 5 : stage === "state" || stage === "cell" ? 2 : level ? 1 : null;
        put(own(stage), "", box, own(stage), { texts: [stage, Array.from(rowOf(values.get(stage)!, 0, panel.row).slice(0, 2), written).join("  ")], hue, level: hue === null ? 0 : 0.25, detail: [panel.equations[stage] ?? ""] });
      });
    }
    for (const [stage, [x, y, , tall]] of boxes)
      for (const read of panel.reads[stage] ?? []) {
        const from = boxes.get(read)!;
        const a = from[0] + from[2], b = from[1] + from[3] / 2, gap = 14 * unit, bus = b < top + (unit * HIGH) / 2 ? top + 5 * unit : top + (HIGH - 5) * unit;
        const passes: Point[] = columns.get(stage)! - columns.get(read)! > 1 ? [[a + gap, b], [a + gap, bus], [x - gap, bus], [x - gap, y + tall / 2]] : []; // beside what is between
        line(`${own(stage)} from ${read}`, [[a, b], ...passes, [x, y + tall / 2]], own(stage));
      }
  }
}

/** How many stages have to be computed before each one. Pure. */
export function levelsOf(reads: Readonly<Record<string, readonly string[]>>): Map<string, number> {
  const levels = new Map<string, number>();
  const level = (stage: string): number => {
    const known = levels.get(stage);
    if (known !== undefined) return known;
    const made = Math.max(-1, ...(reads[stage] ?? []).map(level)) + 1;
    levels.set(stage, made);
    return made;
  };
  Object.keys(reads).forEach(level);
  return levels;
}
