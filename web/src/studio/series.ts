// Curves of trainings over one axis: what a log says, joined for a drawing. Pure functions.
import type { LinesDrawing } from "../core";
import type { SeriesOf, TrainingEvent } from "./api";
import { FIGURES } from "./words";

export interface Points { steps: number[]; seconds: (number | null)[]; values: (number | null)[] }
/** The curves of one training by their keys, such as train.loss. */
export type Curves = ReadonlyMap<string, Points>;
export type Across = "step" | "time";

export const curvesOf = ({ curves }: SeriesOf): Curves => new Map(curves.map(({ key, ...points }) => [key, points]));

/** The curves with a line of the log more; a cut takes away what lies behind its step. */
export function grown(curves: Curves, { event, step, seconds, values }: TrainingEvent): Curves {
  if (event === "cut") return new Map([...curves].map(([key, points]) => [key, until(points, step)]));
  const made = new Map(curves);
  for (const [name, value] of Object.entries(values ?? {})) {
    const key = `${event}.${name}`, points = made.get(key) ?? { steps: [], seconds: [], values: [] };
    if ((points.steps.at(-1) ?? -1) >= step) continue; // told before
    made.set(key, { steps: [...points.steps, step], seconds: [...points.seconds, seconds ?? null], values: [...points.values, value] });
  }
  return made;
}

function until({ steps, seconds, values }: Points, step: number): Points {
  const count = steps.filter((at) => at <= step).length;
  return { steps: steps.slice(0, count), seconds: seconds.slice(0, count), values: values.slice(0, count) };
}

interface Line { name: string; hue: number; x: number[]; y: (number | null)[] }

/** Values of a line at other places: between its points straight, outside them nothing. */
export function resampled({ x, y }: Pick<Line, "x" | "y">, places: readonly number[]): (number | null)[] {
  const made: (number | null)[] = [];
  let k = 0;
  for (const at of places) {
    while (k + 1 < x.length && x[k + 1]! <= at) k++;
    const from = x[k], to = x[k + 1], a = y[k] ?? null, b = y[k + 1] ?? null;
    if (from === undefined || at < from || (to === undefined && at > from)) made.push(null);
    else if (at === from || to === undefined) made.push(a);
    else made.push(a === null || b === null ? null : a + ((b - a) * (at - from)) / (to - from));
  }
  return made;
}

export interface Chart { title: string; up: string; keys: string[]; log?: boolean }

const TOLD: Record<string, string> = { ...FIGURES, objective: "training objective", lr: "learning rate", grad_norm: "norm of the gradient", tokens_per_second: "tokens per second", memory_mib: "memory, MiB", bits_per_character: "bits per character" };
const LAST = ["lr", "grad_norm", "tokens_per_second", "memory_mib"], SKIPPED = ["target_tokens", "best", "source_tokens"];
const named = (name: string) => TOLD[name] ?? name.replaceAll("_", " ");

/**
 * The charts that some keys make: the loss first, scores, then rate, gradient and speed.
 *
 * The loss of a validation is the negative log-likelihood, so that of training beside it is `train.nll`;
 * `train.loss`, what training minimises (with label smoothing, for example), has a chart of its own.
 */
export function chartsOf(keys: readonly string[]): Chart[] {
  const split = keys.includes("train.nll");
  const nameOf = (key: string) => (split && key === "train.nll" ? "loss" : split && key === "train.loss" ? "objective" : key.slice(key.indexOf(".") + 1));
  const names = [...new Set(keys.map(nameOf))].filter((name) => !SKIPPED.includes(name) && name !== "nll");
  const rank = (name: string) => (name === "loss" ? -1 : LAST.indexOf(name) + 1 || 0);
  return names.sort((a, b) => rank(a) - rank(b)).map((name) => ({
    title: /^\S*[A-Z]/.test(named(name)) ? named(name) : named(name).replace(/^./, (c) => c.toUpperCase()), up: named(name), keys: keys.filter((key) => nameOf(key) === name), log: name === "grad_norm",
  }));
}

/** One chart of some trainings, each with one colour; the axis of one that goes on reaches from 0 to its last of `steps`. */
export function drawn(chart: Chart, all: ReadonlyMap<string, Curves>, across: Across, steps = 0): LinesDrawing {
  const lines: Line[] = [...all].flatMap(([id, curves], hue) => chart.keys.flatMap((key) => {
    const points = curves.get(key);
    if (!points?.steps.length) return [];
    const x = across === "step" ? points.steps : points.seconds.map((value) => (value ?? NaN) / 60);
    const kept = x.map((at, k) => ({ at, value: points.values[k] ?? null })).filter(({ at }) => Number.isFinite(at));
    const kind = chart.keys.length > 1 ? ` ${key.split(".", 1)[0]}` : "";
    return [{ name: `${all.size > 1 ? id : kind ? "" : id}${kind}`.trim(), hue, x: kept.map(({ at }) => at), y: kept.map(({ value }) => value) }];
  }));
  const places = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const title = chart.title;
  return { kind: "lines", title, caption: "", notes: [], x: places, curves: lines.map((line) => ({ name: line.name, y: resampled(line, places), low: [], high: [], hue: line.hue, faint: false })),
    joined: true, ends: steps && across === "step" ? [0, steps] : null, across: across === "step" ? "step" : "minutes", up: "", log: chart.log ? "y" : "", labels: [], named: false, marks: [] };
}
