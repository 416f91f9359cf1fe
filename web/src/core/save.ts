// What is seen as a file: SVG from the elements themselves, PNG from that, JSON and a page.
import { h, put, s, zoomOf } from "./dom";
import { inlined } from "./numbers";
import type { AnyDrawing, Numbers } from "./types";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order", "opacity", "fill-opacity", "font-size", "font-weight", "font-style", "font-family", "text-anchor", "dominant-baseline", "visibility", "vector-effect", "overflow"];
const FAR = 3; // pixels of a PNG for one of the screen, at most

export function saveFile(content: Blob, name: string): void {
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A name for a file from a title: letters and figures of any script. */
export const fileName = (title: string, ending: string): string =>
  `${title.normalize("NFKC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "drawing"}.${ending}`;

/** What is seen in an element as one SVG: texts as texts, canvases and pictures as pictures. */
export function svgOf(root: HTMLElement): SVGSVGElement {
  const outer = root.getBoundingClientRect(), styles = getComputedStyle(root), pad = 20, zoomed = (element: Element) => element.currentCSSZoom ?? 1;
  const scaled = zoomOf(root) / zoomed(root), scaleOf = (element: Element) => scaled * zoomed(element); // of sizes that a style says
  const width = Math.ceil(outer.width) + 2 * pad, height = Math.ceil(outer.height) + 2 * pad;
  const sheet = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif" });
  sheet.append(s("rect", { width, height, fill: styles.backgroundColor }));
  const x = (value: number) => value - outer.x + pad, y = (value: number) => value - outer.y + pad;
  const visit = (element: Element): void => {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if ((element as HTMLElement).dataset.unsaved !== undefined || style.display === "none" || style.visibility === "hidden" || style.clipPath !== "none" || !box.width) return;
    const at = { x: x(box.x), y: y(box.y), width: box.width, height: box.height };
    if (element instanceof SVGSVGElement) return void sheet.append(copied(element, at, scaleOf(element)));
    const back = style.backgroundColor, scale = scaleOf(element), edge = parseFloat(style.borderTopWidth) * scale;
    if ((back !== "rgba(0, 0, 0, 0)" || edge > 0) && element !== root)
      sheet.append(s("rect", { ...at, rx: parseFloat(style.borderTopLeftRadius) * scale || 0, fill: back === "rgba(0, 0, 0, 0)" ? "none" : back,
        ...(edge > 0 ? { stroke: style.borderTopColor, "stroke-width": edge } : {}) }));
    const href = element instanceof HTMLCanvasElement ? element.toDataURL() : element instanceof HTMLImageElement ? element.src : "";
    if (href) {
      const image = s("image", { ...at, href, preserveAspectRatio: "none", opacity: style.opacity });
      image.style.imageRendering = style.imageRendering;
      return void sheet.append(image);
    }
    for (const child of element.childNodes) {
      if (child instanceof Element) visit(child);
      else if (child instanceof Text && child.data.trim()) sheet.append(...written(child, style, scale, x, y));
    }
  };
  visit(root);
  return sheet;
}

/** The lines of a text as they are broken on the page. */
function written(text: Text, style: CSSStyleDeclaration, scale: number, x: (v: number) => number, y: (v: number) => number): SVGTextElement[] {
  const range = document.createRange(), lines: { text: string; left: number; right: number; middle: number }[] = [];
  for (const { segment, index } of new Intl.Segmenter().segment(text.data)) {
    range.setStart(text, index);
    range.setEnd(text, index + segment.length);
    const [box] = range.getClientRects(), line = lines.at(-1);
    if (!box?.width) continue; // spaces that the page does not show either
    const middle = box.y + box.height / 2;
    if (!line || Math.abs(line.middle - middle) > box.height / 2) lines.push({ text: segment, left: box.x, right: box.right, middle });
    else Object.assign(line, { text: line.text + segment, left: Math.min(line.left, box.x), right: Math.max(line.right, box.right) });
  }
  const size = parseFloat(style.fontSize) * scale, turned = style.direction === "rtl";
  const look = { fill: style.color, "font-size": size, "font-weight": style.fontWeight, "font-style": style.fontStyle, "font-family": style.fontFamily, "xml:space": "preserve" };
  if (style.writingMode === "sideways-lr") { // read upwards
    range.selectNodeContents(text);
    const { left, right, bottom } = range.getBoundingClientRect();
    return [s("text", { ...look, transform: `translate(${x((left + right) / 2) + size * 0.35} ${y(bottom)}) rotate(-90)` }, text.data.trim())];
  }
  return lines.map((line) => s("text", { ...look, x: x(turned ? line.right : line.left), y: y(line.middle) + size * 0.35, direction: turned && "rtl" }, line.text.replace(/\s/g, " ")));
}

/** A copy of an SVG that needs no style sheet. */
function copied(svg: SVGSVGElement, at: { x: number; y: number; width: number; height: number }, scale: number): SVGElement {
  const copy = svg.cloneNode(true) as SVGSVGElement, from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  const wide = svg.viewBox.baseVal.width || at.width / scale, isEven = svg.getAttribute("preserveAspectRatio") !== "none";
  from.forEach((element, k) => {
    const style = getComputedStyle(element), made = to[k]!;
    if (style.display === "none" || (style.visibility === "hidden" && !element.childElementCount)) return made.remove();
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value) made.setAttribute(name, value);
    }
    if (isEven && style.vectorEffect === "non-scaling-stroke") { // as wide as it is seen, however large the file is shown
      made.setAttribute("stroke-width", String((parseFloat(style.strokeWidth) * scale * wide) / at.width));
      made.removeAttribute("vector-effect");
    }
    for (const name of ["class", "style"]) made.removeAttribute(name);
  });
  if (!svg.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${at.width / scale} ${at.height / scale}`);
  put(copy, at);
  return copy;
}

export const svgText = (root: HTMLElement): string => new XMLSerializer().serializeToString(svgOf(root));

/** The SVG as pixels, finer than the screen where there is room. */
export async function pngOf(root: HTMLElement): Promise<Blob> {
  const svg = svgOf(root), width = Number(svg.getAttribute("width")), height = Number(svg.getAttribute("height"));
  const image = h("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}` });
  await image.decode();
  const ratio = Math.min(FAR, 8000 / width, 8000 / height), canvas = h("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const pen = canvas.getContext("2d")!;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture came of it"))), "image/png"));
}

/** A drawing whose numbers are all inside: what a page of its own needs. */
export async function whole(drawing: AnyDrawing): Promise<AnyDrawing> {
  const inside = async (value: unknown): Promise<unknown> => {
    if (Array.isArray(value)) return Promise.all(value.map(inside));
    if (value === null || typeof value !== "object") return value;
    if ("codec" in value) return inlined(value as Numbers);
    return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([key, part]) => [key, await inside(part)] as const)));
  };
  return (await inside(drawing)) as AnyDrawing;
}

export function saveButtons(root: HTMLElement, drawing: () => AnyDrawing, json: () => unknown, page?: (drawing: AnyDrawing) => Promise<string> | string): HTMLElement {
  const name = (ending: string) => fileName(drawing().title || drawing().kind, ending);
  const button = (label: string, act: () => Promise<Blob>) => {
    const made = h("button", { type: "button", click: () => void act().then(
      (content) => saveFile(content, name(label.toLowerCase())), (error: unknown) => { made.title = String(error); made.setAttribute("aria-invalid", "true"); }) }, label);
    return made;
  };
  const text = (content: string, type: string) => Promise.resolve(new Blob([content], { type }));
  return h("div", { class: "fv-save" }, "Save as ", button("PNG", () => pngOf(root)), " ", button("SVG", () => text(svgText(root), "image/svg+xml")), " ",
    button("JSON", () => text(JSON.stringify(json()), "application/json")),
    ...(page ? [" ", button("HTML", async () => text(await page(await whole(drawing())), "text/html"))] : []));
}
