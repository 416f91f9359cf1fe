// A picture, and what was looked at in it: weights as a tint over grey, or the path of glimpses.
import { fill, h, s } from "./dom";
import { sequential, colourOf, isLight, strongest } from "./levels";
import { decode, floats } from "./numbers";
import { palette } from "./palette";
import type { Draw } from "./stage";
import { figure } from "./text";
import type { PictureDrawing } from "./types";

/** How much tint each cell has; the panel's largest has all of it, unless it is near an even share. */
export function opacities(weights: Float64Array, scale: PictureDrawing["scale"]): Float64Array {
  if (scale === "absolute") return weights;
  const full = Math.max(weights.reduce((a, b) => Math.max(a, b), 0), Math.min(1, palette.even / Math.max(1, weights.length)));
  return weights.map((weight) => weight / full);
}

/** Grey pixels under a tint: y = (1 − a) g + a (dark + g (light − dark)), each from 0 to 255. */
export function tinted(image: Uint8ClampedArray, width: number, height: number, grid: Float64Array, across: number): Uint8ClampedArray<ArrayBuffer> {
  const made = new Uint8ClampedArray(image.length), down = grid.length / across, { dark, light } = palette.tint;
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const at = 4 * (y * width + x), grey = (image[at]! + image[at + 1]! + image[at + 2]!) / 765;
    const a = grid[Math.floor((y * down) / height) * across + Math.floor((x * across) / width)]!;
    for (let c = 0; c < 3; c++) made[at + c] = 255 * ((1 - a) * grey + a * (dark[c]! + grey * (light[c]! - dark[c]!)));
    made[at + 3] = 255;
  }
  return made;
}

export const picture: Draw<PictureDrawing> = (stage, drawing) => {
  const { body, selection } = stage, { width, height, overlays, path } = drawing;
  const titles = overlays.map(({ title }) => title), sharp = Math.max(width, height) <= 64 ? "fv-sharp" : "";
  const image = h("img", { src: drawing.image, alt: drawing.title || "the picture", width, height, class: sharp });
  const large = h("canvas", { width, height, class: sharp, "aria-hidden": "true" }), reading = h("output", { class: "fv-reading fv-small", "aria-live": "polite" });
  const scale = Math.max(1, Math.min(360 / Math.max(width, height), 12));
  const box = h("div", { class: "fv-picture" }, image, large);
  Object.assign(box.style, { aspectRatio: `${width} / ${height}`, width: `${width * scale}px` });
  let chosen = -1, shades: Float64Array[] = [], grids: Float64Array[] = [];

  const panels = overlays.map((overlay, k) => {
    const canvas = h("canvas", { width, height, class: sharp, "aria-hidden": "true" }), choose = () => point(k);
    return { canvas, button: h("button", { type: "button", "aria-pressed": "false", click: choose, pointerenter: choose, focus: choose },
      canvas, h("span", { dir: "auto" }, overlay.title)) };
  });
  const strip = h("div", { class: "fv-panels" }, ...panels.map(({ button }) => button));
  const slider = h("input", { type: "range", min: 0, max: 100, value: 100, input: () => { large.style.opacity = String(Number(slider.value) / 100); } });
  const side = h("div", { class: "fv-beside" }, reading, strip);
  body.append(h("div", { class: "fv-pictures" }, h("div", {}, box,
    h("label", { class: "fv-range", hidden: !overlays.length, "data-unsaved": true }, "overlay ", slider)), side));

  const point = (k: number) => {
    if (chosen !== k) selection.point(titles, k);
    show(k);
  };
  const show = (k: number) => {
    chosen = k;
    panels.forEach(({ button }, i) => button.setAttribute("aria-pressed", String(i === k)));
    const overlay = overlays[k], grid = grids[k];
    if (!overlay || !grid) return;
    large.getContext("2d")!.drawImage(panels[k]!.canvas, 0, 0);
    const across = overlay.weights.shape[1]!, best = strongest(grid, 3, 1e-9);
    fill(reading, h("bdi", {}, overlay.title), " · most: ", ...best.flatMap((cell, i) =>
      [i ? ", " : "", `row ${Math.floor(cell / across)}, column ${cell % across} `, h("b", {}, figure(grid[cell]))]),
      overlay.note ? ` · ${overlay.note}` : "");
  };
  const paint = () => {
    if (!image.naturalWidth || !shades.length) return;
    const pen = large.getContext("2d", { willReadFrequently: true })!;
    pen.drawImage(image, 0, 0, width, height);
    const grey = pen.getImageData(0, 0, width, height).data;
    panels.forEach(({ canvas }, k) => canvas.getContext("2d")!.putImageData(
      new ImageData(tinted(grey, width, height, shades[k]!, overlays[k]!.weights.shape[1]!), width, height), 0, 0));
    show(Math.max(0, selection.placeOf(titles) ?? Math.max(0, chosen)));
  };
  if (overlays.length) {
    image.addEventListener("load", paint);
    void Promise.all(overlays.map(({ weights }) => decode(weights))).then((all) => {
      grids = all.map((values) => floats(values));
      shades = grids.map((grid) => opacities(grid, drawing.scale));
      paint();
      stage.changed();
    }, (error: unknown) => { reading.textContent = `The weights could not be loaded: ${String(error)}`; });
    side.append(h("p", { class: "fv-quiet" }, `tint: ${palette.overlays[drawing.scale]}`));
  } else if (path.length) {
    box.append(glimpses(drawing));
    fill(reading, `${path.length} glimpses in order, dark to bright; each sees ${drawing.sides.join(", ")} pixels across`);
  }
  const quiet = selection.on(() => {
    const k = selection.placeOf(titles);
    if (k !== undefined && k !== chosen) show(k);
  });
  return {
    destroy: quiet,
    twin: () => path.length
      ? { caption: drawing.title, columns: ["glimpse", "x", "y"], rows: path.map(([x, y], k) => [String(k + 1), x, y]) }
      : { caption: `${drawing.title}: the cells with the largest weights`, columns: ["", "attends to", "note"],
        rows: overlays.map(({ title, note, weights }, k) => [title, strongest(grids[k] ?? [], 5, 1e-9).map((cell) =>
          `row ${Math.floor(cell / weights.shape[1]!)}, column ${cell % weights.shape[1]!}: ${figure(grids[k]![cell])}`).join("; "), note]) },
  };
};

/** Frames of what each glimpse saw sharpest, numbered, joined by a line. */
function glimpses({ width, height, path, sides }: PictureDrawing): SVGSVGElement {
  const side = sides[0] ?? 8, unit = Math.max(width, height) / 100;
  const nodes = path.flatMap(([x, y], k) => {
    const level = 0.43 + (0.57 * k) / Math.max(1, path.length - 1), colour = colourOf(level, sequential);
    const number = s("text", { x, y: y + unit * 1.7, "text-anchor": "middle" }, String(k + 1));
    Object.assign(number.style, { fontSize: `${unit * 5}px`, fill: isLight(level, sequential) ? "#000" : "#fff" });
    const frame = { x: x - side / 2, y: y - side / 2, width: side, height: side, fill: "none" };
    return [s("rect", { ...frame, stroke: "#000", "stroke-width": unit * 1.4 }), s("rect", { ...frame, stroke: colour, "stroke-width": unit * 0.7 }),
      s("circle", { cx: x, cy: y, r: unit * 3.6, fill: colour, stroke: "#000", "stroke-width": unit * 0.4 }),
      number];
  });
  const line = `M${path.map(([x, y]) => `${x} ${y}`).join("L")}`;
  return s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    s("path", { d: line, fill: "none", stroke: "#000", "stroke-width": unit * 1.2 }), s("path", { d: line, fill: "none", stroke: "#ccc", "stroke-width": unit * 0.6 }), ...nodes);
}
