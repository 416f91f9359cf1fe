// Words in two columns joined by lines.
import { fitted, h, put, s, tallOf, widthOf } from "./dom";
import { equals, glow, largest, rowOf, strongest, type Matrix } from "./levels";
import { MOST_WORDS, weightsOf, type Looking, type Side } from "./looking";
import { sameWords } from "./text";

const STEP = 24, CLOSE = 16, TOP = 40; // pixels from one word to the next, and where all have to fit; to the middle of the first
const APART = 320, WIDE = 440; // pixels between the words of two columns at most; where they have all the room
const GAP = 6; // pixels between a word and the lines

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
  let words: Record<Side, SVGElement[]> = { row: [], column: [] }, map: Matrix | undefined, isWhole = false, isTwo = false;
  let x: Record<Side, number> = { row: 0, column: 0 }, step = STEP;

  const y = (place: number) => TOP + place * step;
  const line = (row: number, column: number, weight: number) => {
    const middle = (x.row + x.column) / 2;
    return s("path", { d: `M${x.row} ${y(row)}C${middle} ${y(row)} ${middle} ${y(column)} ${x.column} ${y(column)}`, "stroke-width": 0.8 + 4.5 * weight, opacity: 0.15 + 0.8 * weight });
  };

  const lines = (row: number, columns: number[]) => columns.map((column) => line(row, column, rowOf(map!, row)[column]!));

  const list = (side: Side, isLeft: boolean, texts: readonly string[], heading: string, limit: number) => {
    const at = x[side] + (isLeft ? -4 : 4), from = isLeft ? at - GAP : at + GAP, anchor = isLeft ? "end" : "start";
    words[side] = texts.map((text, place) => {
      const here = () => point(side, place), wide = Math.min(limit, widthOf(text, 17) + 2 * GAP);
      return s("g", { pointerenter: here, click: here },
        s("rect", { x: isLeft ? at - wide : at, y: y(place) - step / 2 + 2, width: wide, height: step - 4, rx: 4 }),
        s("text", { x: from, y: y(place) + 5, "text-anchor": anchor }, fitted(text, limit - 10, 15)));
    });
    return [s("text", { class: "fv-quiet", x: from, y: 16, "text-anchor": anchor }, heading), ...words[side]];
  };

  const show: Links["show"] = (rows, columns, next) => {
    map = next;
    const most = Math.max(rows.length, columns.length);
    element.hidden = most > MOST_WORDS;
    if (element.hidden) return;
    const tall = tallOf(element, Infinity), isSame = sameWords(rows, columns);
    isWhole = Number.isFinite(tall); // on a slide, where the room is wide and low
    step = Math.max(CLOSE, Math.min(STEP, (tall - TOP) / most));
    isTwo = isWhole && !isSame; // what is read is at the left
    const room = Math.min(element.clientWidth || 600, 720), half = (room - 90) / 2;
    const texts = { row: rows, column: columns }, headings = isSame ? { row: "query", column: "key" } : { row: `output · ${rows.length}`, column: `input · ${columns.length}` };
    const limit = (side: Side) =>
      Math.max(widthOf(headings[side], 12) + 2 * GAP, Math.min(half, Math.max(...texts[side].map((t) => widthOf(t, 15))) + 34));
    const [near, far]: [Side, Side] = isTwo ? ["column", "row"] : ["row", "column"];
    const left = limit(near), right = limit(far), gap = Math.max(90, Math.min(isWhole ? WIDE : APART, room - left - right));
    x[near] = left + 4;
    x[far] = left + gap - 4;
    idle.replaceChildren(...(isWhole && isSame ? [] : rows).flatMap((_, row) => lines(row, equals(rowOf(next, row)))));
    svg.replaceChildren(idle, chosen, ...list(near, true, texts[near], headings[near], left), ...list(far, false, texts[far], headings[far], right));
    const width = left + gap + right, height = y(most);
    put(svg, { width, height, viewBox: `0 0 ${width} ${height}` });
  };

  const select: Links["select"] = (looking) => {
    if (!map || element.hidden) return;
    const { side, row, column } = looking, isRow = side === "row", weights = weightsOf(map, looking), top = Math.max(...weights) || 1;
    for (const group of [...words.row, ...words.column]) {
      group.removeAttribute("class");
      group.style.removeProperty("--level");
    }
    words[isRow ? "column" : "row"].forEach((group, k) => {
      const level = isTwo ? 0 : weights[k]! / top;
      group.style.setProperty("--level", glow(level).toFixed(3));
      group.classList.toggle("fv-lit", level >= 0.5);
    });
    words[side][looking[side]]?.classList.add("fv-chosen");
    const targets = isTwo ? words.row.map((_, r) => largest(rowOf(map!, r))) : [], said = targets.filter((to) => to === column).length > 1;
    const written = (r: number, k: number, at: Side) => s("text", { x: x[at] - 8, y: y(at === "row" ? r : k) - 6, "text-anchor": "end" }, rowOf(map!, r)[k]!.toFixed(2));
    const kin = targets.flatMap((to, r) => { // between two texts on a slide, lines that cross another one or end where it ends: another order or length
      if (said ? to !== column : !targets.some((other, k) => k !== r && (k - r) * (other - to) <= 0)) return [];
      for (const word of [words.row[r]!, words.column[to]!]) word.classList.add("fv-chosen");
      return [...lines(r, strongest(rowOf(map!, r), said ? 2 : 1, 0.2)), ...(said ? [written(r, to, "row")] : [])];
    });
    chosen.replaceChildren(...kin, ...strongest(weights, 6, 0.01).map((k) => line(isRow ? row : k, isRow ? k : column, weights[k]!)),
      ...(isWhole && !isTwo ? [written(row, column, "column")] : []));
  };
  return { element, show, select };
}
