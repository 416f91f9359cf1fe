import { expect, test } from "vitest";
import { insideOf, largestOf, levelsOf } from "../src/core/insides";
import { between, isLit, isShown, rowOf, stacked } from "../src/core/scene";
import type { Values } from "../src/core/numbers";
import type { ScenePanel } from "../src/core/types";

const PANEL: Omit<ScenePanel, "node" | "rows"> = { columns: [], values: {}, equations: {}, letters: {}, reads: {}, tokens: {}, units: {}, score: "", normalizer: "", head: 0, row: 0 };

test("the camera begins and ends at its stops, and the place that both share stays where it is", () => {
  const whole: [number, number, number, number] = [0, 0, 1240, 560], near: [number, number, number, number] = [100, 50, 124, 56];
  expect(between(whole, near, 0)).toEqual(whole);
  between(whole, near, 1).forEach((side, k) => expect(side).toBeCloseTo(near[k]!));
  const half = between(whole, near, 0.5); // a zoom about one point: it is at the same share of every picture
  const share = (box: readonly number[]) => ((1000 / 9 - box[0]!) / box[2]!);
  expect(share(half)).toBeCloseTo(share(whole));
  expect(share(half)).toBeCloseTo(share(near));
  expect(between(whole, [620, 0, 1240, 560], 0.5)[0]).toBeCloseTo(310);
});

test("a stop lights what begins with its names, whole words only", () => {
  expect(isLit({ lit: ["cell 1"] }, "cell 1 in")).toBe(true);
  expect(isLit({ lit: ["cell 1"] }, "cell 12")).toBe(false);
  expect(isLit({ lit: [] }, "anything")).toBe(true);
  expect([isShown({ shows: ["a"] }, ""), isShown({ shows: ["a"] }, "a"), isShown({ shows: ["a"] }, "b")]).toEqual([true, true, false]);
});

test("of many keys the heaviest are kept, in the order of the text", () => {
  expect(largestOf([0.1, 0.5, 0.05, 0.35], 2)).toEqual([1, 3]);
});

test("a stage stands right of all that it is computed from", () => {
  const levels = levelsOf({ input: [], before: [], gate: ["input", "before"], kept: ["gate", "before"], state: ["kept"] });
  expect([...levels]).toEqual([["input", 0], ["before", 0], ["gate", 1], ["kept", 2], ["state", 3]]);
});

test("inside an attention the largest weight is an arc and each number stands in its box", () => {
  const made = (shape: number[], numbers: number[]): Values => ({ shape, raw: Float32Array.from(numbers), unit: 1 });
  const values = new Map(Object.entries({
    weights: made([1, 1, 2], [0.25, 0.75]), score: made([1, 1, 2], [1, 2]), query: made([1, 1, 2], [1, 0]), key: made([1, 2, 2], [1, 0, 2, 0]),
    value: made([1, 2, 2], [4, 0, 8, 0]), context: made([1, 1, 2], [7, 0]), output: made([1, 1, 1], [14]),
  }));
  const panel: ScenePanel = { ...PANEL, node: "a", rows: ["q"], columns: ["k", "l"] };
  const { nodes, edges } = insideOf(panel, values, [0, 0, 1240, 560]);
  const arcs = edges.filter(({ name }) => name.startsWith("a head 0 query 0"));
  expect(arcs.map(({ weight }) => weight)).toEqual([0.75]);
  expect(arcs[0]!.points.at(-1)![0]).toBe(930); // at its word
  const texts = (name: string) => nodes.find((node) => node.name === name)?.texts;
  expect([texts("a e 1"), texts("a α 1"), texts("a c own"), texts("a o out")]).toEqual([["2.00"], ["0.75"], ["7.00 ⋯"], ["14.00"]]);
  for (const { box: [x, y, w, h] } of nodes) expect(x >= 0 && y >= 0 && x + w <= 1240.01 && y + h <= 560.01).toBe(true);
});

test("inside an attention no line is behind a box or close to one, and the deciding key is worked out", () => {
  const made = (shape: number[], number: (k: number) => number): Values => ({ shape, raw: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, k) => number(k)), unit: 1 });
  for (const n of [2, 5, 7, 9]) for (const isOne of [true, false]) {
    const vectors = made([1, n, 4], (k) => (k % 5) - 2), words = Array.from({ length: n }, (_, k) => `w${k}`), total = Array.from({ length: n }, (_, k) => Math.exp(k)).reduce((a, b) => a + b);
    const values = new Map(Object.entries({ weights: made([1, n, n], (k) => Math.exp(k % n) / total), score: made([1, n, n], (k) => k % n), query: vectors, key: vectors, value: vectors, context: vectors, output: vectors, h: vectors, memory: vectors }));
    const panel: ScenePanel = { ...PANEL, node: "a", rows: isOne ? words : [...words].reverse(), columns: words, score: "scaled_dot", normalizer: "softmax" };
    const { nodes, edges } = insideOf(panel, values, [0, 0, 1240, 560]), isStage = ({ tag }: { tag: string }) => /^a [hqkeαvc]$/.test(tag);
    const boxes = nodes.filter((node) => isStage(node) && node.form === "box"), far = ([x, y]: readonly number[], [u, v, w, tall]: readonly number[]) => Math.hypot(Math.max(u! - x!, 0, x! - u! - w!), Math.max(v! - y!, 0, y! - v! - tall!));
    for (const { name, points } of edges.filter(isStage)) for (const { name: box, box: place } of boxes) {
      if (Math.min(far(points[0]!, place), far(points.at(-1)!, place)) < 4) continue; // its ends
      const way = points.slice(1).flatMap(([x, y], k) => Array.from({ length: 100 }, (_, t) => [points[k]![0] + ((x - points[k]![0]) * t) / 99, points[k]![1] + ((y - points[k]![1]) * t) / 99]));
      expect(Math.min(...way.map((point) => far(point, place))), `${n}: ${name} near ${box}`).toBeGreaterThanOrEqual(9);
    }
    const hues = { q: 1, k: 0, v: 2, "α": 5, c: 3 } as Record<string, number>; // as in colors.py
    for (const { name, tag, hue } of boxes) if (hue !== null && !name.startsWith("a h ")) expect(hue, name).toBe(hues[tag.slice(2)]);
    const label = (name: string) => nodes.find((node) => node.name === `a ${name} work`)!.label, last = (n - 1).toFixed(2), sum = (total / Math.exp(n - 1)).toFixed(2);
    expect(label("e")).toMatch(new RegExp(`^“w${n - 1}”: e = .* \\+ …\\) / √4 = ${last}$`));
    expect(label("α")).toBe(`“w${n - 1}”: α = exp(${last} − max e) / Σ = 1 / ${sum} = ${(Math.exp(n - 1) / total).toFixed(2)}`);
  }
});

test("over each word stand the numbers of a layer, straight up, and zeros of a ReLU are grey", () => {
  const made = (shape: number[], numbers: number[]): Values => ({ shape, raw: Float32Array.from(numbers), unit: 1 });
  const values = new Map(Object.entries({ x: made([1, 2, 2], [-1, 2, 3, 4]), activation: made([1, 2, 2], [0, 5, 6, 0]), softmax: made([1, 2, 1], [0.75, 0.5]) }));
  const panel: ScenePanel = { ...PANEL, node: "f", rows: ["the", "dog"], reads: { activation: ["x"], softmax: ["activation"] }, tokens: { softmax: [["le"], ["chien"]] } };
  const { nodes, edges } = insideOf(panel, values, [0, 0, 1240, 560]);
  const texts = (name: string) => nodes.find((node) => node.name === name)?.texts;
  expect([texts("f x 1 0"), texts("f activation 0 0"), texts("f activation 1 0"), texts("f softmax 1 0")]).toEqual([["3.00"], ["0"], ["6.00"], ["chien", "0.50"]]); // below 0 another colour, 0 none
  for (const { name, texts: said = [], hue } of nodes) if (/^f (x|activation) \d/.test(name)) expect(hue, name).toBe(said[0] === "0" ? null : said[0]!.startsWith("−") ? 1 : 6);
  for (const { points } of edges) expect(points.every(([x]) => Math.abs(x - points[0]![0]) < 1e-9)).toBe(true);
  for (const { box: [x, y, w, h] } of nodes) expect(x >= 0 && y >= 0 && x + w <= 1240.01 && y + h <= 560.01).toBe(true);
});

test("a gradient goes down, with two digits that count, and no number stands without a target", () => {
  const made = (numbers: number[]): Values => ({ shape: [1, 2, 1], raw: Float32Array.from(numbers), unit: 1 });
  const values = new Map(Object.entries({ "gradient of norm": made([0.00123, 0.5]), loss: made([NaN, 2]) }));
  const panel: ScenePanel = { ...PANEL, node: "f", rows: ["the", "dog"], reads: { "gradient of norm": ["loss"] }, tokens: { loss: [[], ["chien"]] } };
  const { nodes, edges } = insideOf(panel, values, [0, 0, 1240, 560]);
  const texts = (name: string) => nodes.find((node) => node.name === name)?.texts;
  expect([texts("f gradient-of-norm 0 0"), texts("f loss 0 0"), texts("f loss 1 0")]).toEqual([["0.0012"], undefined, ["chien", "2.00"]]);
  expect(edges[0]!.points[0]![1]).toBeLessThan(edges[0]!.points[1]![1]);
});

test("the row of a map is the nearest row that begins its word, of pieces or of equal words", () => {
  const walk = (row: number) => ({ rows: ["the", "houses", "the"], walk: { row, why: "" } });
  expect(rowOf(walk(1), ["▁the", "▁house", "s", "▁the"])).toBe(1);
  expect([rowOf(walk(0), ["the", "house", "s", "the"]), rowOf(walk(2), ["the", "house", "s", "the"])]).toEqual([0, 3]);
  expect(rowOf({}, ["the"])).toBeUndefined();
});

test("all scores are a matrix beside the queries and under the keys, within the picture", () => {
  const made = (shape: number[]): Values => ({ shape, raw: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, k) => k / 10), unit: 1 });
  for (const n of [2, 9]) {
    const pair = [1, n, n], vectors = [1, n, 4], words = Array.from({ length: n }, (_, k) => `w${k}`);
    const values = new Map(Object.entries({ weights: made(pair), score: made(pair), query: made(vectors), key: made(vectors), value: made(vectors), context: made(vectors), output: made(vectors) }));
    const panel: ScenePanel = { ...PANEL, node: "a", rows: words, columns: words, row: 1 };
    const { nodes } = insideOf(panel, values, [0, 0, 1240, 560]);
    expect(nodes.filter(({ name }) => name.startsWith("a E e "))).toHaveLength(n * n);
    for (const text of ["Q, 3 of 4", "Kᵀ, 3 of 4", "V, 2 of 4"]) expect(nodes.some(({ label }) => label === text), text).toBe(true);
    for (const { name, box: [x, y, w, h] } of nodes) expect(x >= 0 && y >= 0 && x + w <= 1240.01 && y + h <= 560.01, name).toBe(true);
  }
});

test("a line between two parts that are drawn one below the other is whole, in either direction", () => {
  const line: [number, number][] = [[108, 102], [620, 102], [620, 250], [656, 250]], moved = stacked(line);
  expect(moved[0]).toEqual([108, 102]);
  expect(moved.at(-1)![0]).toBe(656 - 620);
  expect(moved.every(([x], k) => x > 0 && x < 620 && (!k || x === moved[k - 1]![0] || moved[k]![1] === moved[k - 1]![1]))).toBe(true);
  expect(stacked([...line].reverse())).toEqual([...moved].reverse());
  for (const own of [line.slice(0, 2).map(([, y]) => [100, y] as [number, number]), line.slice(2).map(([x, y]) => [x + 30, y] as [number, number])]) expect(stacked(own)).toEqual(own);
});
