// A frame of two axes in SVG: from values to pixels, with marks, names and a grid. For lines and bars.
import { fitted, s, tallOf, widthOf } from "./dom";
import { logTicks, marked, ticks } from "./text";

export interface Axis { least: number; most: number; log: boolean }

/** From values to pixels between two ends. */
export type Map1 = (value: number) => number;

export function along({ least, most, log }: Axis, from: number, to: number): Map1 {
  const f = log ? Math.log10 : (v: number) => v, low = f(least), span = f(most) - low || 1;
  return (value) => from + ((f(value) - low) / span) * (to - from);
}

export const marksOf = (axis: Axis, count: number): number[] =>
  axis.log ? logTicks(axis.least, axis.most) : ticks(axis.least, axis.most, count);

/** The ends of finite values, with some air; those that a log axis can have. */
export function endsOf(values: Iterable<number | null>, log: boolean, air = 0.04): Axis {
  let least = Infinity, most = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  if (least > most) [least, most] = log ? [1, 10] : [0, 1];
  if (least === most) [least, most] = log ? [least / 2, most * 2] : [least - (Math.abs(least) * 0.1 || 0.5), most + (Math.abs(most) * 0.1 || 0.5)];
  if (log) return { least: least / (most / least) ** air, most: most * (most / least) ** air, log };
  return { least: air && least >= 0 && 2 * least < most ? 0 : least - air * (most - least), most: most + air * (most - least), log };
}

export interface Box { left: number; top: number; right: number; bottom: number }

const APART = 16, LEAST = 120; // pixels from a mark to the next above it; that a chart is high at least

/** Pixels that a chart may be high where there is room. */
export const highOf = (element: Element, most: number): number => Math.max(LEAST, Math.min(most, tallOf(element)));

/** Room for the marks of the axis that goes up, and for both names. */
export function boxOf(width: number, height: number, axis: Axis, up: string, across: string, words = 0): Box {
  const marks = [2, 3, 4, 5].flatMap((count) => marked(marksOf(axis, count))); // a low chart has fewer
  return {
    left: Math.max(...marks.map((m) => widthOf(m, 12))) + 12, right: width - 12, top: up ? 26 : 10,
    bottom: height - 22 - words - (across ? 20 : 0),
  };
}

/** Where the lines of an axis that goes up are. */
export function rulesOf(box: Box, axis: Axis): number[] {
  const y = along(axis, box.bottom, box.top);
  let free = Infinity;
  return marksOf(axis, Math.max(2, Math.min(5, Math.floor((box.bottom - box.top) / (2 * APART))))).filter((value) => {
    if (y(value) > free) return false;
    free = y(value) - APART;
    return true;
  });
}

/** The axis that goes up: its grid and marks, and its name above, where it has room. */
export function upward(box: Box, axis: Axis, name: string): SVGElement[] {
  const y = along(axis, box.bottom, box.top), written = rulesOf(box, axis);
  const texts = marked(written);
  return [
    ...written.flatMap((value, k) => [
      s("path", { class: "fv-rule-line", d: `M${box.left} ${y(value)}H${box.right}` }),
      s("text", { class: "fv-quiet", x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, texts[k]!),
    ]),
    ...(name ? [s("text", { class: "fv-quiet", x: 2, y: 12 }, fitted(name, box.right - 2, 12))] : []),
  ];
}

/** The axis that goes across: its marks (value or label at a place) and its name. */
export function across(box: Box, places: readonly (readonly [number, string])[], name: string, height: number): SVGElement[] {
  let free = -Infinity;
  const written = [...places].sort((a, b) => a[0] - b[0]).filter(([x, text]) => {
    const half = widthOf(text, 12) / 2;
    if (x - half < free) return false;
    free = x + half + 10;
    return true;
  });
  return [
    s("path", { class: "fv-axis", d: `M${box.left} ${box.bottom}H${box.right}` }),
    ...written.flatMap(([x, text]) => {
      const half = widthOf(text, 12) / 2, at = Math.max(half, Math.min(box.right + 10 - half, x));
      return [s("path", { class: "fv-axis", d: `M${x} ${box.bottom}v4` }),
        s("text", { class: "fv-quiet", x: at, y: box.bottom + 17, "text-anchor": "middle" }, text)];
    }),
    ...(name ? [s("text", { class: "fv-quiet", x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, name)] : []),
  ];
}
