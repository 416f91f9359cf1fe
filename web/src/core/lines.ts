// Lines over one axis: curves of training, errors against distance, a forecast with its fan.
import { across, along, boxOf, endsOf, highOf, marksOf, rulesOf, upward, type Box, type Map1 } from "./axes";
import { fill, h, put, s, tallOf, widthOf, zoomOf } from "./dom";
import type { Draw } from "./stage";
import { alongOf } from "./keys";
import { figure, marked } from "./text";
import { seriesTwin } from "./twin";
import type { Curve, LinesDrawing } from "./types";

const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 5", "4 2 1 2", "1 3"];
const HEIGHT = 300, POINT = 3; // pixels; of a point from its middle
const ROW = 15, SIDE = 0.24, BESIDE = 8; // pixels of a line of a name; of the width, names beside the ends of curves at most; pixels from the end to its name
const FEW = 24, NAMED = 0.12; // places of which each is marked; air of the axis that goes up, around points with names

/** The points of a curve as a path; blanks break it. More points than pixels become least and most of each pixel. */
export function pathOf(xs: readonly number[], ys: readonly (number | null)[], x: Map1, y: Map1, wide: number): string {
  const points: ([number, number] | null)[] = xs.map((at, k) => {
    const value = ys[k];
    const [px, py] = value === null || value === undefined ? [NaN, NaN] : [x(at), y(value)];
    return Number.isFinite(px) && Number.isFinite(py) ? [px, py] : null;
  });
  let path = "", open = false;
  for (const point of points.length > 4 * wide ? thinned(points) : points) {
    if (point) path += `${open ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    open = point !== null;
  }
  return path;
}

/** Of the points of each pixel column the first, the lowest, the highest and the last. */
function thinned(points: ([number, number] | null)[]): ([number, number] | null)[] {
  const made: ([number, number] | null)[] = [];
  let run: [number, number][] = [];
  const close = () => {
    const sorted = [...run].sort((a, b) => a[1] - b[1]), kept = new Set([run[0], sorted[0], sorted.at(-1), run.at(-1)]);
    made.push(...run.filter((point) => kept.has(point)));
    run = [];
  };
  for (const point of points) {
    if (run.length && (!point || Math.floor(point[0]) !== Math.floor(run[0]![0]))) close();
    if (point) run.push(point);
    else made.push(null);
  }
  if (run.length) close();
  return made;
}

function band(xs: readonly number[], { low, high }: Curve, x: Map1, y: Map1): string {
  const there = xs.map((_, k) => k).filter((k) => Number.isFinite(low[k] ?? NaN) && Number.isFinite(high[k] ?? NaN));
  if (!there.length) return "";
  const at = (k: number, v: number) => `${x(xs[k]!).toFixed(1)} ${y(v).toFixed(1)}`;
  return `M${there.map((k) => at(k, high[k]!)).join("L")}L${there.reverse().map((k) => at(k, low[k]!)).join("L")}Z`;
}

/** Where a name of so many pixels stands beside each point (left edge and middle line): at the corner where it covers least of the others; without lines from point to point, at its side, on none of the `rules`. */
export function besidePoints(points: readonly (readonly [number, number])[], widths: readonly number[], { left, right, top, bottom }: Box, rules?: readonly number[] | false): [number, number][] {
  const between = points.slice(rules ? 99 : 1).flatMap(([x, y], k) => [0.2, 0.4, 0.6, 0.8].map((n) => [x + n * (points[k]![0] - x), y + n * (points[k]![1] - y)] as const)); // the line, if any
  const taken = [...points, ...between].map(([x, y]) => [x - 4, y - 4, x + 4, y + 4]);
  return points.map(([x, y], k) => {
    const wide = widths[k]! + 4, away = -wide - 5;
    const places = [...(rules ? [[away, 0], [8, 0]] : []), [away, -12], [8, 14], [8, 3], [8, -12], [away, 14], [-wide / 2, -16]].map(([across, down]) => [Math.max(left + 2, Math.min(right - wide, x + across!)), y + down!] as [number, number]);
    const boxOf = ([from, middle]: [number, number]) => [from, middle - 8, from + wide, middle + 8];
    const cost = (place: [number, number]) => {
      const [a, b, c, d] = boxOf(place) as [number, number, number, number];
      const far = points.map(([u, v]) => Math.max(0, u - c, a - u) + Math.max(0, v - d, b - v)); // a name is nearest to its own point
      return taken.reduce((sum, [l, t, r, u]) => sum + Math.max(0, Math.min(c, r!) - Math.max(a, l!)) * Math.max(0, Math.min(d, u!) - Math.max(b, t!)), far.filter((one) => one < far[k]! + 2).length * 64 + (b < top || d > bottom || (rules && rules.some((y) => Math.abs(y - place[1]) < 7)) ? 1e4 : 0));
    };
    const best = places.reduce((one, other) => (cost(other) < cost(one) ? other : one));
    taken.push(boxOf(best));
    return best;
  });
}

/** A text in lines of so many pixels, broken at blanks. */
export function broken(text: string, room: number): string[] {
  return text.split(" ").reduce<string[]>((lines, word) => {
    const longer = `${lines.at(-1)} ${word}`;
    return lines.length && widthOf(longer, 12) <= room ? [...lines.slice(0, -1), longer] : [...lines, word];
  }, []);
}

/** The middles of names so high (in pixels) that wish to stand at some heights: as near as they can without touching, between top and bottom. Pure. */
export function apart(wishes: readonly number[], heights: readonly number[], top: number, bottom: number): number[] {
  const order = wishes.map((_, k) => k).sort((a, b) => wishes[a]! - wishes[b]!), made = [...wishes];
  for (const [sign, end] of [[1, top], [-1, -bottom]] as const) { // down from the top, then up from the bottom
    order.reduce((free, k) => {
      made[k] = sign * Math.max(free + heights[k]! / 2, sign * made[k]!);
      return sign * made[k]! + heights[k]! / 2;
    }, end);
    order.reverse();
  }
  return made;
}

const isBlank = (value: number | null | undefined) => value == null;

/** Whether a place has a point: all that are there, where they are few; else those that no line reaches. */
export const pointed = (ys: readonly (number | null)[], i: number): boolean =>
  !isBlank(ys[i]) && (ys.length <= FEW || (isBlank(ys[i - 1]) && isBlank(ys[i + 1])));

/** The numbers of the hue and of the dash of each curve: dashes tell the curves of one hue apart. */
export function looksOf(curves: readonly Curve[]): [number, number][] {
  const hues = curves.map(({ hue }, k) => hue ?? k), clear = hues.filter((_, k) => !curves[k]!.faint), seen = new Map<number, number>();
  const several = new Set(clear).size < clear.length;
  return curves.map(({ faint }, k) => {
    const hue = hues[k]!, before = seen.get(hue) ?? 0;
    if (!faint) seen.set(hue, before + 1);
    return [hue, faint ? 0 : several ? before : hue];
  });
}

/** The place on the axis that is nearest. */
export function nearest(xs: readonly number[], wanted: number): number {
  return xs.reduce((best, x, k) => (Math.abs(x - wanted) < Math.abs(xs[best]! - wanted) ? k : best), 0);
}

export const lines: Draw<LinesDrawing> = ({ body, memory, selection }, drawing) => {
  const { x: xs, curves, labels, marks } = drawing;
  const hidden = (memory.get("hidden") as Set<string> | undefined) ?? new Set<string>();
  memory.set("hidden", hidden);
  let place = marks[0] && !labels.length ? nearest(xs, marks[0].x) : xs.length - 1, x: Map1 = (v) => v, low = 0;
  const svg = s("svg", { class: "fv-plot", "aria-hidden": "true" });
  const cross = s("path", { class: "fv-cross" }), reading = h("output", { class: "fv-reading fv-small" });
  const box = h("div", { class: "fv-chart", tabindex: 0, role: "application", "aria-roledescription": "lines", "aria-label": drawing.title || "lines" }, svg);
  const looks = looksOf(curves), dash = (k: number) => (drawing.joined ? DASHES[looks[k]![1] % 7]! : "");
  const look = (k: number) => `fv-line-${looks[k]![0] % 7}${curves[k]!.faint ? " fv-faint" : ""}`;
  const keys = h("div", { class: "fv-keys-row" }, ...curves.map((curve, k) => {
    const sample = s("svg", { width: 26, height: 10, "aria-hidden": "true" },
      s("path", { class: `fv-curve ${look(k)}`, d: drawing.joined ? "M1 5H25" : "M11 5H15", "stroke-dasharray": dash(k) }));
    const press = () => {
      if (!hidden.delete(curve.name)) hidden.add(curve.name);
      button.setAttribute("aria-pressed", String(!hidden.has(curve.name)));
      draw();
    };
    const button = h("button", { type: "button", class: "fv-key", "aria-pressed": String(!hidden.has(curve.name)), click: press }, sample, curve.name);
    return button;
  }));
  body.append(keys, box, reading);

  const seen = () => curves.filter(({ name }) => !hidden.has(name));
  const nameOf = (k: number) => labels[k] ?? `${drawing.across || "x"} ${figure(xs[k]!)}`;
  const read = () => {
    if (!xs.length) return;
    const parts = seen().flatMap((curve) => [" · ", h("bdi", {}, curve.name.split(": ")[0]!), " ", h("b", {}, figure(curve.y[place]))]);
    fill(reading, h("bdi", {}, nameOf(place)), ...parts);
    cross.setAttribute("d", `M${x(xs[place]!).toFixed(1)} 10V${low}`);
  };

  function draw(): void {
    const width = Math.min(Math.max(body.clientWidth, 140), 960), height = highOf(body, HEIGHT);
    const logUp = drawing.log.includes("y"), logAcross = drawing.log.includes("x");
    const up = endsOf(seen().flatMap((c) => [...c.y, ...c.low, ...c.high]), logUp, drawing.named ? NAMED : undefined);
    const wide = endsOf([...xs, ...marks.map((mark) => mark.x), ...(drawing.ends ?? [])], logAcross, drawing.joined || drawing.ends ? 0 : 0.25);
    const frame = boxOf(width, height, up, drawing.up, drawing.across), y = along(up, frame.bottom, frame.top);
    const isKeyed = !drawing.named && curves.length > 1, isDirect = isKeyed && Number.isFinite(tallOf(body, Infinity)); // on a slide: names beside the curves
    const names = curves.map(({ name }) => (isDirect ? broken(name, width * SIDE) : []));
    keys.hidden = isDirect || !isKeyed;
    if (isDirect) frame.right -= Math.max(...names.flat().map((line) => widthOf(line, 12))) + 2 * BESIDE - 12;
    x = along(wide, frame.left, frame.right);
    const count = Math.max(2, Math.floor((frame.right - frame.left) / 60)), spaced = marksOf(wide, count), figures = marked(spaced);
    const ends = curves.map((curve) => curve.y.findLastIndex((value) => value !== null && Number.isFinite(y(value)))), levels = ends.map((end, k) => y(curves[k]!.y[end] ?? NaN) || frame.bottom);
    const heights = names.map((lines) => ROW * lines.length + 2), middles = apart(levels, heights, 6, frame.bottom + 8);
    const least = Math.ceil(xs.length / count), each = labels[0]?.length === 7 ? [1, 2, 3, 4, 6].find((n) => n >= least) ?? 12 : least; // months of a year: 1957-01
    const isNamed = drawing.named && labels.length > 0, points = xs.map((at, k) => [x(at), y(curves[0]?.y[k] ?? NaN)] as const);
    const places = labels.length && !isNamed
      ? xs.map((at, k) => [x(at), labels[k] ?? ""] as const).filter((_, k) => k % each === 0)
      : spaced.map((value, k) => [x(value), figures[k]!] as const);
    const beside = drawing.joined || isNamed ? 0 : 8; // pixels from a point to that of the next curve at one place
    const whiskers = ({ low, high }: Curve) => xs.flatMap((at, i) => (isBlank(low[i]) ? [] : [`M${x(at)} ${y(low[i]!)}V${y(high[i]!)}`])).join("");
    /** A name is at the right end; that of a curve which ends at a mark is before the mark, and of one that ends early is at its end. */
    const placeOf = (k: number, row: number) => {
      const end = xs[ends[k]!]!, at = x(end), down = ROW * row;
      if (at < frame.right && marks.some((mark) => mark.x === end)) return { x: at - 5, "text-anchor": "end", y: frame.top + 10 + down };
      const isEarly = at < width / 3;
      return { x: (isEarly ? at : frame.right) + BESIDE, y: (isEarly ? levels[k]! : middles[k]! + 8 - heights[k]! / 2) + down + 4 };
    };
    const clip = `fv-clip-${Math.random().toString(36).slice(2)}`;
    low = frame.bottom;
    svg.replaceChildren(
      s("clipPath", { id: clip }, s("rect", { x: frame.left - POINT, y: 0, width: frame.right - frame.left + 2 * POINT, height: frame.bottom + POINT })),
      ...upward(frame, up, drawing.up), ...across(frame, places, drawing.across, height),
      ...marks.flatMap(({ x: at, label }) => [
        s("path", { class: "fv-mark", d: `M${x(at)} ${frame.top}V${frame.bottom}` }),
        s("text", { class: "fv-quiet", ...(x(at) > width * 0.7 ? { x: x(at) - 5, "text-anchor": "end" } : { x: x(at) + 5 }), y: frame.top + (x(at) > widthOf(drawing.up) + 12 ? -4 : 10) }, label),
      ]),
      s("g", { "clip-path": `url(#${clip})` }, ...curves.map((curve, k) => s("g", { transform: `translate(${beside * k} 0)` }, ...(hidden.has(curve.name) ? [] : [
        ...(curve.low.length && drawing.joined ? [s("path", { class: `fv-area ${look(k)}`, d: band(xs, curve, x, y) })] : []),
        s("path", { class: `fv-curve ${look(k)}`, d: drawing.joined ? pathOf(xs, curve.y, x, y, width) : whiskers(curve), "stroke-dasharray": dash(k) }),
        ...xs.flatMap((at, i) => !(curve.faint && drawing.joined) && pointed(curve.y, i) && Number.isFinite(y(curve.y[i]!)) ?
          [s("circle", { class: `fv-point ${look(k)}`, cx: x(at), cy: y(curve.y[i]!), r: drawing.joined ? POINT : 1.6 * POINT })] : []),
      ])))), cross,
      ...names.flatMap((lines, k) => lines.map((line, row) => s("text", { class: `fv-name ${look(k)}`, ...placeOf(k, row) }, line))),
      ...(isNamed ? besidePoints(points, labels.map((label) => widthOf(label, 12)), frame, !drawing.joined && rulesOf(frame, up).map(y)).map(([from, middle], k) => s("text", { class: "fv-name", x: from, y: middle + 4 }, labels[k]!)) : []));
    put(svg, { width, height, viewBox: `0 0 ${width} ${height}` });
    read();
  }
  const go = (k: number, told = true) => {
    place = Math.max(0, Math.min(xs.length - 1, k));
    if (told && labels.length) selection.point(labels, place);
    read();
  };
  box.addEventListener("pointermove", (event) => {
    if (!xs.length) return;
    const at = (event.clientX - svg.getBoundingClientRect().x) / zoomOf(box);
    go(nearest(xs.map(x), at));
  });
  const quiet = selection.on(() => {
    const chosen = labels.length ? selection.placeOf(labels) : undefined;
    if (chosen !== undefined) go(chosen, false);
  });
  draw();
  return {
    resize: draw,
    destroy: quiet,
    key: alongOf(box, (by) => go(place + by)),
    twin: () => seriesTwin(drawing, xs.map((at, k) => labels[k] ?? figure(at)), curves.map(({ y, ...rest }) => ({ values: y, ...rest }))),
  };
};
