// What is drawn of a demo when its sliders are dragged: one function for each, of the drawings that Python made.
import { additive, cosine, dot, gaussian, general, range, scaledDot, softmax } from "./equations";
import { base64Of } from "./numbers";
import type { BarsDrawing, InteractiveDrawing, Numbers, SheetDrawing } from "./types";

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

function scores(dragged: Dragged, { reach = [], additive: v = [], general: w = [] }: Data, parts: readonly Part[]): Part[] {
  const far = reach[0]!, q = [dragged.x as number, dragged.y as number], points = (parts[0] as SheetDrawing).values.shape[0]!;
  const along = range(points).map((k) => -far + (2 * far * k) / (points - 1));
  const plane = (score: (k: number[]) => number) => along.map((y) => along.map((x) => score([x, -y])));
  const kinds: ((k: number[]) => number)[] = [
    (k) => cosine(q, k), (k) => additive(v, q, k), () => NaN, (k) => general(w, q, k), (k) => dot(q, k), (k) => scaledDot(q, k),
  ];
  const planes = kinds.map(plane), largest = [0, 3].map((from) => Math.max(...planes.slice(from, from + 3).flat(2).filter(Number.isFinite).map(Math.abs))); // of a row of sheets
  return planes.map((rows, n) => {
    const most = largest[Math.floor(n / 3)]!, name = parts[n]!.title.split(") · ")[1]!;
    return sheetOf(parts[n]!, rows, {
      title: `The score of a key in the plane, query (${plain(q[0]!)}, ${plain(q[1]!)}) · ${name}`,
      dots: [[((1 - q[1]! / far) / 2) * (points - 1), ((1 + q[0]! / far) / 2) * (points - 1)]], least: -most, most,
    });
  });
}

function local(dragged: Dragged, { scores: all = [] }: Data, [part]: readonly Part[]): Part[] {
  const p = dragged.position as number, d = dragged.window as number, chart = part as BarsDrawing;
  const inside = softmax(all.map((e, s) => (Math.abs(s - p) <= d ? e : -Infinity)));
  const weights = [inside, inside.map((weight, s) => weight * gaussian(s - p, d / 2))];
  return [{ ...chart, title: `The window p − D … p + D, p = ${plain(p)}, D = ${plain(d)}, σ = D/2`, series: chart.series.map((each, k) => ({ ...each, values: weights[k]! })) }];
}

export const FORMULAS: Readonly<Record<string, Formula>> = { scores, local };
