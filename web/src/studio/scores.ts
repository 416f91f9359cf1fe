// Scores of examples by the length of their sources, with intervals. Pure functions.
import type { BarsDrawing } from "../core";
import type { Evaluated, EvaluatedExample } from "./api";
import { figureName } from "./words";

const ROUNDS = 1000, MOST_BINS = 8, LEAST = 5; // of the bootstrap; of the chart; examples of a bin

/** The same numbers from 0 to 1 in every run (mulberry32). */
export function drawing(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** The middle 95 % of means of as many values, drawn with replacement (Efron, 1979). */
export function interval(values: readonly number[], random: () => number): [number, number] {
  const means = Array.from({ length: ROUNDS }, () => mean(values.map(() => values[Math.floor(random() * values.length)]!))).sort((a, b) => a - b);
  return [means[Math.floor(0.025 * ROUNDS)]!, means[Math.ceil(0.975 * ROUNDS) - 1]!];
}

interface Bin { from: number; to: number; values: number[] }

/** Bins of lengths with about as many examples in each; one length is never in two of them. */
export function bins(rows: readonly EvaluatedExample[], most = MOST_BINS): Bin[] {
  const known = rows.filter((row): row is EvaluatedExample & { score: number } => row.score !== null).sort((a, b) => a.length - b.length);
  const size = Math.max(LEAST, Math.ceil(known.length / most)), made: Bin[] = [];
  for (const { length, score } of known) {
    const last = made.at(-1);
    if (!last || (last.values.length >= size && length !== last.to)) made.push({ from: length, to: length, values: [score] });
    else Object.assign(last, { to: length, values: [...last.values, score] });
  }
  const end = made.at(-1), before = made.at(-2);
  if (end && before && end.values.length < LEAST) {
    made.pop();
    Object.assign(before, { to: end.to, values: [...before.values, ...end.values] });
  }
  return made;
}

/** The chart of scores by length; nothing where all are as long as each other. */
export function byLength({ rows, scored }: Evaluated): BarsDrawing | undefined {
  const all = bins(rows), random = drawing(1);
  if (all.length < 2) return undefined;
  const ends = all.map(({ values }) => interval(values, random));
  return {
    kind: "bars", title: `${figureName(scored)} by source length`, caption: "Mean of bins with about equally many examples; whiskers: 95 % by bootstrap over examples.",
    notes: [`examples per bin: ${all.map(({ values }) => values.length).join(", ")}`],
    labels: all.map(({ from, to }) => (from === to ? String(from) : `${from}–${to}`)),
    series: [{ name: figureName(scored), values: all.map(({ values }) => mean(values)), low: ends.map(([low]) => low), high: ends.map(([, high]) => high) }],
    up: figureName(scored), across: "source length in words", at: null,
  };
}

export type Column = "score" | "length" | "source" | "reference" | "output" | "i";

/** Rows in the order of a column; `-` before its name turns it round. */
export function sorted(rows: readonly EvaluatedExample[], by: string): EvaluatedExample[] {
  const turned = by.startsWith("-"), column = by.replace(/^-/, "") as Column, sign = turned ? -1 : 1;
  const value = (row: EvaluatedExample) => row[column] ?? null;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) || a.i - b.i;
  });
}
