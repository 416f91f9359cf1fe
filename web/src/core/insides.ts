// What is inside a box of a scene: an attention's sentence with its heads and one query of it in numbers, a cell, or words with vectors over them.
import { floats, type Values } from "./numbers";
import { written } from "./text";
import type { SceneEdge, SceneNode, ScenePanel } from "./types";

export const WIDE = 1240, HIGH = 560; // of a camera stop, in units of its own
const MOST = 12, KEYS = 9, WRITTEN = 3; // positions; keys beside one query; numbers of a vector that are written
const LINE = 33, PAIR = 2, FLAT = 38, BACK = /^gradient of /, RECTIFIED = ["activation", "ReLU"]; // height of a number among others; numbers of a vector; height of one in a box; stages whose zeros are grey
const APART = 56; // from the boxes of a cell to the next ones
const HUES = [0, 1, 2, 3, 5, 6]; // of heads; the fifth is black

const DOWN = ["cell before", "before", "input", "fed", "forget gate", "input gate", "candidate", "update gate", "reset gate", "output gate", "kept", "added"]; // stages of a cell, from above
type Box = [number, number, number, number];
type Point = [number, number];

/** A node; what it need not have. */
export type Inner = Omit<SceneNode, "texts" | "level"> & { texts?: string[]; level?: number; faint?: boolean };
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

  const ownOf = (stage: string) => stage.replaceAll(" ", "-"); // no name begins with another
  const label = (stage: string, key: string, text: string, x: number, y: number, wide: number, tall = FLAT) => put(key, text, boxAt(x, y, wide, tall), stage, { form: "label" });

  const isOne = panel.rows.join() === panel.columns.join(), isSoft = panel.normalizer === "softmax"; // one text, else the query is a decoder's
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
    put(`query ${t}`, `c of “${panel.rows[t]!}”`, boxAt(0, 77, 290, 42), "heads", { form: "word" });
    label("heads", "faint", "line: largest α of a head", 200, 512, 840, 34);
    keys.forEach((word, k) => put(`key ${k}`, word, boxAt(pitch * k + 4, 444, pitch - 8, 48), "heads", isOne && k === t ? {} : { form: "word" }));
    for (let h = 0; h < count; h++) {
      const row = rowOf(weights, h, t), best = largestOf(row, 1)[0]!, alpha = row[best]!, to = pitch * (best + 0.5), x = 300 + each * h, from = x + each / 2;
      put(`chip ${h}`, "", boxAt(x, 58, each, 80), "heads", { texts: [`c^${h}`, `${panel.columns[best]!} ${written(alpha)}`], hue: hueOf(h), level: 0.4 });
      if (best < MOST) line(`head ${h} query ${t} ${best}`, [at(from, 138), at(from, 290), at(to, 290), at(to, 440)], `head ${h}`, { weight: alpha, hue: hueOf(h) });
    }
  }

  /** One query in numbers: k, e, α and v of each key from below, their mean above, and at the left what belongs to the query. */
  function numbers() {
    const { head, row, letters, equations } = panel, weights = rowOf(values.get("weights")!, head, row), scores = rowOf(values.get("score")!, head, row);
    const keys = largestOf(weights, KEYS - 1), first = 456, pitch = (WIDE - first) / keys.length, wide = Math.min(134, pitch - 10), top = Math.max(...weights), best = weights.indexOf(top);
    const size = values.get("key")!.shape[2] ?? 0, few = (more: string) => (size > 1 ? more : ""), number = (stage: string, position = row) => written(rowOf(values.get(stage)!, head, position)[0]!), factor = (text: string) => (text[0] === "−" ? `(${text})` : text);
    const called = (stage: string) => letters[stage] ?? stage, middle = (place: number) => first + pitch * place + wide / 2, centre = (middle(0) + middle(keys.length - 1)) / 2;
    const cell = (key: string, x: number, y: number, text: string, stage: string, hue: number | null, level = 0.25) => put(key, "", boxAt(x, y, wide, FLAT), stage, { texts: [wide < 99 ? text.split(" ")[0]! : text], hue, level });
    const up = (key: string, x: number, from: number, to: number, stage: string, hue: number | null = null) => line(key, [at(x, from), at(x, to)], stage, { hue });
    const say = (stage: string, key: string, text: string, x: number, y: number, wide = 276) => put(key, text, boxAt(x - 10 / unit, y, wide, FLAT), stage, { form: "label", level: 1 }); // begins at x
    const by = (stage: string, letter: string) => (equations[stage]?.length! < 27 && equations[stage]) || called(letter); // as it is computed
    for (const [stage, text, y] of [["v", by("value", "v"), 92], ["α", `${called("α")}${isSoft ? `, Σ_i ${called("α")} = 1` : ""}`, 160], ["e", by("score", "e"), 286], ["k", by("key", "k"), 384], ["h", `${called("memory")}:`, 484]] as const)
      say(stage, `name ${stage}`, text, stage === "h" ? 400 : 168, y);
    say("h", "name own h", by("query", "q"), 103, 440, 320);
    label("c", "name own c", by("context", "c"), centre - wide / 2 - 232, 2, 220);
    const writes = panel.tokens.writes?.[row]?.[0], query = { form: "box", hue: 1, level: 0.25 } as const;
    put("h word", (writes ? "after " : "") + panel.rows[row]!, boxAt(2, 484, writes ? 250 : 170, FLAT), "h", query);
    for (const [stage, text, y, tall] of [["c", "2. mix", 58, 152], ["e", "1. compare", 274, 160]] as const) {
      put(`${stage} band`, "", boxAt(0, y, WIDE, tall), stage, { form: "group" });
      say(stage, `${stage} step`, text, 12, y - 44);
    }
    cell("q own", 87 - wide / 2, 384, vector("query", head), "q", 1);
    cell("c own", centre - wide / 2, 2, vector("context", head), "c", 3);
    up("q from", 87, 484, 422, "q");
    if (isSoft) put("α softmax", "softmax", boxAt(first, 226, pitch * keys.length - pitch + wide, 32), "α", { hue: 5 });
    if (!isOne) {
      if (writes) say("c", "c writes", `→ ${writes}`, centre + wide / 2 + 12, 2);
      for (const stage of ["", "q", "k", "v"]) for (const [side, x] of [["decoder", writes ? 127 : 87], ["encoder", centre]] as const) label(`${stage} work`, `h ${side} ${stage}`, `${side} side`, x - 85, 524, 170, 34);
    }
    keys.forEach((k, place) => {
      const x = first + pitch * place, to = middle(place);
      put(`h word ${k}`, panel.columns[k]!, boxAt(x, 484, wide, FLAT), "h", isOne && k === row ? query : { form: "word" });
      cell(`k ${k}`, x, 384, vector("key", head, 1, k), "k", 0);
      cell(`e ${k}`, x, 286, written(scores[k]!), "e", null, 0);
      cell(`α ${k}`, x, 160, written(weights[k]!), "α", 5, weights[k]!);
      cell(`v ${k}`, x, 92, vector("value", head, 1, k), "v", 2, 0.1 + 0.9 * weights[k]!);
      up(`k from ${k}`, to, 484, 422, "k");
      up(`e from ${k}`, to, 384, 324, "e");
      put(`e meets ${k}`, /q\S* \+/.test(equations.score!) ? "+" : "·", boxAt(to - 15, 339, 30, 30), "e", { form: "plus" });
      up(`α read ${k}`, to, 286, isSoft ? 258 : 198, "α");
      if (isSoft) up(`α from ${k}`, to, 226, 198, "α", 5);
      label("c", `c times ${k}`, "×", x, 131, wide, 28); // v, times its α
      line(`c from ${k}`, [at(to, 92), at(to, 62), at(centre, 70), at(centre, 40)], "c", { hue: 5, weight: weights[k]! });
    });
    line("e from query", [at(87, 384), at(87, 354), at(middle(keys.length - 1) - 15, 354)], "e", { hue: 1 });
    const q = number("query"), k = factor(number("key", best)), score = written(scores[best]!); // the key with the largest weight, worked out
    const product = panel.score === "scaled_dot" ? `(${q} · ${k}${few(" + …")}) / √${size}` : panel.score === "additive" ? `vᵀ tanh(${q} + ${k}${few(", …")})` : "";
    const work = (stage: string, text: string) => label(`${stage} work`, `${stage} work`, text, 65, 526, 1110, 29); // at its own stop
    work("e", product && `“${panel.columns[best]!}”: e = ${product} = ${score}`);
    if (isSoft) work("α", `“${panel.columns[best]!}”: α = exp(${score} − max e) / Σ = 1 / ${written(1 / top)} = ${written(top)}`);
    const most = largestOf(weights, PAIR).map((n) => `${written(weights[n]!)} · ${factor(number("value", n))}`);
    work("c", `${called("c")} = ${most.join(" + ")}${weights.length > PAIR ? " + …" : ""} = ${number("context")}`);
    joined();
    if (isOne && panel.rows.length > 1) products();
  }

  /** One word through all heads: projected, attending, their answers as one long vector, and what one matrix makes of it. */
  function joined() {
    const [heads = 1, , size = 1] = values.get("context")!.shape, wide = values.get("output")!.shape[2] ?? 1;
    const pitch = Math.min(heads > 1 ? 256 : 640, 1016 / heads), left = 224, high = 48, gap = 42;
    const row = (key: string, y: number, ...texts: string[]) => put(`o ${key} name`, "", boxAt(0, y - 14, left - 14, 76), "o", { form: "label", texts });
    const whole = (key: string, text: string, y: number) => put(`o ${key}`, "", boxAt(left, y, pitch * heads, high), "o", { texts: [text] });
    row("out", 16, `o: 1 × ${wide}`);
    whole("out", vector("output", 0, 4), 16);
    whole("matrix", `W_O: ${size * heads} × ${wide}`, 106);
    row("matrix", 106, "4. mix");
    row("joined", 210, "3. concatenate", `${heads} · ${size} = ${size * heads}`);
    row("attend", 316, "2. attend", ...(isSoft ? ["α = softmax(e)"] : []));
    row("project", 406, "1. project", ...(isOne ? [`W: ${wide} × ${size}`] : []));
    whole("word", `x of “${panel.rows[panel.row]!}” for q, all ${isOne ? "x" : "h"} for K, V`, 496);
    const up = (key: string, x: number, y: number, hue: number | null = null) => line(`o from ${key}`, [at(x, y), at(x, y - gap)], "o", { hue });
    up("matrix", left + (pitch * heads) / 2, 106);
    for (let head = 0; head < heads; head++) {
      const part = (key: string, y: number, side: number, tall: number, ...texts: string[]) => {
        const hue = hueOf(head), x = left + pitch * head;
        put(`o ${key} ${head}`, "", boxAt(x + side, y, pitch - 2 * side, tall), "o", { texts, hue, level: 0.3 });
        up(`${key} ${head}`, x + pitch / 2, y, hue);
      };
      part("head", 196, 0, 78, `c^${head}`, vector("context", head, pitch > 150 ? PAIR : 1));
      part("attend", 316, 6, high, `c^${head} = α^${head} V^${head}`);
      part("project", 406, 6, high, `q^${head}, K^${head}, V^${head}`);
      up(`word ${head}`, left + pitch * (head + 0.5), 496, hueOf(head));
    }
  }

  /** All queries at once: E = Q Kᵀ / √d_k as the product of two matrices, and C = A V. */
  function products() {
    const { head, row, rows } = panel, count = Math.min(rows.length, KEYS), masked = values.has("masked score") ? "masked score" : "score", few = (stage: string) => Math.min(WRITTEN, values.get(stage)!.shape[2] ?? 1);
    const scores = values.get(masked)!, [least, most] = [Math.min, Math.max].map((end) => end(...Array.from({ length: count }, (_, t) => rowOf(scores, head, t).slice(0, count)).flatMap((all) => [...all].filter(isFinite))));
    const asked = rowOf(scores, head, row), best = asked.indexOf(Math.max(...asked.slice(0, count))); // the key of the largest score
    const grid = (stage: string, name: string, of: string, x: number, y: number, wide: number, tall: number, size: [number, number], [t0, s0]: [number?, number?], hue: number, isTurned = false) => {
      for (let t = 0; t < size[0]; t++) for (let s = 0; s < size[1]; s++) {
        const value = rowOf(values.get(of)!, head, isTurned ? s : t)[isTurned ? t : s]!;
        const level = of === "weights" ? value : of === masked ? Math.max(0, value - least!) / (most! - least! || 1) : 0.25;
        put(`${stage} ${name} ${t} ${s}`, "", boxAt(x + wide * s, y + tall * t, wide, tall), stage, { texts: [written(value)], hue, level, faint: (t0 ?? t) !== t || (s0 ?? s) !== s });
      }
      if (row < count) put(`${stage} frame ${name}`, "", boxAt(x + wide * (s0 ?? 0), y + tall * (t0 ?? 0), s0 === undefined ? wide * size[1] : wide, t0 === undefined ? tall * size[0] : tall), stage, { form: "frame", hue }); // what is computed, and from what
    };
    const words = (stage: string, y: number, tall: number) => rows.slice(0, count).forEach((word, t) =>
      put(`${stage} word ${t}`, word, boxAt(2, y + tall * t, 122, tall), stage, { form: t === row ? "box" : "word", hue: t === row ? 1 : null, level: t === row ? 0.25 : 0 }));
    const part = (stage: string, count: number) => `, ${count} of ${values.get(stage)!.shape[2]}`;
    const q = few("query"), one = 106, beside = 130 + one * q, e = Math.min(170, (1228 - beside - 34) / count), right = beside + 34, down = 96 + 40 * q, tall = Math.min(72, (556 - down) / count);
    words("E", down, tall);
    grid("E", "q", "query", 130, down, one, tall, [count, q], [row], 1);
    grid("E", "k", "key", right, 44, e, 40, [q, count], [, best], 0, true);
    grid("E", "e", masked, right, down, e, tall, [count, count], [row, best], 5);
    rows.slice(0, count).forEach((word, s) => put(`E key ${s}`, word, boxAt(right + e * s, 0, e - 6, 32), "E", { form: "word" }));
    label("E", "E name q", `Q${part("query", q)}`, 84, down - 44, one * q + 92);
    label("E", "E name k", `Kᵀ${part("key", q)}`, right - 246, 25 + 20 * q, 236);
    label("E", "E name e", "E", right, down - 44, e * count);
    const v = Math.min(2, few("value")), each = 88, apart = 44, aside = 170, a = Math.min(130, (1226 - 130 - 2 * each * v - apart - aside) / count), high = Math.min(84, 470 / count), second = 130 + a * count + aside, third = second + each * v + apart, half = 65 + (high * count) / 2;
    words("A", 84, high);
    rows.slice(0, count).forEach((word, s) => {
      put(`A key ${s}`, word, boxAt(130 + a * (s - 0.5), 48 - 34 * (s % 2), 2 * a, 34), "A", { form: "word" });
      put(`A value ${s}`, word, boxAt(second - 132, 84 + high * s, 124, high), "A", { form: "word" });
    });
    grid("A", "a", "weights", 130, 84, a, high, [count, count], [row], 5);
    grid("A", "v", "value", second, 84, each, high, [count, v], [, 0], 2);
    grid("A", "c", "context", third, 84, each, high, [count, v], [row, 0], 3);
    for (const [key, text, x, wide, y] of [["a", "A", 2, 122, 40], ["v", `V${part("value", v)}`, second - 6, each * v + 12, 40], ["c", `C${part("context", v)}`, third - 6, each * v + 12, 40], ["times", "×", second - aside, apart, half], ["is", "=", third - apart, apart, half]] as const)
      label("A", `A name ${key}`, text, x, y, wide);
  }

  /** The first numbers of a vector, as they are written, and dots for the others. */
  function vector(stage: string, head: number, most = 1, position = panel.row): string {
    const all = rowOf(values.get(stage)!, head, position);
    return Array.from(all.slice(0, most), written).join(" ") + (all.length > most ? " ⋯" : "");
  }

  /** Words side by side, and over each what a block computes from it: stages from below, a box for each number. */
  function positions() {
    const stages = [...values.keys()], called = stages.map((stage) => stage.replace(BACK, "")), isLayer = stages.some((stage) => RECTIFIED.includes(stage)), named = called.map((name, k) => panel.letters[stages[k]!] ?? name);
    const aside = Math.max(...named.map((name) => 17 * name.replace(/[_^{}]/g, "").length)) + 20;
    const from = Math.max(0, panel.row - KEYS + 1), words = panel.rows.slice(from, from + KEYS), pitch = (WIDE - aside) / words.length, wide = Math.min(pitch - 26, 240);
    const lone = (stage: string) => panel.tokens[stage] && values.get(stage)!.shape[1] === 1, parts = stages.map((stage): number => (panel.tokens[stage] ? 2 : stage === "logits" ? 1.36 : 1)), slot = (HIGH - 50) / parts.reduce((a, b) => a + b), boxes = new Map<string, Box[]>(); // a number under its token needs two lines
    const sum = stages.find((stage) => panel.reads[stage]?.length === 2 && !values.has("context")) ?? "", [first = "", second = ""] = panel.reads[sum] ?? []; // E[id] + position
    const hueAt = (stage: string, value: number) => ({ [first]: 6, [second]: 2, [sum]: 3, value: 2, weights: 5, context: 3 })[stage] ?? (value < 0 ? 1 : 6); // what is added has its own colour
    let floor = HIGH - 50;
    const middle = (k: number, count: number) => aside + pitch * (count === 1 ? words.length / 2 : k + 0.5); // of one vector for all words
    words.forEach((word, k) => {
      put(`words ${k}`, sum ? `${from + k}: ${word}` : word, boxAt(aside + pitch * k + 3, HIGH - 44, pitch - 6, 40), "words", { form: "word" });
      if (sum && words.filter((other) => other === word)[1]) put(`words frame ${k}`, "", boxAt(aside + pitch * k + 3, 12, pitch - 6, 486), "words", { form: "frame", hue: 5 }); // a word that is there twice
    });
    if (sum) label("words", "words k", "t: word", 0, HIGH - 44, aside - 12);
    stages.forEach((stage, level) => {
      const own = ownOf(stage), made = values.get(stage)!, [, tall = 1, width = 1] = made.shape, lines = panel.tokens[stage] ? 2 : 1, least = lone(stage) ? LINE + 9 : LINE * lines, room = slot * parts[level]!;
      const count = Math.max(1, Math.min(Math.floor((room - 26) / least), panel.tokens[stage] ? width : PAIR, width)), each = lone(stage) ? least : Math.min(36 * lines, (room - 26) / count), high = each * count, y = floor - (room + high) / 2, isBack = BACK.test(stage), isBlank = RECTIFIED.includes(stage);
      const start = tall === 1 ? 0 : from, units = (width > count && panel.units[stage]?.slice(0, count).sort((a, b) => b - a)) || [...Array(count).keys()];
      const rows = Array.from({ length: Math.min(words.length, tall - start) }, (_, k) => units.map((unit) => rowOf(made, 0, start + k)[unit]!)), few = width > count && !panel.tokens[stage] && (!sum || stage === first) ? (sum ? [`entries ${units.toReversed().join(", ")}`, `of ${width}`] : [`${count} of ${width} numbers`]) : [];
      const largest = Math.max(...rows.flat().map(Math.abs).filter(isFinite)) || 1;
      floor -= room;
      put(`${own} name`, "", boxAt(0, y + high / 2 - 54, aside - 12, 108), own, { form: "label", texts: [named[level]!.replace(isLayer ? / = .*/ : "", ""), ...few] });
      if (isLayer && level) { // one matrix for all words
        put(`${own} band`, "", boxAt(0, floor + room - 19, WIDE, FLAT), own, { form: "group" });
        label(own, `${own} W`, named[level]!, 0, floor + room - 19, aside);
      }
      boxes.set(stage, rows.map((row, k) => {
        const across = lone(stage) ? 300 : wide, x = middle(k, tall) - across / 2, sign = { [second]: `+ ${named[level]!.replace("t)", `${start + k})`)}`, [sum]: "=" }[stage];
        if (sign) label(own, `${own} sign ${k}`, sign, x, floor + room - 19, across);
        const tokens = panel.tokens[stage]?.[start + k];
        row.forEach((value, i) => {
          if (Number.isNaN(value)) return;
          const token = tokens?.[i], isPlain = isBlank ? !value : !isBack && !token && width === 1 && Number.isInteger(value); // a zero of a ReLU, the id of a token
          const text = isPlain ? `${value}` : isBack ? (value < 100 ? value.toPrecision(2) : value.toFixed(0)) : written(value);
          put(`${own} ${k} ${i}`, `${called[level]!} of ${words[k] ?? ""}`, boxAt(x, y + each * i, across, each), own, { texts: token ? (lone(stage) ? [`${token} ${text}`] : [token, text]) : [text], hue: isPlain ? null : hueAt(stage, value), level: isPlain ? 0 : sum ? 0.25 : (0.6 * Math.abs(value)) / largest, detail: [panel.equations[stage] ?? ""] });
        });
        return boxAt(x, y, across, high);
      }));
    });
    const end = ([x, y, w, tall]: Box, isLow: boolean): Point => [x + w / 2, isLow ? y + tall : y], side = ([x, y, w, tall]: Box, by: number): Point => [x + w + by * unit, y + tall / 2];
    if (!stages.some((stage) => BACK.test(stage)))
      boxes.get(stages[0]!)!.forEach((box, k) => line(`words from ${k}`, [[end(box, true)[0], top + unit * (HIGH - 44)], end(box, true)], ownOf(stages[0]!)));
    for (const stage of stages) for (const read of stage === sum ? [] : panel.reads[stage] ?? []) {
      const own = ownOf(stage), lower = boxes.get(read)!, upper = boxes.get(stage)!, far = stages.indexOf(stage) - stages.indexOf(read);
      for (let k = 0; k < Math.max(lower.length, upper.length); k++) {
        const a = lower[Math.min(k, lower.length - 1)]!, b = upper[Math.min(k, upper.length - 1)]!;
        const out = end(a, far < 0), into = end(b, far > 0);
        const alpha = read === "weights" ? { hue: 5, weight: rowOf(values.get(read)!, 0, from + k)[0]! } : {}; // a mean is a fan
        line(`${own} from ${read} ${k}`, alpha.hue ? [out, [out[0], into[1]], into, into] : far * far < 2 ? [out, into] : [side(a, 0), side(a, 5), side(b, 5), side(b, 0)], own, alpha);
      }
    }
    const turned = (y: number) => (sum ? 2 * top + unit * HIGH - y : y); // words are above, and a sum below what is added
    for (const node of nodes) node.box[1] = turned(node.box[1]) - (sum ? node.box[3] : 0);
    for (const edge of edges) edge.points = edge.points.map(([x, y]) => [x, turned(y)]);
  }

  /** A cell at one step: what it reads at the left, then each stage right of all that it is computed from; the line of the state is above. */
  function cell() {
    const columns = levelsOf(panel.reads), isLong = columns.has("cell"), road = isLong ? ["cell before", "kept", "cell"] : columns.has("kept") ? ["before", "kept", "state"] : [];
    const count = Math.max(...columns.values()) + 1, across = (WIDE - 20) / count, first = road.length ? 116 : 0, middles = new Map<string, number>(), left = (stage: string) => 12 + across * columns.get(stage)!, right = (stage: string) => left(stage) + across - APART;
    const hueOfStage = (stage: string) => (stage.endsWith(" gate") ? 5 : road.includes(stage) || stage === "state" ? 2 : columns.get(stage) ? 1 : null);
    const isReset = (stage: string) => stage === "candidate" && columns.has("reset gate");
    const signed = (stage: string) => (isReset(stage) || /kept|added/.test(stage) || (stage === "state" && isLong) ? "×" : columns.has("kept") && /^cell$|state/.test(stage) ? "+" : "");
    for (let level = 0; level < count; level++) {
      const stages = [...new Set([...DOWN, ...columns.keys()])].filter((stage) => columns.get(stage) === level), free = stages.filter((stage) => !road.includes(stage));
      for (const stage of stages) {
        const reads = panel.reads[stage]!.filter((read) => columns.get(read) && !road.includes(read)).map((read) => middles.get(read)!);
        const middle = road.includes(stage) ? 54 : road.length && reads.length ? reads.reduce((a, b) => a + b) / reads.length : first + ((HIGH - first) * (free.indexOf(stage) + 0.5)) / free.length;
        middles.set(stage, middle);
        const letter = panel.letters[stage] ?? stage, how = !level || stage === "sum" || (signed(stage) && !isReset(stage)) ? "" : stage.endsWith(" gate") ? " = σ(…)" : " = tanh(…)";
        put(ownOf(stage), "", boxAt(left(stage), middle - 50, across - APART, 100), ownOf(stage), { texts: [letter + how, ...Array.from(rowOf(values.get(stage)!, 0, panel.row).slice(0, 2), written)], hue: hueOfStage(stage), level: level || road.includes(stage) ? 0.25 : 0, detail: [panel.equations[stage]!] });
        if (signed(stage)) put(`${ownOf(stage)} sign`, signed(stage), boxAt(left(stage) - 34, middle - 17, 34, 34), ownOf(stage), { form: "plus" });
      }
    }
    for (const stage of columns.keys()) for (const read of panel.reads[stage]!) {
      const a = right(read), b = middles.get(read)!, x = left(stage), y = middles.get(stage)!, isRoad = road.includes(read), bus = a + (isRoad ? 36 : 20); // what is read comes by one line
      const isFar = columns.get(stage)! - columns.get(read)! > 1, to = isReset(stage) && !isRoad ? x + (across - APART) / 2 : x - 17; // h_{t−1} meets the reset gate, what is read the box
      const low = isRoad ? 537 : 557, enter = isRoad ? y - 24 : y, around = isFar ? [[bus, low], [to, low], [to, y + (to < x ? 18 : 50)]] : [[bus, enter], [x, enter]];
      const points = [[a, b], ...(!signed(stage) || isFar && isReset(stage) ? [[bus, b], ...around] : Math.abs(b - y) < 1 ? [[x - 34, y]] : [[x - 17, b], [x - 17, y + 18 * Math.sign(b - y)]])];
      if (isReset(stage) && to < x) label(stage, stage + " U", `U ${panel.letters[read]!} + b`, to - 190, y + 47, 170);
      line(`${ownOf(stage)} from ${read}`, points.map(([u, v]) => at(u!, v!)), ownOf(stage), { hue: hueOfStage(read), weight: isRoad && road.includes(stage) ? 0.5 : null });
    }
    label(ownOf([...columns.keys()][0]!), "few", `2 of ${values.get("state")!.shape[2]} numbers`, 0, road.length ? 110 : 0, across - 44);
    if (isLong) label("state", "state t", "tanh", left("state") - 4, 150, 80);
    else if (road.length) label("added", "added z", "1 − z", left("added") - 104, middles.get("update gate")! - 42, 90);
  }
}

/** How many stages have to be computed before each one. Pure. */
export function levelsOf(reads: Readonly<Record<string, readonly string[]>>): Map<string, number> {
  const levels = new Map<string, number>();
  const level = (stage: string): number => {
    const made = levels.get(stage) ?? Math.max(-1, ...(reads[stage] ?? []).map(level)) + 1;
    levels.set(stage, made);
    return made;
  };
  Object.keys(reads).forEach(level);
  return levels;
}
