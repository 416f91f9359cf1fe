// What is inside a box of a scene: an attention's sentence with its heads and one query of it in numbers, a cell, or words with vectors over them.
import { floats, type Values } from "./numbers";
import { written } from "./text";
import type { SceneEdge, SceneNode, ScenePanel } from "./types";

export const WIDE = 1240, HIGH = 560; // of a camera stop, in units of its own
const MOST = 12, KEYS = 9, WRITTEN = 3; // positions; keys beside one query; numbers of a vector that are written
const FAINT = 0.1; // smaller weights are not drawn
const LINE = 33, TALL = 96, PAIR = 2, LOW = 68, FLAT = 38, BACK = /^gradient of /, RECTIFIED = ["activation", "ReLU"]; // height of a number among others, and of three, of two and of one in a box; stages whose zeros are white
const HUES = [0, 1, 2, 3, 5, 6]; // of heads; the fifth is black

const DOWN = ["cell before", "before", "input", "fed", "forget gate", "input gate", "candidate", "update gate", "reset gate", "output gate", "kept", "added"]; // stages of a cell, from above
type Box = [number, number, number, number];
type Point = [number, number];

/** A node; what it need not have. */
export type Inner = Omit<SceneNode, "texts" | "level"> & { texts?: string[]; level?: number };
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

/** The units that differ most between positions, in their order. Pure. */
export function activeOf({ shape, ...rest }: Values, most: number): number[] {
  const width = shape[2] ?? 1, all = floats({ shape, ...rest }, 0, (shape[1] ?? 1) * width);
  return largestOf(Array.from({ length: width }, (_, unit) => {
    const own = all.filter((_, k) => k % width === unit), mean = own.reduce((sum, value) => sum + value, 0) / own.length, above = own.filter((value) => value > 0).length;
    return own.reduce((sum, value) => sum + (value - mean) ** 2, 0) * (0.01 + above * (own.length - above)); // of both signs, if any is
  }), most);
}

/** The units of x, y and x + y, those first whose sums are exact as written at all positions. Pure. */
export function exactOf([x, y, sum]: readonly Values[]): number[] {
  const [, height = 1, width = 1] = sum!.shape, off = (unit: number) => Number(Array.from({ length: height }, (_, t) =>
    Math.abs([x!, y!].reduce((left, each) => left - Number(rowOf(each, 0, Math.min(t, each.shape[1]! - 1))[unit]!.toFixed(2)), Number(rowOf(sum!, 0, t)[unit]!.toFixed(2)))) > 0.001).some(Boolean));
  return Array.from({ length: width }, (_, unit) => unit).sort((a, b) => off(a) - off(b));
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

  const label = (stage: string, key: string, text: string, x: number, y: number, wide: number, tall = FLAT) => put(key, text, boxAt(x, y, wide, tall), stage, { form: "label" });

  if (values.has("state")) cell();
  else if (!panel.columns.length) positions();
  else {
    heads();
    if (values.has("query") && values.has("key")) numbers();
  }
  return { nodes, edges };

  /** What each head of one query attends to; its answers side by side are one vector. */
  function heads() {
    const weights = values.get("weights")!, [count = 1] = weights.shape, t = panel.row, keys = panel.columns.slice(0, MOST), pitch = WIDE / keys.length, each = 936 / count;
    put(`query ${t}`, `“${panel.rows[t]!}”: c =`, boxAt(0, 14, 290, 50), "heads", { form: "word" });
    keys.forEach((word, k) => put(`key ${k}`, word, boxAt(pitch * k + 4, 504, pitch - 8, 48), "heads", panel.rows.join() === panel.columns.join() && k === t ? {} : { form: "word" }));
    for (let h = 0; h < count; h++) {
      const row = rowOf(weights, h, t), [best] = largestOf(row, 1), x = 300 + each * h, shift = 24 * (h - (count - 1) / 2), from = x + each / 2;
      put(`chip ${h}`, "", boxAt(x, 2, each, 76), "heads", { texts: [`c^${h}`, `${panel.columns[best!]!} ${written(row[best!]!)}`], hue: hueOf(h), level: 0.4 });
      row.slice(0, MOST).forEach((alpha, k) => {
        const to = pitch * (k + 0.5) + shift;
        if (alpha >= FAINT || k === best) line(`head ${h} query ${t} ${k}`, [at(from, 78), at(from, 300), at(to, 300), at(to, 500)], `head ${h}`, { weight: alpha, hue: hueOf(h) });
      });
    }
  }

  /** One query in numbers: x, k, e, α and v of each key from below, and at the left what belongs to the query. */
  function numbers() {
    const { head, row } = panel, [weights, scores] = [rowOf(values.get("weights")!, head, row), rowOf(values.get("score")!, head, row)];
    const keys = largestOf(weights, KEYS), pitch = 980 / keys.length, wide = Math.min(116, pitch - 22), first = 256, top = Math.max(...weights);
    const isOne = panel.rows.join() === panel.columns.join(); // else the query is a decoder's
    const memory = values.has("memory") ? "memory" : "h", isRead = values.has("memory") || isOne, { letters } = panel;
    const vector = (stage: string, position: number, other = 0) => Array.from(rowOf(values.get(stage)!, other, position).slice(0, PAIR), written);
    const cell = (key: string, x: number, y: number, texts: string[], stage: string, more: Partial<Inner> = {}) => {
      const box = boxAt(x, y, x < first ? 124 : wide, texts.length > 1 ? LOW : FLAT);
      put(key, "", box, stage, { texts, ...more });
      return box;
    };
    const join = (key: string, from: Box, to: Box, stage: string, more: Partial<SceneEdge> = {}) =>
      line(key, [[from[0] + from[2] / 2, from[1]], [to[0] + to[2] / 2, to[1] + to[3]]], stage, more);
    const rows: [string, number][] = [["v", 2], ["α", 104], ["e", 216], ["k", 274], ["h", 384]];
    for (const [stage, y] of rows) label(stage, `name ${stage}`, letters[stage === "h" ? memory : stage] ?? stage, first - 48, y, 40, stage === "α" || stage === "e" ? FLAT : LOW);
    for (const [stage, y] of [["c", 2], ["q", 274], ["h", 384]] as const) label(stage, `name own ${stage}`, letters[stage === "h" ? "own" : stage] ?? stage, 0, y, 66, LOW);
    const writes = panel.tokens.writes?.[row]?.[0], word = panel.rows[row]!;
    put("h word", writes ? `${word} → ${writes}` : word, isOne ? boxAt(30, 459, 204, 38) : boxAt(0, 459, 252, 38), "h", { form: isOne ? "box" : "label", hue: isOne ? 1 : null, level: isOne ? 0.25 : 0 });
    const size = values.get("key")!.shape[2] ?? 0, isSoft = panel.equations.weights?.includes("exp(");
    label("h", "h note", size > PAIR ? `${PAIR} of ${size}` : "", 0, 344, 114);
    label("c", "c step", "2. mix", 70, 104, 124);
    label("e", "e step", "1. compare", 20, 216, 164);
    const own = values.has("h") ? cell("h own", 70, 384, vector("h", row), "h") : undefined;
    const query = cell("q own", 70, 274, vector("query", row, head), "q", { hue: 1, level: 0.25 });
    cell("c own", 70, 2, vector("context", row, head), "c", { hue: 3, level: 0.25 });
    if (own) join("q from", own, query, "q");
    const middle = (place: number) => first + pitch * place + wide / 2, last = middle(keys.length - 1), soft = 179; // the height of the softmax, which reads all scores
    if (isSoft) {
      label("α", "α softmax", "softmax", 62, soft - FLAT / 2, 132);
      line("α bus", [at(198, soft), at(last, soft), at(last, 142)], "α", { hue: 5 });
    }
    keys.forEach((k, place) => {
      const x = first + pitch * place, isOwn = isOne && k === row, end = x + wide + (pitch - wide) / 2;
      put(`h word ${k}`, panel.columns[k]!, boxAt(x, 459, wide, 38), "h", { form: isOwn ? "box" : "word", hue: isOwn ? 1 : null, level: isOwn ? 0.25 : 0 });
      const h = isRead && values.has(memory) ? cell(`h ${k}`, x, 384, vector(memory, k), "h") : undefined;
      const key = cell(`k ${k}`, x, 274, vector("key", k, head), "k", { hue: 0, level: 0.25 });
      const score = cell(`e ${k}`, x, 216, [written(scores[k]!)], "e");
      const alpha = cell(`α ${k}`, x, 104, [written(weights[k]!)], "α", { hue: 5, level: weights[k]! });
      cell(`v ${k}`, x, 2, vector("value", k, head), "v", { hue: 2, level: 0.1 + 0.9 * weights[k]! });
      if (h) join(`k from ${k}`, h, key, "k");
      if (h) line(`v from ${k}`, [at(x + wide, 418), at(end, 418), at(end, 36), at(x + wide, 36)], "v"); // beside the key
      join(`e from ${k}`, key, score, "e");
      if (isSoft) line(`α read ${k}`, [at(middle(place), 216), at(middle(place), soft)], "α");
      if (isSoft && middle(place) < last) line(`α from ${k}`, [at(middle(place), soft), at(middle(place), 142)], "α", { hue: 5 });
      if (!isSoft) join(`α from ${k}`, score, alpha, "α");
      line(`c from ${k}`, [at(middle(place), 70), at(middle(place), 84)], "c");
      line(`c by ${k}`, [at(middle(place), 104), at(middle(place), 84)], "c"); // v, times its α
      if (place === keys.length - 1) line("c bus", [at(middle(place), 84), at(132, 84), at(132, 70)], "c");
    });
    const aside = pitch - wide; // beside the keys
    for (const [stage, of, x, matrix, room] of [["q", "query", 136, "W_Q", 60], ["k", "key", first + wide / 2 + 4, "W_K", 60], ["v", "value", first + wide + aside / 2 + 2, "W_V", pitch / 2 - 8]] as const)
      if (panel.equations[of]?.includes(matrix) && room > 36) label(stage, `${stage} matrix`, matrix, x, 344, Math.min(60, room));
    line("e from query", [at(132, 274), at(132, 254)], "e", { hue: 1 });
    line("e from compare", [at(184, 235), at(first - 42, 235)], "e", { hue: 1 });
    const best = weights.indexOf(top), [q, k] = [vector("query", row, head), vector("key", best, head)], score = written(scores[best]!), is = panel.equations.score ?? ""; // the key with the largest weight, worked out
    const factor = (text: string) => (text[0] === "−" ? `(${text})` : text), pairs = (by: string, sign: string) => q.map((x, n) => `${n ? factor(x) : x} ${by} ${factor(k[n]!)}`).join(sign) + (size > PAIR ? `${sign}…` : "");
    const product = is.includes("· k_i /") ? `(${pairs("·", " + ")}) / √${size} = ${written(scores[best]! * Math.sqrt(size))} / √${size}` : is.includes("tanh(q +") ? `vᵀ tanh(${pairs("+", ", ")})` : "";
    label("e", "e work", product && `“${panel.columns[best]!}”: e = ${product} = ${score}`, 65, 500, 1110, 30);
    if (isSoft) label("α", "α work", `α = e^{${score} − ${factor(score)}} / Σ = 1 / ${written(1 / top)} = ${written(top)}`, 0, 530, 590, 30);
    const most = largestOf(weights, PAIR).map((n) => `${written(weights[n]!)} · ${factor(vector("value", n, head)[0]!)}`);
    label("c", "c own work", `c = ${most.join(" + ")}${weights.length > PAIR ? " + …" : ""} = ${vector("context", row, head)[0]!}`, 600, 530, 640, 30);
    joined();
    if (isOne && panel.rows.length > 1) products();
  }

  /** One word through all heads: projected, attending, their answers as one long vector, and what one matrix makes of it. */
  function joined() {
    const context = values.get("context")!, output = values.get("output")!, [heads = 1, , size = 1] = context.shape, wide = output.shape[2] ?? 1;
    const pitch = Math.min(256, 1030 / heads), left = 210, middle = left + (pitch * heads) / 2, word = panel.rows[panel.row]!;
    const few = size > WRITTEN ? [`first 3 of ${size}`] : [];
    const row = (key: string, texts: string[], y: number, tall: number) => put(`o ${key} name`, "", boxAt(0, y, left - 14, tall), "o", { form: "label", texts });
    const whole = (key: string, label: string, y: number, tall: number, more: Partial<Inner> = {}) => put(`o ${key}`, label, boxAt(left, y, pitch * heads, tall), "o", more);
    row("out", ["o", ...(wide > WRITTEN ? [`first 3 of ${wide}`] : [])], 2, TALL);
    put("o out", "", boxAt(middle - 90, 2, 180, TALL), "o", { texts: vectorOf("output", 0) });
    whole("matrix", `× W_O, ${size * heads} × ${wide}, + b_O`, 126, 52);
    row("joined", ["concatenate", ...few], 212, TALL);
    row("attend", ["attend"], 340, 48);
    row("project", ["project"], 420, 48);
    whole("word", `x of “${word}” for q; of all words for k, v`, 504, 48);
    line("o from matrix", [at(middle, 126), at(middle, 98)], "o");
    for (let head = 0; head < heads; head++) {
      const x = left + pitch * head, own = { hue: hueOf(head), level: 0.3 }, up = x + pitch / 2, name = heads > 4 ? "" : `c^${head} = `;
      put(`o head ${head}`, "", boxAt(x, 212, pitch, TALL), "o", { texts: vectorOf("context", head), ...own });
      put(`o attend ${head}`, `${name}Σ_i α_i v_i`, boxAt(x + 6, 340, pitch - 12, 48), "o", own);
      put(`o project ${head}`, `W_Q^${head}, W_K^${head}, W_V^${head}`, boxAt(x + 6, 420, pitch - 12, 48), "o", own);
      for (const [key, from, to] of [["word", 504, 468], ["project", 420, 388], ["attend", 340, 308], ["head", 212, 178]] as const)
        line(`o from ${key} ${head}`, [at(up, from), at(up, to)], "o", { hue: hueOf(head) });
    }
  }

  /** All queries at once: E = Q Kᵀ / √d_k as the product of two matrices, and C = A V. */
  function products() {
    const { head, row, rows } = panel, count = Math.min(rows.length, KEYS), masked = values.has("masked score") ? "masked score" : "score", few = (stage: string) => Math.min(WRITTEN, values.get(stage)!.shape[2] ?? 1);
    const scores = values.get(masked)!, [least, most] = [Math.min, Math.max].map((end) => end(...Array.from({ length: count }, (_, t) => rowOf(scores, head, t).slice(0, count)).flatMap((all) => [...all].filter(isFinite))));
    const asked = rowOf(scores, head, row), best = asked.indexOf(Math.max(...asked.slice(0, count))); // the key of the largest score
    const grid = (stage: string, name: string, of: string, x: number, y: number, wide: number, tall: number, size: [number, number], isTurned = false, hue: number | null = null) => {
      for (let t = 0; t < size[0]; t++) for (let s = 0; s < size[1]; s++) {
        const value = rowOf(values.get(of)!, head, isTurned ? s : t)[isTurned ? t : s]!;
        const level = of === "weights" ? value : of === masked ? Math.max(0, value - least!) / (most! - least! || 1) : 0.25;
        put(`${stage} ${name} ${t} ${s}`, "", boxAt(x + wide * s, y + tall * t, wide, tall), stage, { texts: [written(value)], hue, level });
      }
    };
    const words = (stage: string, y: number, tall: number) => rows.slice(0, count).forEach((word, t) =>
      put(`${stage} word ${t}`, word, boxAt(2, y + tall * t, 122, tall), stage, { form: t === row ? "box" : "word", hue: t === row ? 1 : null, level: t === row ? 0.25 : 0 }));
    const frame = (stage: string, x: number, y: number, wide: number, tall: number) =>
      put(`${stage} frame ${x}`, "", boxAt(x - 4, y + tall * row - 4, wide + 8, tall + 8), stage, { form: "frame", hue: 1 });
    const q = few("query"), e = Math.min(170, (1228 - 130 - 80 * q - 34) / count), right = 130 + 80 * q + 34, down = 40 + 36 * q + 52, tall = Math.min(72, (556 - down) / count);
    words("E", down, tall);
    grid("E", "q", "query", 130, down, 80, tall, [count, q], false, 1);
    grid("E", "k", "key", right, 40, e, 36, [q, count], true, 0);
    grid("E", "e", masked, right, down, e, tall, [count, count], false, 5);
    if (row < count) frame("E", 130, down, 80 * q, tall);
    if (row < count) frame("E", right, down, e * count, tall);
    if (row < count) put("E frame key", "", boxAt(right + e * best - 4, 36, e + 8, 36 * q + 8), "E", { form: "frame", hue: 0 });
    rows.slice(0, count).forEach((word, s) => put(`E key ${s}`, word, boxAt(right + e * s, 0, e - 6, 38), "E", { form: "word" }));
    label("E", "E name q", "Q = X W_Q", 84, down - 44, 80 * q + 92);
    label("E", "E name k", "Kᵀ, K = X W_K", right - 246, 40 + 18 * q - 19, 236);
    label("E", "E name e", "E", right, down - 44, e * count);
    const v = Math.min(2, few("value")), each = 98, a = Math.min(130, (1226 - 130 - 2 * (each * v + 40)) / count), high = Math.min(84, 470 / count), second = 130 + a * count + 40, third = second + each * v + 40;
    words("A", 84, high);
    rows.slice(0, count).forEach((word, s) => put(`A key ${s}`, word, boxAt(130 + a * s, 44, a - 6, 34), "A", { form: "word" }));
    grid("A", "a", "weights", 130, 84, a, high, [count, count], false, 5);
    grid("A", "v", "value", second, 84, each, high, [count, v], false, 2);
    grid("A", "c", "context", third, 84, each, high, [count, v], false, 3);
    if (row < count) frame("A", 130, 84, a * count, high);
    if (row < count) frame("A", third, 84, each * v, high);
    put("A frame v", "", boxAt(second - 4, 80, each * v + 8, high * count + 8), "A", { form: "frame", hue: 2 });
    for (const [key, text, x, wide] of [["a", "A", 130, a * count], ["v", "V", second, each * v], ["c", "C = A V", third - 34, each * v + 34], ["times", "×", second - 40, 40], ["is", "=", third - 40, 40]] as const)
      label("A", `A name ${key}`, text, x, key === "times" || key === "is" ? 84 + (high * count) / 2 - 19 : 0, wide);
  }

  function vectorOf(stage: string, head: number): string[] {
    return Array.from(rowOf(values.get(stage)!, head, panel.row).slice(0, WRITTEN), written);
  }

  /** Words side by side, and over each what a block computes from it: stages from below, a box for each number. */
  function positions() {
    const stages = [...values.keys()], called = stages.map((stage) => stage.replace(BACK, "")), named = called.map((name, k) => panel.letters[stages[k]!] ?? name);
    const aside = Math.max(...named.map((name) => 17 * name.replace(/[_^{}]/g, "").length)) + 20;
    const from = Math.max(0, panel.row - KEYS + 1), words = panel.rows.slice(from, from + KEYS), pitch = (WIDE - aside) / words.length, wide = Math.min(pitch - 14, 240);
    const lone = (stage: string) => panel.tokens[stage] && values.get(stage)!.shape[1] === 1, parts = stages.map((stage): number => (panel.tokens[stage] ? (lone(stage) ? 1.5 : 2) : 1)), slot = (HIGH - 50) / parts.reduce((a, b) => a + b), boxes = new Map<string, Box[]>(); // a number under its token needs two lines
    const hidden = RECTIFIED.find((stage) => values.has(stage)), inner = hidden === undefined ? 0 : values.get(hidden)!.shape[2] ?? 1;
    const sum = stages.find((stage) => panel.reads[stage]?.length === 2 && !values.has("context")) ?? "", [first = "", second = ""] = panel.reads[sum] ?? [], adding = sum ? exactOf([first, second, sum].map((stage) => values.get(stage)!)) : []; // E[id] + position
    const largestIn = (rows: readonly Float64Array[]) => Math.max(1e-12, ...rows.flatMap((row) => [...row]).map(Math.abs).filter(isFinite)), addends = largestIn(sum ? [first, second, sum].map((stage) => floats(values.get(stage)!)) : []); // a sum and its parts have one scale
    let floor = HIGH - 50;
    const middle = (k: number, count: number) => aside + pitch * (count === 1 ? words.length / 2 : k + 0.5); // of one vector for all words
    words.forEach((word, k) => put(`words ${k}`, sum ? `${from + k}: ${word}` : word, boxAt(aside + pitch * k, HIGH - 44, pitch - 6, 40), "words", { form: "word" }));
    if (sum) label("words", "words name", "t: word", 0, HIGH - 44, aside - 12, 40);
    stages.forEach((stage, level) => {
      const own = stage.replaceAll(" ", "-"), made = values.get(stage)!, [, tall = 1, width = 1] = made.shape, each = lone(stage) ? LINE + 4 : LINE * parts[level]!, room = slot * parts[level]!;
      const count = Math.max(1, Math.min(Math.floor((room - 26) / each), width)), high = each * count, y = floor - (room + high) / 2, isBack = BACK.test(stage), isBlank = RECTIFIED.includes(stage);
      const whole = Array.from({ length: tall === 1 ? 1 : Math.min(words.length, tall - from) }, (_, k) => rowOf(made, 0, tall === 1 ? 0 : from + k));
      const units = [first, second, sum].includes(stage) && width > count ? adding.slice(0, count) : hidden !== undefined && width === inner && width > count ? activeOf(values.get(stages[stages.indexOf(hidden) - 1] ?? hidden)!, count) : [];
      const rows = whole.map((row) => (units.length ? Float64Array.from(units, (unit) => row[unit]!) : row.slice(0, count))), few = width > count && !panel.tokens[stage] ? `${units.length || count === 1 ? "" : "first "}${count} of ${width}` : "";
      const largest = [first, second, sum].includes(stage) ? addends : largestIn(rows);
      floor -= room;
      put(`${own} name`, stage === sum ? "= sum" : (stage === second ? "+ " : "") + named[level]!, boxAt(0, y + (few ? high / 2 - 36 : 0), aside - 12, few ? 36 : high), own, { form: "label" });
      if (few) put(`${own} few`, few, boxAt(0, y + high / 2, aside - 12, 36), own, { form: "label" });
      boxes.set(stage, rows.map((row, k) => {
        const across = lone(stage) ? 300 : wide, x = middle(k, tall) - across / 2, tokens = panel.tokens[stage]?.[tall === 1 ? 0 : from + k];
        row.forEach((value, i) => {
          if (Number.isNaN(value)) return;
          const isZero = isBlank && value === 0, token = tokens?.[i];
          const text = isZero ? "0" : isBack ? (value < 100 ? value.toPrecision(2) : value.toFixed(0)) : !token && width === 1 && Number.isInteger(value) ? String(value) : written(value);
          put(`${own} ${k} ${i}`, `${called[level]!} of ${words[k] ?? ""}`, boxAt(x, y + each * i, across, each), own, { texts: token ? (lone(stage) ? [`${token} ${text}`] : [token, text]) : [text], hue: !isZero && text === String(value) ? null : 6, level: text === String(value) ? 0 : (0.6 * Math.abs(value)) / largest, detail: [panel.equations[stage] ?? ""] });
        });
        return boxAt(x, y, across, high);
      }));
    });
    if (!stages.some((stage) => BACK.test(stage)))
      boxes.get(stages[0]!)!.forEach(([x, y, w, tall], k) => line(`words from ${k}`, [[x + w / 2, top + unit * (HIGH - 44)], [x + w / 2, y + tall]], stages[0]!.replaceAll(" ", "-")));
    for (const stage of stages) for (const read of stage === sum ? [] : panel.reads[stage] ?? []) {
      const own = stage.replaceAll(" ", "-"), lower = boxes.get(read)!, upper = boxes.get(stage)!, isBelow = stages.indexOf(read) < stages.indexOf(stage), isNext = Math.abs(stages.indexOf(read) - stages.indexOf(stage)) === 1;
      for (let k = 0; k < Math.max(lower.length, upper.length); k++) {
        const a = lower[Math.min(k, lower.length - 1)]!, b = upper[Math.min(k, upper.length - 1)]!, gap = 5 * unit;
        const straight: Point[] = isBelow ? [[a[0] + a[2] / 2, a[1]], [b[0] + b[2] / 2, b[1] + b[3]]] : [[a[0] + a[2] / 2, a[1] + a[3]], [b[0] + b[2] / 2, b[1]]];
        const beside: Point[] = [[a[0] + a[2], a[1] + a[3] / 2], [a[0] + a[2] + gap, a[1] + a[3] / 2], [b[0] + b[2] + gap, b[1] + b[3] / 2], [b[0] + b[2], b[1] + b[3] / 2]];
        line(`${own} from ${read} ${k}`, isNext ? straight : beside, own);
      }
    }
  }

  /** A cell at one step: what it reads at the left, then each stage right of all that it is computed from; the line of the state is above. */
  function cell() {
    const own = (stage: string) => stage.replaceAll(" ", "-"); // no name begins with another
    const columns = levelsOf(panel.reads), isLong = columns.has("cell"), road = isLong ? ["cell before", "kept", "cell"] : columns.has("kept") ? ["before", "kept", "state"] : [];
    const count = Math.max(...columns.values()) + 1, across = (WIDE - 20) / count, first = road.length ? 116 : 0, middles = new Map<string, number>(), left = (stage: string) => 12 + across * columns.get(stage)!, right = (stage: string) => left(stage) + across - 46;
    const hueOfStage = (stage: string) => (stage.endsWith(" gate") ? 5 : road.includes(stage) || stage === "state" ? 2 : columns.get(stage) ? 1 : null);
    const signed = (stage: string) => (stage === "kept" || stage === "added" || (stage === "state" && isLong) ? "×" : stage === "cell" || (stage === "state" && columns.has("kept")) ? "+" : "");
    for (let level = 0; level < count; level++) {
      const stages = DOWN.concat([...columns.keys()]).filter((stage, k, all) => columns.get(stage) === level && all.indexOf(stage) === k), free = stages.filter((stage) => !road.includes(stage));
      for (const stage of stages) {
        const reads = (panel.reads[stage] ?? []).filter((read) => columns.get(read) && !road.includes(read)).map((read) => middles.get(read)!);
        const middle = road.includes(stage) ? 54 : road.length && reads.length ? reads.reduce((a, b) => a + b) / reads.length : first + ((HIGH - first) * (free.indexOf(stage) + 0.5)) / free.length;
        middles.set(stage, middle);
        const letter = panel.letters[stage] ?? stage, how = !level || signed(stage) ? "" : stage.endsWith(" gate") ? " = σ(…)" : " = tanh(…)";
        put(own(stage), "", boxAt(left(stage), middle - 50, across - 46, 100), own(stage), { texts: [letter + how, ...Array.from(rowOf(values.get(stage)!, 0, panel.row).slice(0, 2), written)], hue: hueOfStage(stage), level: level || road.includes(stage) ? 0.25 : 0, detail: [panel.equations[stage] ?? ""] });
        if (signed(stage)) put(`${own(stage)} sign`, signed(stage), boxAt(left(stage) - 19, middle - 19, 38, 38), own(stage), { form: "plus" });
      }
    }
    for (const stage of columns.keys()) for (const read of panel.reads[stage] ?? []) {
      const a = right(read), b = middles.get(read)!, x = left(stage), y = middles.get(stage)!, bus = a + 23, isRoad = road.includes(stage) && road.includes(read); // what is read comes by one line
      const around = columns.get(stage)! - columns.get(read)! > 1 ? [[bus, HIGH - 4], [x - 23, HIGH - 4], [x - 23, y]] : [[bus, y]];
      const points = signed(stage) ? [[a, b], ...(Math.abs(b - y) < 1 ? [[x - 19, y]] : [[x, b], [x, y + 19 * Math.sign(b - y)]])] : [[a, b], [bus, b], ...around, [x, y]];
      line(`${own(stage)} from ${read}`, points.map(([u, v]) => at(u!, v!)), own(stage), isRoad ? { hue: 2, weight: 0.5 } : { hue: columns.get(read) ? hueOfStage(read) : null });
    }
    if (isLong) put("state tanh", "tanh", boxAt(left("state") + 6, 150, 80, 40), "state", { form: "label" });
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
