// All layers and heads in small: the picture of them is how one is chosen.
import { choices, h } from "./dom";
import { pixels, sequential, type Scale } from "./levels";
import type { BlockMaps } from "./maps";

const THUMB = 72; // pixels of a small map at most

export interface Heads {
  readonly element: HTMLElement;
  /** Draw the maps of a block. */
  show(maps: BlockMaps, scale: Scale): void;
  /** Say which is chosen. */
  select(layer: number, head: number | null): void;
}

const called = (head: number | null) => (head === null ? "mean" : `head ${head}`);

export function heads(choose: (layer: number, head: number | null) => void, large: boolean): Heads {
  const grid = h("div", { class: "fv-heads-grid" }), kinds = h("div");
  const element = h("section", { class: large ? "fv-heads fv-large" : "fv-heads" },
    h("h3", {}, "Layers and heads"), kinds, h("div", { class: "fv-scroll" }, grid));
  let buttons: { layer: number; head: number | null; button: HTMLButtonElement; kind: string }[] = [];

  const thumb = (maps: BlockMaps, layer: number, head: number | null, scale: Scale, size: number) => {
    const kind = head === null ? "" : (maps.block.kinds[layer]?.[head] ?? "");
    const name = `layer ${layer}, ${called(head)}`;
    const small = maps.small(layer, head, scale, THUMB), canvas = h("canvas", { "aria-hidden": "true" });
    if (small) {
      Object.assign(canvas, { width: small.width, height: small.height });
      canvas.getContext("2d")!.putImageData(new ImageData(pixels(small.levels, sequential), small.width, small.height), 0, 0);
      canvas.style.aspectRatio = String(Math.min(3, Math.max(1 / 3, small.width / small.height)));
    }
    const button = h("button", {
      type: "button", "aria-label": kind ? `${name}: ${kind}` : name, title: kind ? `${name}: ${kind}` : name,
      click: () => choose(layer, head),
    }, canvas, kind !== "" && size >= 56 && h("span", {}, kind));
    buttons.push({ layer, head, button, kind });
    return button;
  };

  const show = (maps: BlockMaps, scale: Scale) => {
    const { layers, hasHeads } = maps.block;
    const most = hasHeads ? Math.max(...layers.map((_, layer) => maps.heads(layer))) : 0;
    const across = most === 1 ? [null] : [null, ...Array(most).keys()]; // one head is its own mean
    element.hidden = across.length * layers.length === 1;
    const room = element.parentElement?.clientWidth || 300;
    const size = Math.max(28, Math.min(large ? 112 : 60, Math.floor((room - 40) / across.length) - 4));
    buttons = [];
    grid.style.gridTemplateColumns = `auto repeat(${across.length}, ${size}px)`;
    grid.replaceChildren(h("span"), ...across.map((head) => h("span", {}, head === null ? "mean" : String(head))));
    layers.forEach((_, layer) => grid.append(h("span", {}, String(layer)), ...across.map((head) =>
      head === null || head < maps.heads(layer) ? thumb(maps, layer, head, scale, size) : h("span"))));
    const names = [...new Set(buttons.map(({ kind }) => kind).filter(Boolean))].sort();
    const count = (name: string) => buttons.filter(({ kind }) => kind === name).length;
    const only = (name: string) => buttons.forEach(({ kind, button }) => button.classList.toggle("fv-dim", name !== "" && kind !== name));
    kinds.replaceChildren(...(names.length
      ? [choices("Kind of head", [["", "all"], ...names.map((name) => [name, `${name} ${count(name)}`] as const)], "", only).element] : []));
  };

  const select = (layer: number, head: number | null) => {
    const focused = grid.contains((grid.getRootNode() as Document | ShadowRoot).activeElement);
    for (const entry of buttons) {
      const chosen = entry.layer === layer && (entry.head === head || buttons.every((b) => b.head === null));
      entry.button.setAttribute("aria-pressed", String(chosen));
      entry.button.tabIndex = chosen ? 0 : -1;
      if (chosen && focused) entry.button.focus();
    }
  };
  return { element, show, select };
}
