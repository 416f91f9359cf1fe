// Words in columns joined by lines: across two texts, or as arcs beside one text that attends to itself.
import { fitted, h, put, s, tallOf, widthOf } from "./dom";
import { equals, glow, largest, rowOf, strongest, type Matrix } from "./levels";
import type { Looking, Side } from "./looking";
import { weightsOf } from "./looking";
import { sameWords } from "./text";

const STEP = 24, CLOSE = 16, TOP = 40; // pixels from one word to the next, and where all have to fit; to the middle of the first
const APART = 320, WIDE = 440; // pixels between the words of two columns at most; where they have all the room
const GAP = 6; // pixels between a word and the lines
export const MOST_WORDS = 64; // beyond, no line would be told from another

export interface Links {
  readonly element: HTMLElement;
  show(rows: readonly string[], columns: readonly string[], map: Matrix): void;
  select(looking: Looking): void;
}

export function links(point: (side: Side, place: number) => void): Links {
  const svg = s("svg", { "aria-hidden": "true" });
  const box = h("div", { class: "fv-joined", tabindex: 0, role: "application", "aria-roledescription": "words joined by lines" }, svg);
  const element = h("section", { class: "fv-join" }, box);
  const idle = s("g", { class: "fv-idle" }), chosen = s("g", { class: "fv-now" });
  let words: Record<Side, SVGElement[]> = { row: [], column: [] }, map: Matrix | undefined, alone = false, isWhole = false, isTwo = false;
  let x: Record<Side, number> = { row: 0, column: 0 }, step = STEP;

  const y = (place: number) => TOP + place * step;
  const path = (row: number, column: number) => {
    const from = y(row), to = y(column);
    const middle = (x.row + x.column) / 2;
    if (!alone) return `M${x.row} ${from}C${middle} ${from} ${middle} ${to} ${x.column} ${to}`;
    const far = x.row + (row === column ? 26 : 22 + 11 * Math.min(20, Math.abs(row - column)));
    return row === column
      ? `M${x.row} ${from - 5}C${far} ${from - 12} ${far} ${from + 12} ${x.row} ${from + 5}`
      : `M${x.row} ${from}C${far} ${from} ${far} ${to} ${x.row} ${to}`;
  };
  const line = (row: number, column: number, weight: number) =>
    s("path", { d: path(row, column), "stroke-width": 0.8 + 4.5 * weight, opacity: 0.15 + 0.8 * weight });

  const list = (side: Side, texts: readonly string[], at: number, limit: number) => {
    const made = texts.map((text, place) => {
      const here = () => point(side, place), wide = Math.min(limit, widthOf(text, 17) + 2 * GAP), isLeft = (side === "row") !== isTwo;
      return s("g", { pointerenter: here, click: here },
        s("rect", { x: isLeft ? at - wide : at, y: y(place) - step / 2 + 2, width: wide, height: step - 4, rx: 4 }),
        s("text", { x: isLeft ? at - GAP : at + GAP, y: y(place) + 5, "text-anchor": isLeft ? "end" : "start" }, fitted(text, limit - 10, 15)));
    });
    return (words[side] = made);
  };

  const show: Links["show"] = (rows, columns, next) => {
    map = next;
    const most = Math.max(rows.length, columns.length);
    element.hidden = most > MOST_WORDS;
    if (element.hidden) return;
    const tall = tallOf(element, Infinity), isSame = sameWords(rows, columns); // on a slide, where the room is wide and low
    isWhole = Number.isFinite(tall);
    step = Math.max(CLOSE, Math.min(STEP, (tall - TOP) / most));
    alone = !isWhole && isSame && rows.length === columns.length;
    isTwo = isWhole && !isSame; // what is read is at the left
    const room = Math.min(element.clientWidth || 600, 720), half = (room - 90) / 2;
    const [heading, attended] = isSame ? [alone ? "query · key" : "query", "key"] : [`output · ${rows.length}`, `input · ${columns.length}`], sides = [[rows, heading], [columns, attended]] as const;
    const limit = (texts: readonly string[], over: string) =>
      Math.max(widthOf(over, 12) + 2 * GAP, Math.min(half, Math.max(...texts.map((t) => widthOf(t, 15))) + 34));
    const [first, second] = isTwo ? [sides[1], sides[0]] : sides, left = limit(...first), right = alone ? 0 : limit(...second), gap = alone ? 260 : Math.max(90, Math.min(isWhole ? WIDE : APART, room - left - right));
    x = isTwo ? { row: left + gap - 4, column: left + 4 } : { row: left + 4, column: left + gap - 4 };
    words = { row: [], column: [] };
    const headings = [s("text", { class: "fv-quiet", x: left - GAP, y: 16, "text-anchor": "end" }, first[1]),
      ...(alone ? [] : [s("text", { class: "fv-quiet", x: left + gap + GAP, y: 16 }, second[1])])];
    idle.replaceChildren(...(isWhole && isSame ? [] : rows).flatMap((_, row) => {
      const weights = rowOf(next, row);
      return equals(weights).map((column) => line(row, column, weights[column]!));
    }));
    svg.replaceChildren(...headings, idle, chosen, ...list("row", rows, isTwo ? left + gap : left, isTwo ? right : left),
      ...(alone ? [] : list("column", columns, isTwo ? left : left + gap, isTwo ? left : right)));
    const width = Math.min(room, left + gap + right + 8), height = y(most);
    put(svg, { width, height, viewBox: `0 0 ${width} ${height}` });
  };

  const select: Links["select"] = (looking) => {
    if (!map || element.hidden) return;
    const { side, row, column } = looking, weights = weightsOf(map, looking), top = Math.max(...weights) || 1;
    const other: Side = side === "row" ? "column" : "row", far = alone ? words.row : words[other];
    const near = alone ? words.row : words[side], place = side === "row" ? row : column;
    for (const group of [...words.row, ...words.column]) {
      group.removeAttribute("class");
      group.style.removeProperty("--level");
    }
    far.forEach((group, k) => {
      const level = isTwo ? 0 : weights[k]! / top;
      group.style.setProperty("--level", glow(level).toFixed(3));
      group.classList.toggle("fv-lit", level >= 0.5);
    });
    near[place]?.classList.add("fv-chosen");
    const targets = isTwo ? words.row.map((_, r) => largest(rowOf(map!, r))) : [], said = targets.filter((to) => to === column).length > 1;
    const written = (weight: number, at: number, by: number) => s("text", { x: at, y: by - 6, "text-anchor": "end" }, weight.toFixed(2));
    const kin = targets.flatMap((to, r) => { // between two texts on a slide, lines that cross another one or end where it ends: another order or length
      const own = rowOf(map!, r);
      if (!targets.some((other, k) => k !== r && (k - r) * (other - to) <= 0)) return [];
      for (const word of [words.row[r]!, words.column[to]!]) word.classList.add("fv-chosen");
      return [...strongest(own, 2, 0.2).map((k) => line(r, k, own[k]!)), ...(said && to === column ? [written(own[to]!, x.row - 8, y(r))] : [])];
    });
    chosen.replaceChildren(...kin, ...strongest(weights, 6, 0.01).map((k) => (side === "row" ? line(row, k, weights[k]!) : line(k, column, weights[k]!))),
      ...(isWhole && !isTwo ? [written(weights[column]!, x.column - 8, y(column))] : []));
  };
  return { element, show, select };
}
