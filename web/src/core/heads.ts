// All layers and heads in small: the picture of them is how one is chosen.
import { choices, fitted, h, s, squeezed, tallOf, widthOf } from "./dom";
import { enlarged, largest, pixels, sequential, type Matrix, type Scale } from "./levels";
import type { BlockMaps } from "./maps";
import type { Block } from "./types";

const THUMB = 72; // cells of a small map at most, whatever the screen
const GAP = 4, EDGE = 3, LABEL = 18, NAME = 16, LAYER = 56; // pixels between, around, for numbers, for the kind of a head, for "layer 0"
const SMALL = 60, LARGE = 112, LARGEST = 180; // pixels of a small map at most; where they are all that is shown
const FAINT = 0.16, UNCLEAR = "no pattern"; // a kind that says nothing
const MOST_WORDS = 12, MOST_ACROSS = 6, LEAST_PITCH = 11, PITCH = 34, HEAD = 36, SIDE = 18; // on a slide: words of a sentence and heads beside each other at most; pixels from word to word; over them; for the name of a layer
const LEAST_WEIGHT = 0.3, THICK = 8, ARROW = 16, APART = 4; // of a line; pixels of the weight 1, and of the arrow below a head

export interface Heads {
  readonly element: HTMLElement;
  /** Draw the maps of a block. */
  show(maps: BlockMaps, scale: Scale): void;
  /** Say which is chosen. */
  select(layer: number, head: number | null): void;
}

interface Thumb { layer: number; head: number | null; kind: string; button: HTMLButtonElement; x: number; y: number }

const called = (head: number | null) => (head === null ? "mean" : `head ${head}`);

/** A head as a copy of the sentence: the words twice, joined by lines as wide as the weights, all pale but the thickest. */
function copied(map: Matrix, { rows, columns }: Pick<Block, "rows" | "columns">, head: number, wide: number, pitch: number, joined: boolean): SVGElement {
  const name = called(head), hue = head % 7, best = largest(map.values), does = `${rows[Math.floor(best / map.width)]} → ${columns[best % map.width]} ${map.values[best]!.toFixed(2)}`;
  const limit = APART + Math.min(wide * 0.36, Math.max(...[...rows, ...columns].map((word) => widthOf(word, 12))) + 2);
  const y = (place: number) => HEAD + (place + 0.5) * pitch, [from, to] = [limit + 3, wide - limit - 3], middle = wide / 2, foot = HEAD + Math.max(rows.length, columns.length) * pitch;
  const order = Array.from(map.values, (_, k) => k).filter((k) => map.values[k]! >= LEAST_WEIGHT).sort((a, b) => map.values[a]! - map.values[b]!);
  const side = (words: readonly string[], x: number, anchor: string) => words.map((word, k) => squeezed(word, limit - APART, 12, { x, y: y(k) + 4, "text-anchor": anchor }));
  return s("svg", { class: "fv-copy", width: wide, height: foot + (joined ? ARROW : 0), role: "img", "aria-label": `${name}: ${does}` },
    ...[name, does].map((text, k) => s("text", { class: `fv-name fv-line-${hue}`, x: wide / 2, y: 12 + 15 * k, "text-anchor": "middle" }, fitted(text, wide, 12))),
    ...order.map((k) => {
      const weight = map.values[k]!, [a, b] = [y(Math.floor(k / map.width)), y(k % map.width)];
      return s("path", { class: `fv-curve fv-line-${hue}`, d: `M${from} ${a}C${middle} ${a} ${middle} ${b} ${to} ${b}`, opacity: k === best ? 1 : 0.45, style: `stroke-width: ${0.6 + THICK * weight}px` });
    }), ...side(rows, limit, "end"), ...side(columns, wide - limit, "start"),
    joined && s("path", { class: `fv-curve fv-line-${hue}`, d: `M${middle} ${foot}v${ARROW - 2}m-4 -5l4 5l4 -5` }));
}

export function heads(choose: (layer: number, head: number | null) => void, large: boolean): Heads {
  const canvas = h("canvas", { "aria-hidden": "true" }), grid = h("div", { class: "fv-heads-grid" }), kinds = h("div");
  const element = h("section", { class: large ? "fv-heads fv-large" : "fv-heads" },
    h("h3", {}, "Layers and heads"), kinds, h("div", { class: "fv-scroll" }, grid));
  let thumbs: Thumb[] = [], only = "", paint = () => undefined as void;

  const thumb = (maps: BlockMaps, layer: number, head: number | null, named: boolean, x: number, y: number): Thumb => {
    const kind = head === null ? "" : (maps.block.kinds[layer]?.[head] ?? "");
    const name = `layer ${layer}, ${called(head)}${kind && `: ${kind}`}`;
    const label = named && h("span", {}, kind === UNCLEAR ? "" : kind || called(head));
    return { layer, head, kind, x, y, button: h("button", { type: "button", "aria-label": name, title: name, click: () => choose(layer, head) }, label) };
  };

  const show: Heads["show"] = (maps, scale) => {
    const { layers, hasHeads, rows, columns, kinds: known } = maps.block;
    const most = hasHeads ? Math.max(...layers.map((_, layer) => maps.heads(layer))) : 0;
    const across = most === 1 ? [null] : [null, ...Array(most).keys()]; // one head is its own mean
    element.hidden = across.length * layers.length === 1;
    const tall = tallOf(element, Infinity), isWhole = large && Number.isFinite(tall); // on a slide
    const words = Math.max(rows.length, columns.length), pitch = Math.min(PITCH, Math.floor((tall - LABEL - HEAD - GAP) / words));
    if (isWhole && words <= MOST_WORDS && most <= MOST_ACROSS && pitch >= LEAST_PITCH) { copy(maps, most || 1, pitch); return; }
    const room = (element.parentElement?.clientWidth || 300) - (isWhole ? LAYER : LABEL) - 10, side = isWhole ? LAYER : LABEL, top = LABEL;
    const ratio = Math.min(3, Math.max(1 / 3, rows.length / columns.length)), high = (tall - top) / layers.length - (isWhole ? 0 : NAME) - GAP;
    const wide = Math.max(28, Math.min(isWhole ? LARGEST : large ? LARGE : SMALL, Math.floor(room / across.length) - GAP, Math.floor(high / ratio)));
    const named = !isWhole && known.length > 0 && wide >= 56, inner = wide - 2 * EDGE, deep = Math.round(inner * ratio);
    const down = deep + 2 * EDGE + (named ? NAME : 0), word = (text: string) => (isWhole ? `${text} ` : "");
    grid.style.gridTemplateColumns = `${side}px repeat(${across.length}, ${wide}px)`;
    grid.style.gridTemplateRows = `${top}px repeat(${layers.length}, ${down}px)`;
    const place = (k: number, one: number, before: number) => before + GAP + k * (one + GAP) + EDGE;
    thumbs = layers.flatMap((_, layer) => across.flatMap((head, k) =>
      head !== null && head >= maps.heads(layer) ? [] : [thumb(maps, layer, head, named, place(k, wide, side), place(layer, down, top))]));
    const line = (layer: number) => across.map((head) => thumbs.find((t) => t.layer === layer && t.head === head)?.button ?? h("span"));
    grid.replaceChildren(h("span"), ...across.map((head) => h("span", {}, head === null ? "mean" : word("head") + String(head))),
      ...layers.flatMap((_, layer) => [h("span", {}, word("layer") + String(layer)), ...line(layer)]), canvas);
    paint = () => draw(maps, scale, inner, deep);
    paint();
    offer();
  };

  /** On a slide: each head of the last layer as a copy of the sentence, in a colour of its own. */
  const copy = (maps: BlockMaps, most: number, pitch: number) => {
    const { block } = maps, layer = block.layers.length - 1, wide = Math.floor(((element.parentElement?.clientWidth || 600) - SIDE - most * GAP) / most);
    thumbs = [];
    grid.style.gridTemplateColumns = `${SIDE}px repeat(${most}, ${wide}px)`;
    grid.style.gridTemplateRows = "";
    grid.replaceChildren(h("span", { class: "fv-upright" }, `layer ${layer}`), ...[...Array(most).keys()].map((head) => {
      const map = maps.map(layer, head);
      return map ? copied(map, block, head, wide, pitch, most > 1) : h("span");
    }), ...(most > 1 ? [h("p", { class: "fv-concat" }, `concatenated: [${[...Array(most).keys()].map(called).join("; ")}] W`, h("sub", {}, "O"))] : []), h("p", { class: "fv-quiet", style: "grid-column:1/-1;margin:0" }, `lines: α ≥ ${LEAST_WEIGHT}`));
  };

  /** All maps onto one canvas, at the pixels of the screen. */
  const draw = (maps: BlockMaps, scale: Scale, inner: number, deep: number) => {
    const ratio = devicePixelRatio || 1, last = thumbs.reduce((far, { x, y }) => ({ x: Math.max(far.x, x), y: Math.max(far.y, y) }), { x: 0, y: 0 });
    const width = last.x + inner, height = last.y + deep, real = (length: number) => Math.round(length * ratio);
    Object.assign(canvas, { width: real(width), height: real(height) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const pen = canvas.getContext("2d")!, image = new ImageData(canvas.width, canvas.height), whole = new Uint32Array(image.data.buffer);
    for (const { layer, head, kind, x, y } of thumbs) {
      const small = maps.small(layer, head, scale, Math.min(THUMB, real(Math.max(inner, deep))));
      if (!small) continue;
      const faint = only !== "" && kind !== only, colours = pixels(small.levels, sequential);
      if (faint) for (let i = 3; i < colours.length; i += 4) colours[i]! *= FAINT;
      enlarged(new Uint32Array(colours.buffer), small.height, small.width, whole, canvas.width, { x: real(x), y: real(y), width: real(inner), height: real(deep) });
    }
    pen.putImageData(image, 0, 0);
  };

  /** The kinds of heads that there are; to choose one makes the others faint. */
  const offer = () => {
    const names = [...new Set(thumbs.map(({ kind }) => kind).filter(Boolean))].sort();
    if (!names.includes(only)) only = "";
    const count = (name: string) => thumbs.filter(({ kind }) => kind === name).length;
    const pick = (name: string) => { only = name; paint(); };
    kinds.replaceChildren(...(names.length > 1
      ? [choices("Kind of head", [["", "all"], ...names.map((name) => [name, `${name}: ${count(name)} ${count(name) > 1 ? "heads" : "head"}`] as const)], only, pick).element] : []));
  };

  const select: Heads["select"] = (layer, head) => {
    const focused = grid.contains((grid.getRootNode() as Document | ShadowRoot).activeElement);
    for (const entry of thumbs) {
      const chosen = entry.layer === layer && (entry.head === head || thumbs.every((other) => other.head === null));
      entry.button.setAttribute("aria-pressed", String(chosen));
      entry.button.tabIndex = chosen ? 0 : -1;
      if (chosen && focused) entry.button.focus();
    }
  };
  return { element, show, select };
}
