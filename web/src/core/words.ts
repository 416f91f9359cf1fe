// A text whose words have colours; the chosen one says what else it might have been.
import { h, tallOf, widthOf } from "./dom";
import { legend } from "./legend";
import { colourOf, ends, isLight } from "./levels";
import type { Draw } from "./stage";
import { alongOf } from "./keys";
import { figure, tick } from "./text";
import type { WordsDrawing } from "./types";

/** A line of a list: a name, a share as a bar, a number. */
export const barred = (name: Element, share: number, value: number, isTaken: boolean, number = figure(value)): HTMLElement => {
  const bar = h("span", { class: "fv-share" });
  bar.style.width = `${100 * Math.max(0, share)}%`;
  return h("li", { class: isTaken ? "fv-taken" : "" }, name, h("span", { class: "fv-bar-room" }, bar), h("b", {}, number));
};

const MOST_FACTORS = 16; // words with their p below them
const LEAST_FACTOR = 50, TIMES = 19, PADDING = 10; // pixels of a factor at least, between two, around its word

/** A part of a slide, smaller where it would not fit on one line of the room there is. */
const narrowed = (style: string, wish: number, room: number) => ({ style: `${style};zoom:${room > 0 ? Math.min(1, room / wish) : 1}` });

/** The word that is told of first: after others, and the least likely one of those among their alternatives. Pure. */
export function telling(list: WordsDrawing["words"]): number | undefined {
  const open = ({ value, alternatives, text }: (typeof list)[number], k: number) => (alternatives.length ? (k ? (alternatives.some((other) => other.text === text) ? 1 : value ?? 0) * (1 - (value ?? 0)) : -1) : -2);
  const rank = (word: (typeof list)[number], k: number) => (k && /^\p{L}/u.test(word.text.trim()) ? word.alternatives.length : 0) + open(word, k); // words with most alternatives first
  const best = list.reduce((top, word, k) => (rank(word, k) > rank(list[top]!, top) ? k : top), 0);
  return list[best]?.alternatives.length ? best : undefined;
}

export const words: Draw<WordsDrawing> = ({ body, selection, options }, drawing) => {
  const { words: list } = drawing, texts = list.map((word) => word.text);
  const how = ends(drawing.least, drawing.most), coloured = list.some((word) => word.value !== null);
  const level = (value: number) => (value - how.least) / (how.most - how.least || 1);
  let place: number | undefined;
  const others = h("div", { class: "fv-others", "aria-live": "polite" });
  const isProduct = drawing.total !== "" && list.length <= MOST_FACTORS && Number.isFinite(tallOf(body, Infinity)); // on a slide
  const spans = list.map((word, k) => {
    const here = () => selection.point(texts, k);
    if (isProduct) {
      const share = h("span", { class: "fv-share" });
      share.style.width = `${100 * (word.value ?? 0)}%`;
      return h("span", { class: "fv-word fv-factor", dir: "auto", pointerenter: here, click: here }, h("bdi", {}, word.text), h("span", {}, (word.value ?? 0).toFixed(3)), h("span", { class: "fv-bar-room" }, share));
    }
    const made = h("span", { class: "fv-word", dir: "auto", pointerenter: here, click: here }, word.text);
    if (word.value !== null && Number.isFinite(word.value)) {
      made.style.backgroundColor = colourOf(level(word.value), how.colours);
      made.classList.add(isLight(level(word.value), how.colours) ? "fv-on-light" : "fv-on-dark");
    }
    return made;
  });
  const room = body.clientWidth - PADDING, wish = texts.reduce((sum, word) => sum + Math.max(LEAST_FACTOR, widthOf(word, 17) + PADDING) + TIMES, 0);
  const factors = h("span", narrowed("display:inline-block;white-space:nowrap;margin-top:3px", wish, room), ...spans.flatMap((span, k) => [k ? h("span", { class: "fv-times" }, " × ") : "", span]));
  const text = h("p", { class: "fv-text-line", tabindex: 0, role: "application", "aria-roledescription": "words" },
    ...(isProduct ? [factors, ...drawing.total.split("; ").flatMap((part) => [" ", h("span", { class: "fv-total", ...narrowed("", 1.1 * widthOf(part, 17), room) }, part)])]
      : spans.flatMap((span, k) => (list[k]!.space && k ? [" ", span] : [span]))));
  body.append(text, others);
  if (coloured && !isProduct) {
    const middle = how.least < 0 && how.most > 0 ? [[0.5, "0"] as const] : [];
    body.append(legend(how.colours, [[0, tick(how.least)] as const, ...middle, [1, tick(how.most)] as const], drawing.told));
  }

  const show = () => {
    spans.forEach((span, k) => span.classList.toggle("fv-chosen", k === place));
    const word = place === undefined ? undefined : list[place];
    if (!word) return;
    const index = place!, short = (p: number) => Number(p.toPrecision(2));
    const said = isProduct ? "" : [word.value === null ? "" : figure(short(word.value)), word.note].filter(Boolean).join(" · ");
    const rows = word.alternatives.map(({ text: other, p }, k) => {
      const name = h("bdi", { class: "fv-other" }, other);
      const named = options.onforce
        ? h("button", { type: "button", title: "use this word and continue", click: () => options.onforce?.(index, k) }, name) : name;
      return isProduct ? barred(named, p, p, other === word.text, p.toFixed(3)) : barred(named, p, short(p), other === word.text);
    });
    others.replaceChildren(h("p", {}, ...(isProduct && rows.length ? ["p( · | ", h("bdi", {}, [texts.slice(0, index).join(" "), drawing.condition].filter(Boolean).join(", ")), " ): what may follow"] : [h("bdi", {}, `“${word.text}”`), said && ` ${said}`])), ...(rows.length ? [h("ol", { class: "fv-alternatives" }, ...rows)] : []));
    text.setAttribute("aria-label", `${word.text}: ${said}`);
  };
  const quiet = selection.on(() => {
    const chosen = selection.placeOf(texts);
    if (chosen === undefined || chosen === place) return;
    place = chosen;
    show();
  });
  place = selection.placeOf(texts) ?? telling(list);
  show();
  return {
    destroy: quiet,
    key: alongOf(text, (by) => selection.point(texts, Math.max(0, Math.min(list.length - 1, (place ?? 0) + by)))),
    twin: () => ({
      caption: [drawing.title, drawing.told].filter(Boolean).join(": "),
      columns: ["word", ...(coloured ? ["value"] : []), "note", "alternatives"],
      rows: list.map((word) => [word.text, ...(coloured ? [word.value] : []), word.note,
        word.alternatives.map(({ text: other, p }) => `${other} ${figure(p)}`).join(", ")]),
    }),
  };
};
