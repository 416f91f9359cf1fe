// The style of drawings, once for each document or shadow root: no element of the page is styled by it.
import css from "./core.css?inline";
import { palette } from "./palette";

// The hues of lines; black is what the paper is not.
const hues = palette.lines.map((hue, k) => {
  const colour = `light-dark(${hue}, ${hue === "#000000" ? "#ffffff" : hue})`;
  return `.fv-curve.fv-line-${k}{stroke:${colour}}:is(.fv-area,.fv-bar,.fv-point).fv-line-${k},.fv svg text.fv-line-${k}{fill:${colour}}.fv-hue-${k}{--hue:${colour}}`;
}).join("");

const dressed = new WeakSet<Document | ShadowRoot>();

export function adopt(root: Document | ShadowRoot): void {
  if (dressed.has(root)) return;
  const sheet = new CSSStyleSheet(); // no element of style: a page may forbid those
  sheet.replaceSync(css + hues);
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  dressed.add(root);
}
