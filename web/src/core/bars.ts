// Bars for labels, several beside each other where there are several series.
import { along, boxOf, endsOf, highOf, upward } from "./axes";
import { fill, fitted, h, put, s, tallOf, widthOf } from "./dom";
import type { Draw } from "./stage";
import { alongOf } from "./keys";
import { every, figure, tick } from "./text";
import { seriesTwin } from "./twin";
import type { BarsDrawing } from "./types";

const HEIGHT = 280, OVER = 4, SHORT = 24; // pixels of the plot; of a number that is written over its bar; of labels that are left out rather than turned
const WIDEST = 150, THICK = 56, LINE = 15; // pixels of a label's bars, of one of them, of a line of a label

/** A number for a bar with so many decimals; large ones short. */
export const brief = (value: number, decimals: number): string => (Math.abs(value) >= 1e4 ? tick(value) : value.toFixed(decimals).replace("-", "−"));

/** How many decimals numbers may have, the most first: three or two digits of the largest; none where all are whole. Pure. */
export function decimalsOf(values: readonly number[]): number[] {
  if (values.every(Number.isInteger)) return [0];
  const before = Math.floor(Math.log10(Math.max(...values.map(Math.abs)))) + 1;
  return [3, 2].map((digits) => Math.max(0, digits - before));
}

/** A name in two lines, broken at a blank or a hyphen so that the longer is short; the second is empty where there is neither. Pure. */
export function halves(label: string): [string, string] {
  const words = label.split(/(?<=[ -])/);
  const splits = words.map((_, k) => [words.slice(0, k + 1).join("").trim(), words.slice(k + 1).join("")] as [string, string]);
  return splits.reduce((best, next) => (Math.max(next[0].length, next[1].length) < Math.max(best[0].length, best[1].length) ? next : best));
}

export const bars: Draw<BarsDrawing> = ({ body, selection }, drawing) => {
  const { labels, series } = drawing;
  const svg = s("svg", { class: "fv-plot", role: "img", "aria-label": drawing.title || "bars" });
  const box = h("div", { class: "fv-chart fv-scroll", tabindex: 0, role: "application", "aria-roledescription": "bars", "aria-label": drawing.title || "bars" }, svg);
  const reading = h("output", { class: "fv-reading fv-small" });
  const keys = h("div", { class: "fv-keys-row", hidden: series.length < 2 }, ...series.map(({ name }, k) =>
    h("span", { class: "fv-key" }, s("svg", { width: 12, height: 12, "aria-hidden": "true" },
      s("rect", { class: `fv-bar fv-line-${k % 7}`, width: 12, height: 12, rx: 2 })), name)));
  body.append(keys, box, reading);
  let groups: SVGElement[] = [], place = 0;

  const read = () => {
    groups.forEach((group, k) => group.classList.toggle("fv-chosen", k === place));
    if (!labels.length) return;
    fill(reading, h("bdi", {}, labels[place]!), ...series.flatMap(({ name, values, low, high }) => [
      " · ", ...(series.length > 1 || name ? [h("bdi", {}, name), " "] : []), h("b", {}, figure(values[place])),
      ...(low.length ? [` (${figure(low[place])} … ${figure(high[place])})`] : []),
    ]));
  };
  const go = (k: number) => {
    place = Math.max(0, Math.min(labels.length - 1, k));
    selection.point(labels, place);
    read();
  };

  function draw(): void {
    const room = Math.min(Math.max(body.clientWidth - 6, 140), 960);
    const longest = Math.min(120, Math.max(0, ...labels.map((label) => widthOf(label, 12))));
    const axis = endsOf([0, drawing.at, ...series.flatMap((one) => [...one.values, ...one.low, ...one.high])], false, 0);
    if (axis.most > 0) axis.most += 0.06 * (axis.most - axis.least);
    const isWhole = Number.isFinite(tallOf(body, Infinity)); // on a slide
    const least = isWhole ? 0 : Math.max(18, 12 * series.length + 4), most = highOf(body, HEIGHT) - keys.offsetHeight, slim = boxOf(room, most, axis, drawing.up, drawing.across);
    const step = Math.min(WIDEST, Math.max(least, (slim.right - slim.left) / Math.max(1, labels.length)));
    const isLong = longest > step - 6 && longest > SHORT, isBroken = isLong && labels.every((label) => halves(label).every((line) => widthOf(line, 12) <= step - 4)), turned = isLong && !isBroken;
    const each = isLong ? 1 : every(step, longest + 6), deep = turned ? Math.round(longest * 0.85) : isBroken ? LINE : 0, height = most + deep;
    const frame = boxOf(room, height, axis, drawing.up, drawing.across, deep);
    frame.right = frame.left + step * labels.length;
    const width = frame.right + (turned ? 40 : 12), y = along(axis, frame.bottom, frame.top), thick = Math.min(THICK, (step * 0.84) / series.length);
    const own = series.length > 1 ? thick : step; // pixels of a number over a bar
    const known = series.flatMap(({ values }) => values.filter((value) => value !== null));
    const decimals = series.some(({ low }) => low.length) ? undefined : decimalsOf(known).find((count) => known.every((value) => widthOf(brief(value, count), 12) < own));
    groups = labels.map((label, k) => {
      const middle = frame.left + (k + 0.5) * step, here = () => go(k);
      const parts = series.flatMap(({ values, low, high }, i) => {
        const value = values[k];
        if (value === null || value === undefined) return [];
        const x = middle + (i - series.length / 2) * thick, top = Math.min(y(value), y(0)), centre = x + thick / 2;
        return [s("rect", { class: `fv-bar fv-line-${(value === drawing.at ? i + 1 : i) % 7}`, x: x + 1, y: top, width: thick - 2, height: Math.abs(y(value) - y(0)), rx: 2 }),
          ...(decimals !== undefined ? [s("text", { class: "fv-quiet fv-name", x: centre, y: value < 0 ? y(value) + 14 : y(value) - OVER, "text-anchor": "middle" }, brief(value, decimals))] : []),
          ...(Number.isFinite(low[k] ?? NaN) && Number.isFinite(high[k] ?? NaN)
            ? [s("path", { class: "fv-whisker", d: `M${centre} ${y(low[k]!)}V${y(high[k]!)}M${centre - 4} ${y(low[k]!)}h8M${centre - 4} ${y(high[k]!)}h8` })] : [])];
      });
      const text = k % each ? "" : fitted(label, turned ? 120 : each * step - 4, 12);
      return s("g", { pointerenter: here, click: here },
        s("rect", { class: "fv-hit", x: middle - step / 2, y: frame.top, width: step, height: frame.bottom - frame.top }), ...parts,
        turned ? s("text", { transform: `translate(${middle - 2} ${frame.bottom + 12}) rotate(50)` }, text)
          : isBroken ? s("text", { y: frame.bottom + 17, "text-anchor": "middle" }, ...halves(label).map((line, n) => s("tspan", { x: middle, dy: n * LINE }, line)))
            : s("text", { x: middle, y: frame.bottom + 17, "text-anchor": "middle" }, text));
    });
    svg.replaceChildren(...upward(frame, axis, drawing.up), s("path", { class: "fv-axis", d: `M${frame.left} ${y(0)}H${frame.right}` }), ...groups,
      ...(drawing.at === null ? [] : [s("path", { class: "fv-mark", d: `M${frame.left} ${y(drawing.at)}H${frame.right}` })]),
      ...(drawing.across ? [s("text", { class: "fv-quiet", x: (frame.left + frame.right) / 2, y: height - 5, "text-anchor": "middle" }, drawing.across)] : []));
    put(svg, { width, height, viewBox: `0 0 ${width} ${height}` });
    read();
  }
  const quiet = selection.on(() => {
    place = selection.placeOf(labels) ?? place;
    read();
  });
  draw();
  return {
    resize: draw,
    destroy: quiet,
    key: alongOf(box, (by) => go(place + by)),
    twin: () => seriesTwin(drawing, labels, series),
  };
};
