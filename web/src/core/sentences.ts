// Two lines of words, one above the other: the chosen word, and its weight on each other word.
import { h, s, zoomOf } from "./dom";
import { glow, strongest } from "./levels";
import type { Side } from "./looking";

const LEAST = 0.03; // of a weight that has a line
const MOST = 6; // lines

export interface Sentences {
  readonly element: HTMLElement;
  show(rows: readonly string[], columns: readonly string[], rowMeans: string): void;
  /** Light the chosen word, and the others by their weights (of its row or column). */
  select(side: Side, place: number, weights: ArrayLike<number>): void;
}

export function sentences(point: (side: Side, place: number) => void): Sentences {
  const links = s("svg", { class: "fv-links" });
  const line = (side: Side) => {
    const mean = h("span", { class: "fv-mean" }), words = h("p", { "data-side": side });
    return { side, mean, words, box: h("div", { class: "fv-line" }, mean, words) };
  };
  const columns = line("column"), rows = line("row");
  columns.mean.textContent = "attends to";
  const element = h("section", { class: "fv-sentences", "aria-hidden": "true" }, links, columns.box, rows.box);
  const fill = ({ side, words }: typeof rows, texts: readonly string[]) =>
    words.replaceChildren(...texts.map((text, place) => {
      const here = () => point(side, place);
      return h("span", { class: "fv-word", dir: "auto", pointerenter: here, click: here }, text);
    }));

  const show: Sentences["show"] = (rowWords, columnWords, rowMeans) => {
    rows.mean.textContent = rowMeans;
    fill(rows, rowWords);
    fill(columns, columnWords);
  };

  const select: Sentences["select"] = (side, place, weights) => {
    const [from, to] = side === "row" ? [rows, columns] : [columns, rows];
    const top = Array.from(weights).reduce((a, b) => Math.max(a, b), 0) || 1;
    for (const line of [from, to]) for (const [k, word] of [...line.words.children].entries()) {
      const level = line === to ? weights[k]! / top : 0;
      word.className = line === from && k === place ? "fv-word fv-chosen" : level >= 0.5 ? "fv-word fv-lit" : "fv-word";
      (word as HTMLElement).style.setProperty("--level", glow(level).toFixed(3));
    }
    const box = element.getBoundingClientRect(), zoom = zoomOf(element), start = from.words.children[place]?.getBoundingClientRect();
    if (!start) return links.replaceChildren();
    const over = columns.words.lastElementChild!.getBoundingClientRect(), under = rows.words.firstElementChild!.getBoundingClientRect();
    links.replaceChildren(...strongest(weights, MOST, LEAST).map((k) => {
      const end = to.words.children[k]!.getBoundingClientRect();
      const [upper, lower] = side === "column" ? [start, end] : [end, start];
      const x1 = (upper.x + upper.width / 2 - box.x) / zoom, y1 = (upper.bottom - box.y) / zoom + 3;
      const x2 = (lower.x + lower.width / 2 - box.x) / zoom, y2 = (lower.top - box.y) / zoom - 3, middle = (y1 + y2) / 2;
      return s("path", { d: `M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`,
        "stroke-width": 1 + 5 * weights[k]!, opacity: (0.25 + 0.7 * (weights[k]! / top)) / (upper.bottom < over.top || lower.top > under.bottom ? 2 : 1) }); // pale behind another line of words
    }));
  };
  return { element, show, select };
}
