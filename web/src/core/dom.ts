// Elements made short. Texts are always text: a word may say anything and does nothing.

import { indexed } from "./text";

type Attributes = Record<string, string | number | boolean | undefined | ((event: never) => void)>;
type Child = Node | string | undefined | false;

/** How texts and drawings are shown: a page in another language shows other words. */
export const language = { of: <T>(shown: T): T => shown };

/** Give an element attributes; functions are listeners. */
export function put(made: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value as unknown as EventListener);
    else if (name === "style") (made as HTMLElement).style.cssText = String(value); // pages may forbid the attribute
    else made.setAttribute(name, value === true ? "" : language.of(String(value)));
  }
}

function dress(made: Element, attributes: Attributes, children: Child[]): void {
  put(made, attributes);
  fill(made, ...children);
}

/** Put these into an element in place of what it holds. */
export function fill(made: Element, ...children: Child[]): void {
  made.replaceChildren(...children.filter((child): child is Node | string => child !== undefined && child !== false).map(language.of));
}

/** An HTML element; functions are listeners of the event that their name says. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  dress(made, attributes, children);
  return made;
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): SVGElementTagNameMap[K] {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  dress(made, attributes, children);
  return made;
}

export const FONT = "system-ui, sans-serif";
let pen: CanvasRenderingContext2D | null = null;

/** Pixels that a text takes on a line. */
export function widthOf(text: string, size = 13): number {
  pen ??= document.createElement("canvas").getContext("2d")!;
  pen.font = `${size}px ${FONT}`;
  return pen.measureText(text).width;
}

/** Pixels that the middle of a drawing may be high: `--tall` of the page around it, else `otherwise`, else to the lower
 * edge of the first screen, less a margin; half to three quarters of the window. */
export function tallOf(element: Element, otherwise?: number): number {
  const tall = Number(getComputedStyle(element).getPropertyValue("--tall")) || otherwise;
  if (tall !== undefined) return tall;
  const below = innerHeight - element.getBoundingClientRect().top - scrollY - 60;
  return Math.max(0.5 * innerHeight, Math.min(0.75 * innerHeight, below));
}

/** Fades the right edge of an element while more lies beyond it; the function to call where its width changes. */
export function faded(box: HTMLElement): () => void {
  const cue = () => void box.classList.toggle("fv-more", box.scrollWidth - box.scrollLeft > box.clientWidth + 8);
  box.addEventListener("scroll", cue);
  return cue;
}

/** How much larger an element is on the screen than in its own pixels, where the page around it is zoomed. */
export const zoomOf = (element: HTMLElement): number => element.getBoundingClientRect().width / element.offsetWidth || 1;

/** A text cut to so many pixels, with an ellipsis where something is missing. */
export function fitted(text: string, room: number, size = 13): string {
  const letters = Array.from(text);
  while (letters.length && widthOf(text, size) > room) {
    letters.pop();
    text = letters.join("") + "…";
  }
  return text;
}

const SQUEEZED = 0.75; // of the width of a text that is drawn narrower, not cut

/** A text of a drawing: narrower where it is a little wider than its room, else cut. */
export const squeezed = (text: string, room: number, size: number, attributes: Attributes): SVGElement =>
  s("text", { ...attributes, ...(widthOf(text, size) > room ? { textLength: room, lengthAdjust: "spacingAndGlyphs" } : {}) }, fitted(text, room / SQUEEZED, size));

/** A few choices of which one holds, as radio buttons under a name. */
export function choices<T extends string>(
  legend: string, options: readonly (readonly [T, string])[], chosen: T, choose: (value: T) => void
): { element: HTMLElement; set(value: T): void } {
  const name = `fv-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value]) => h("input", { type: "radio", name, value, change: () => choose(value) }));
  const labels = options.map(([, text], k) => h("label", {}, inputs[k]!, text));
  const element = h("fieldset", { class: "fv-choices", "data-unsaved": true }, h("legend", {}, legend), h("div", {}, ...labels));
  element.hidden = options.length < 2;
  const set = (value: T) => inputs.forEach((input) => { input.checked = input.value === value; });
  set(chosen);
  return { element, set };
}

/** An equation with its indices and exponents. */
export const formula = (text: string): HTMLElement =>
  h("span", { class: "fv-formula" }, ...indexed(text).map(({ text: part, tag }) => h(tag, {}, part)));
