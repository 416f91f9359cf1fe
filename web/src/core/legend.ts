// What the colours mean: a strip of them with marks, and a sentence.
import { h } from "./dom";
import { pixels, type Colours } from "./levels";

export function legend(colours: Colours, marks: readonly (readonly [number, string])[], caption: string): HTMLElement {
  const canvas = h("canvas", { width: 256, height: 1, "aria-hidden": "true" });
  const levels = Float64Array.from({ length: 256 }, (_, i) => i / 255);
  canvas.getContext("2d")!.putImageData(new ImageData(pixels(levels, colours), 256, 1), 0, 0);
  const written = marks.map(([at, text]) => {
    const mark = h("span", {}, text);
    mark.style.left = `${100 * at}%`;
    return mark;
  });
  return h("figure", { class: "fv-legend" }, canvas, h("div", { class: "fv-marks" }, ...written), h("figcaption", {}, caption));
}
