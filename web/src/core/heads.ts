// All layers and heads in small: the picture of them is how one is chosen.
import { choices, h, tallOf } from "./dom";
import { enlarged, pixels, sequential, type Scale } from "./levels";
import type { BlockMaps } from "./maps";

const THUMB = 72; // cells of a small map at most, whatever the screen
const GAP = 4, EDGE = 3, LABEL = 18, NAME = 16, LAYER = 56; // pixels between, around, for numbers, for the kind of a head, for "layer 0"
const SMALL = 60, LARGE = 112, LARGEST = 180; // pixels of a small map at most; where they are all that is shown
const FAINT = 0.16, UNCLEAR = "no pattern"; // a kind that says nothing
const LEAST_CELL = 8, MOST_NAMED = 10, ROOM = 58, TURNED = 50; // pixels of a cell beside which a word is written on a slide; words of a side at most; pixels for those of rows, of columns

export interface Heads {
  readonly element: HTMLElement;
  /** Draw the maps of a block. */
  show(maps: BlockMaps, scale: Scale): void;
  /** Say which is chosen. */
  select(layer: number, head: number | null): void;
}

interface Thumb { layer: number; head: number | null; kind: string; button: HTMLButtonElement; x: number; y: number }

const called = (head: number | null) => (head === null ? "mean" : `head ${head}`);

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
    const tall = tallOf(element, Infinity), isWhole = large && Number.isFinite(tall), isNamed = isWhole && Math.max(rows.length, columns.length) <= MOST_NAMED; // on a slide
    const side = isNamed ? LAYER + ROOM : isWhole ? LAYER : LABEL, top = LABEL + (isNamed ? TURNED : 0);
    const room = (element.parentElement?.clientWidth || 300) - side - 10;
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
    const listed = (texts: readonly string[], pixels: number) => (isNamed ? h("span", { class: "fv-heads-words", hidden: pixels < LEAST_CELL, style: `--cell: ${pixels}px` }, ...texts.map((text) => h("bdi", {}, text))) : "");
    grid.replaceChildren(h("span"), ...across.map((head) => h("span", {}, head === null ? "mean" : word("head") + String(head), listed(columns, inner / columns.length))),
      ...layers.flatMap((_, layer) => [h("span", {}, word("layer") + String(layer), listed(rows, deep / rows.length)), ...line(layer)]), canvas);
    paint = () => draw(maps, scale, inner, deep);
    paint();
    offer();
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
