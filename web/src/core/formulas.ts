// What is drawn of a demo when its sliders are dragged: one function for each, of the drawings that Python made.
import { additive, cosine, dot, entmax, gaussian, general, hardmax, range, scaledDot, sinusoid, softmax } from "./equations";
import { base64Of } from "./numbers";
import type { BarsDrawing, InteractiveDrawing, LinesDrawing, Numbers, SheetDrawing } from "./types";

export type Part = InteractiveDrawing["parts"][number];
/** The numbers that are dragged, by option: all values of one that has several. */
export type Dragged = Readonly<Record<string, number | number[]>>;
type Data = Readonly<Record<string, readonly number[]>>;
type Formula = (dragged: Dragged, data: Data, parts: readonly Part[]) => Part[];

const encoded = (rows: readonly (readonly number[])[]): Numbers =>
  ({ shape: [rows.length, rows[0]!.length], codec: "f32", url: "", data: base64Of(new Uint8Array(Float32Array.from(rows.flat()).buffer)) });
/** A number as Python's `:g` writes it; of fewer digits as `:.3g`. */
const plain = (value: number, digits = 6) => String(Number(value.toPrecision(digits)));

/** A sheet of other numbers; its ends are those of the numbers, 0 in the middle where signs differ. */
function sheetOf(part: Part, rows: readonly (readonly number[])[], others: Partial<SheetDrawing> = {}): SheetDrawing {
  const known = rows.flat().filter(Number.isFinite);
  let [least, most] = known.length ? [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] : [0, 0];
  if (least < 0 && most > 0) [least, most] = [-Math.max(most, -least), Math.max(most, -least)];
  return { ...(part as SheetDrawing), values: encoded(rows), least, most, ...others };
}

const TITLES = ["train times", "weather", "recipes", "news"];

function lookup(dragged: Dragged, { values = [] }: Data, [part]: readonly Part[]): Part[] {
  const { key, blend } = dragged as { key: number; blend: number }, count = values.length;
  const scores = values.map((_, k) => (k === key - 1 ? 1 - blend : 0) + (k === key % count ? blend : 0));
  const soft = (dragged.temperature as number[]).map((tau) => [tau === 1 ? "softmax" : `softmax, τ = ${plain(tau)}`, softmax(scores, tau)] as const);
  const columns = [["Q · K", scores] as const, ...soft, ["hardmax", hardmax(scores)] as const];
  const titles = range(count).map((k) => TITLES[k] ?? `key ${k + 1}`), result = columns.map(([, weights], k) => (k ? dot(weights, values).toFixed(1) : ""));
  const rows = values.map((_, i) => [...columns.map(([, column]) => column[i]!), NaN]);
  return [sheetOf(part!, [...rows, rows[0]!.map(() => NaN)], {
    title: `A lookup: the query asks for ${titles[key - 1]}`, columns: [...columns.map(([name]) => name), "V"], least: 0, most: 1,
    across: `Q: ${plain(1 - blend, 2)} ${titles[key - 1]} + ${plain(blend, 2)} ${titles[key % count]}`,
    cells: [...rows.map((row, i) => [...row.slice(0, -1).map((value) => value.toFixed(2)), plain(values[i]!)]), [...result, ""]],
  })];
}

function normalizers(dragged: Dragged, _: Data, [part]: readonly Part[]): Part[] {
  const scores = (dragged.scores as number[]), tau = dragged.temperature as number, alpha = dragged.alpha as number;
  const rows: Record<string, number[]> = {
    softmax: softmax(scores), [`softmax, τ = ${plain(tau)}`]: softmax(scores, tau), [`entmax, α = ${plain(alpha)}`]: entmax(scores, alpha),
    sparsemax: entmax(scores, 2), hardmax: hardmax(scores),
  };
  return [sheetOf(part!, Object.values(rows), {
    rows: Object.keys(rows), columns: scores.map((score) => plain(score).replace("-", "−")), least: 0, most: 1,
    cells: Object.values(rows).map((row) => row.map((weight) => (weight === 0 ? "0" : weight.toFixed(2)))),
  })];
}

function scores(dragged: Dragged, { reach = [], additive: v = [], general: w = [] }: Data, parts: readonly Part[]): Part[] {
  const far = reach[0]!, q = [dragged.x as number, dragged.y as number], points = (parts[0] as SheetDrawing).values.shape[0]!;
  const along = range(points).map((k) => -far + (2 * far * k) / (points - 1));
  const plane = (score: (k: number[]) => number) => along.map((y) => along.map((x) => score([x, -y])));
  const kinds: ((k: number[]) => number)[] = [
    (k) => cosine(q, k), (k) => additive(v, q, k), () => NaN, (k) => general(w, q, k), (k) => dot(q, k), (k) => scaledDot(q, k),
  ];
  const planes = kinds.map(plane), largest = [0, 3].map((from) => Math.max(...planes.slice(from, from + 3).flat(2).filter(Number.isFinite).map(Math.abs))); // of a row of sheets
  return planes.map((rows, n) => {
    const most = largest[Math.floor(n / 3)]!, name = parts[n]!.title.split(" · ").at(-1)!;
    return sheetOf(parts[n]!, rows, {
      title: `The score of a key in the plane, query (${plain(q[0]!)}, ${plain(q[1]!)}) · ${name}`,
      dots: [[((1 - q[1]! / far) / 2) * (points - 1), ((1 + q[0]! / far) / 2) * (points - 1)]], least: -most, most,
    });
  });
}

function scaling(dragged: Dragged, { scores: all = [] }: Data, [chart, bars]: readonly Part[]): Part[] {
  const size = dragged.size as number, place = Math.log2(size), { labels, series } = bars as BarsDrawing;
  const own = all.slice(place * labels.length, (place + 1) * labels.length);
  const weights = [softmax(own), softmax(own.map((e) => e / Math.sqrt(size)))];
  return [
    { ...(chart as LinesDrawing), marks: [{ x: size, label: `K = ${size}` }] },
    { ...(bars as BarsDrawing), title: `Weights of one query, K = ${size}`, series: series.map((each, k) => ({ ...each, values: weights[k]! })) },
  ];
}

function local(dragged: Dragged, { scores: all = [] }: Data, [part]: readonly Part[]): Part[] {
  const p = dragged.position as number, d = dragged.window as number, chart = part as BarsDrawing;
  const inside = softmax(all.map((e, s) => (Math.abs(s - p) <= d ? e : -Infinity)));
  const weights = [inside, inside.map((weight, s) => weight * gaussian(s - p, d / 2))];
  return [{ ...chart, title: `The window p − D … p + D, p = ${plain(p)}, D = ${plain(d)}, σ = D/2`, series: chart.series.map((each, k) => ({ ...each, values: weights[k]! })) }];
}

/** The cosines of two vectors each. */
function products(part: Part, vectors: readonly (readonly number[])[]): SheetDrawing {
  const all = vectors.map((a) => vectors.map((b) => cosine(a, b)));
  return sheetOf(part, all);
}

function sinusoids(dragged: Dragged, _: Data, parts: readonly Part[]): Part[] {
  const { length, hidden_size: size, base } = dragged as { length: number; hidden_size: number; base: number };
  const vectors = range(length).map((t) => sinusoid(t, size, base));
  const halves = ["sin", "cos"].map((name, first) => {
    const title = `${parts[first]!.title.split(" · ")[0]} · ${name}(t / ${plain(base)}^(2i/d))`;
    return sheetOf(parts[first]!, vectors.map((row) => row.filter((_, d) => d % 2 === first)), { title, aspect: size / 2 / length, least: -1, most: 1 });
  });
  return [...halves, products(parts[2]!, vectors)];
}

export const FORMULAS: Readonly<Record<string, Formula>> = { lookup, normalizers, scores, scaling, local, sinusoids };
