// The style of drawings, once for each document or shadow root: no element of the page is styled by it.
import css from "./core.css?inline";
import { palette } from "./palette";

/** A hue with a share of white, or of black. Pure. */
export const toward = (hue: string, end: 0 | 255, share: number): string =>
  `#${[1, 3, 5].map((k) => Math.round(parseInt(hue.slice(k, k + 2), 16) * (1 - share) + end * share).toString(16).padStart(2, "0")).join("")}`;
/** The hue of a line on white and on black paper, and of words of its colour, which are thinner. Pure. */
export const lineOf = (hue: string) => [hue, toward(hue, 255, hue === "#000000" ? 1 : 0.2)] as const;
export const wordsOf = (hue: string) => [toward(hue, 0, 0.4), toward(hue, 255, hue === "#000000" ? 1 : 0.3)] as const;

const hues = palette.lines.map((hue, k) => {
  const line = `light-dark(${lineOf(hue)})`;
  return `.fv-curve.fv-line-${k}{stroke:${line}}:is(.fv-area,.fv-bar,.fv-point).fv-line-${k}{fill:${line}}.fv svg text.fv-line-${k}{fill:light-dark(${wordsOf(hue)})}.fv-hue-${k}{--hue:${line}}`;
}).join("");

const dressed = new WeakSet<Document | ShadowRoot>();

export function adopt(root: Document | ShadowRoot): void {
  if (dressed.has(root)) return;
  const sheet = new CSSStyleSheet(); // no element of style: a page may forbid those
  sheet.replaceSync(css + hues);
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  dressed.add(root);
}
