// The style of drawings, once for each document or shadow root: no element of the page is styled by it.
import css from "./core.css?inline";
import { palette } from "./palette";

/** Per cent of a hue in its line and in words, which are thinner: the rest is black on white paper, white on black. */
export const LINE = [100, 80] as const, WORDS = [60, 70] as const;
const shades = (hue: string, [white, black]: readonly [number, number]) =>
  `light-dark(color-mix(in srgb,${hue} ${white}%,#000),color-mix(in srgb,${hue === "#000000" ? "#fff" : hue} ${black}%,#fff))`;

const hues = palette.lines.map((hue, k) => {
  const line = shades(hue, LINE);
  return `.fv-curve.fv-line-${k}{stroke:${line}}:is(.fv-area,.fv-bar,.fv-point).fv-line-${k}{fill:${line}}.fv svg text.fv-line-${k}{fill:${shades(hue, WORDS)}}.fv-hue-${k}{--hue:${line}}`;
}).join("");

const dressed = new WeakSet<Document | ShadowRoot>();

export function adopt(root: Document | ShadowRoot): void {
  if (dressed.has(root)) return;
  const sheet = new CSSStyleSheet(); // no element of style: a page may forbid those
  sheet.replaceSync(css + hues);
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  dressed.add(root);
}
