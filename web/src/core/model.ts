// A model to scale: a column for each part, its blocks beside the residual stream, what is pointed at in words.
import { fitted, formula, h, s, tallOf, zoomOf } from "./dom";
import { palette } from "./palette";
import type { Draw, Twin } from "./stage";
import type { ModelBlock, ModelDrawing, ModelPart } from "./types";

const WIDEST = 110, TALLEST = 96, LEAST = 40, BESIDE = 16; // pixels: the largest block, a row, stream to branch
const LINE = 13, NARROW = 300; // of a row where all have to fit; of a column without room for many places
const PLACE = 60, BOX = 34, EDGES = 3, UNROLLED = 62; // of an unrolled cell; places before the last; pixels that it is high

const count = (n: number) => n.toLocaleString("en-US");
const sizeOf = ({ parameters, shared }: ModelBlock) => parameters + shared;
const amount = ({ parameters, shared }: ModelBlock) => count(parameters) + (shared ? ` + ${count(shared)} shared` : "");
const sizes = ({ widths }: ModelBlock) => widths.filter((size, k) => size !== widths[k - 1]).map(count).join(" → ");
const shape = ({ output, calls, steps }: ModelBlock) => output + (calls > 1 && !steps.length ? `, ${calls} times` : "");
const colourOf = ({ hue }: ModelBlock) => (hue === null ? "var(--quiet)" : palette.lines[hue % palette.lines.length]!);
const total = (blocks: readonly ModelBlock[]) => blocks.reduce((sum, { parameters }) => sum + parameters, 0);

/** Blocks in layers; layers that are alike stand together. */
export function alikeLayers(blocks: readonly ModelBlock[]): ModelBlock[][][] {
  const runs: ModelBlock[][][] = [], form = (layer: ModelBlock[]) => JSON.stringify(layer.map((block) => [block.does, block.widths, sizeOf(block)]));
  let layer: ModelBlock[] = [];
  for (const block of blocks) {
    if (block.layer !== layer[0]?.layer || !layer.length) runs.push([(layer = [])]);
    layer.push(block);
  }
  return runs.reduce<ModelBlock[][][]>((joined, [next]) => {
    const before = joined.at(-1);
    if (before && next![0]!.layer !== null && form(before[0]!) === form(next!)) before.push(next!);
    else joined.push([next!]);
    return joined;
  }, []);
}

export const model: Draw<ModelDrawing> = ({ body, options, memory }, { title, parts }) => {
  const blocks = parts.flatMap((part) => part.blocks), rows = new Map<ModelBlock, HTMLButtonElement>();
  const cells = (part: ModelPart) => part.blocks.filter(({ steps }) => steps.length).length;
  const room = Math.min(...parts.map((part) => (tallOf(body, Infinity) - UNROLLED * cells(part)) / Math.max(1, part.blocks.length))), fits = room < LEAST; // on a slide
  const least = fits ? Math.max(LINE, room) : LEAST, [widest, tallest] = fits ? [WIDEST / 2, least - 2] : [WIDEST, TALLEST];
  const across = widest / Math.sqrt(Math.max(1, ...blocks.flatMap(({ widths }) => widths))), down = tallest / Math.sqrt(Math.max(1, ...blocks.map(sizeOf)));
  const wide = ({ widths }: ModelBlock) => widths.map((size) => across * Math.sqrt(size));
  const details = h("div", { class: "fv-details", "aria-live": "polite", "data-testid": "block-details" });
  let chosen: ModelBlock | undefined, fresh = false;

  const open = ({ walk }: ModelBlock) => { if (walk) options.onwalk?.(String(walk[0]), Number(walk[1]), 0); };
  const show = (block: ModelBlock) => {
    if (chosen === block) return;
    for (const [each, row] of rows) { row.tabIndex = each === block ? 0 : -1; row.classList.toggle("fv-chosen", each === block); }
    chosen = block;
    memory.set("block", block.name);
    const fact = (name: string, text: string) => text ? h("span", {}, h("span", { class: "fv-quiet" }, `${name} `), text) : undefined;
    details.replaceChildren(
      h("div", {}, h("b", {}, block.name), ` ${block.does} `, h("code", {}, block.place)), h("div", {}, formula(block.equation)),
      h("div", { class: "fv-facts" }, fact("sizes", sizes(block)), fact("gives", shape(block)),
        fact("parameters", amount(block)), fact("of which", block.weights.join(", ")), fact("reads", block.reads.join(", ")),
        block.walk && options.onwalk ? h("button", { type: "button", click: () => { open(block); } }, "Step by step ›") : undefined));
  };

  const column = (part: ModelPart): HTMLElement => {
    const side = part.blocks.filter(({ branch }) => branch !== null), main = part.blocks.filter(({ branch }) => branch === null);
    const middle = Math.max(12, ...main.flatMap(wide)) / 2, widest = Math.max(0, ...side.flatMap(wide));
    const begin = middle + Math.max(0, ...side.map((block) => wide(block).at(-1) ?? 0)) / 2 + BESIDE;
    const broad = Math.ceil(Math.max(2 * middle, side.length ? begin + widest : 0)) + 4;
    let stream = 0;
    const band = (top: number, bottom: number) => s("rect", { class: "fv-stream", x: middle - stream / 2, y: top, width: stream, height: Math.max(0, bottom - top) });
    const drawn = (height: number, ...shapes: SVGElement[]) => s("svg", { width: broad, height, "aria-hidden": "true" }, ...shapes);
    const plus = (y: number) => s("path", { class: "fv-plus", d: `M${middle - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0h10m-5 -5v10` });
    const graphic = (block: ModelBlock, first: boolean, last: boolean): SVGElement => {
      const ends = wide(block), tall = ends.length && Math.max(3, down * Math.sqrt(sizeOf(block))), height = Math.ceil(Math.max(least + (block.steps.length ? UNROLLED : 0), fits ? 0 : tall + 8));
      const top = (height - tall) / 2, shapes: SVGElement[] = [];
      if (block.branch === null) {
        stream ||= ends[0] ?? 0;
        shapes.push(band(0, top));
        stream = ends.at(-1) ?? stream;
        shapes.push(band(top + tall, height));
        if (block.family === "position") shapes.push(plus(height / 2)); // added to the stream
      } else {
        const x = begin + widest / 2, y = height - 5;
        shapes.push(band(0, height), s("path", { class: "fv-wire", d: `M${first ? `${middle + stream / 2} 5H${x}` : `${x} 0`}V${last ? `${y}H${middle}` : height}` }));
        if (last) shapes.push(plus(y));
      }
      const x = block.branch === null ? middle : begin + widest / 2, at = ends.map((_, k) => top + (tall * k) / (ends.length - 1));
      if (ends.length) {
        const left = ends.map((w, k) => `${x - w / 2} ${at[k]}`), right = ends.map((w, k) => `${x + w / 2} ${at[k]}`).reverse();
        shapes.push(s("path", { d: `M${[...left, ...right].join("L")}Z`, fill: block.parameters ? colourOf(block) : "var(--paper)", stroke: colourOf(block) }));
      }
      return drawn(height, ...shapes);
    };
    const row = (block: ModelBlock, k: number): HTMLElement => {
      const place = part.blocks.indexOf(block), branch = (near: number) => part.blocks[place + near]?.branch ?? null;
      const made = h("button", { type: "button", class: "fv-block", tabindex: -1, "data-block": block.name,
        pointerenter: (event: PointerEvent) => { if (event.pointerType === "mouse") show(block); },
        pointerdown: (event: PointerEvent) => { fresh = event.pointerType !== "mouse" && chosen !== block; }, // a first tap shows
        focus: () => { show(block); }, click: () => { if (!fresh) open(block); else details.scrollIntoView({ block: "nearest" }); fresh = false; show(block); } },
        graphic(block, branch(-1) !== block.branch, branch(1) !== block.branch),
        h("span", {}, h("b", {}, block.label, ...(block.reads.length ? [h("span", { class: "fv-reads" }, ` ← ${block.reads.join(", ")}`)] : [])), h("span", { class: "fv-quiet" }, [shape(block), amount(block)].filter(Boolean).join(" · ")),
          block.steps.length ? unrolled(block, body.clientWidth / parts.length < NARROW ? 1 : EDGES) : undefined));
      made.dataset.row = String(k);
      rows.set(block, made);
      return made;
    };
    const listed = alikeLayers(part.blocks).flatMap((run) => {
      const all = run.map((layer) => layer.map(row));
      if (run.length < 4 || run[0]![0]!.layer === null) return all.flat();
      const [start, second, end] = [0, 1, run.length - 2].map((n) => run[n]![0]!.layer);
      const said = `layers ${second} … ${end}: as layer ${start}, ${count(total(run[1]!))} each`;
      return [...all[0]!, h("details", { class: "fv-alike" }, h("summary", { class: "fv-quiet" }, drawn(LEAST, band(0, LEAST)), h("span", {}, said)), ...all.slice(1, -1).flat()), ...all.at(-1)!];
    });
    return h("section", { "aria-label": part.name }, h("h3", {}, part.name, h("span", { class: "fv-does" }, ` · ${part.does}`), ` · ${count(total(part.blocks))}`), ...listed);
  };

  /** Lines from the end of a part to the blocks of others that read what it gives. */
  const wires = s("svg", { class: "fv-joints", "aria-hidden": "true" }), columns = h("div", { class: "fv-parts" }, wires, ...parts.map(column));
  const join = () => {
    const zoom = zoomOf(columns), whole = columns.getBoundingClientRect(), measured = (node: Element) => {
      const { left, right, top, bottom } = node.getBoundingClientRect();
      return { left: (left - whole.left) / zoom, right: (right - whole.left) / zoom, top: (top - whole.top) / zoom, bottom: (bottom - whole.top) / zoom };
    };
    wires.replaceChildren(...parts.flatMap((part, k) => part.blocks.flatMap((block) => block.reads.flatMap((name) => {
      const from = parts.findIndex((other) => other.name === name), given = parts[from]?.blocks.at(-1), row = rows.get(block);
      if (!given || !row?.checkVisibility() || !rows.get(given)!.checkVisibility()) return [];
      const start = measured(rows.get(given)!.firstElementChild!), end = measured(row), low = start.bottom + 6;
      if (from > k || start.right > end.left) return []; // parts that stand below each other
      const gutter = end.left - 12, y = (end.top + end.bottom) / 2;
      return [s("path", { class: "fv-wire", d: `M${(start.left + start.right) / 2} ${start.bottom}V${low}H${gutter}V${y}H${end.left - 6}m-5 -4l5 4l-5 4` })];
    }))));
  };

  const families = new Map(blocks.filter(({ hue }) => hue !== null).map((block) => [block.family, colourOf(block)]));
  const legend = [...families].map(([name, colour]) => h("span", { class: "fv-key" }, s("svg", { width: 12, height: 12, "aria-hidden": "true" }, s("rect", { width: 12, height: 12, fill: colour })), name));
  body.append(h("div", { class: "fv-keys-row" }, ...legend, h("span", { class: "fv-key" }, "outlined: shares its parameters with an earlier block")),
    h("div", { class: "fv-model" }, columns, details));
  columns.addEventListener("toggle", join, true); // layers that are folded
  join();
  const before = blocks.find(({ name }) => name === memory.get("block")) ?? blocks[0];
  if (before) show(before);
  return {
    resize: join,
    key: ({ key, target }) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[key], all = [...rows.values()].filter((row) => row.checkVisibility());
      if (!by || !(target instanceof HTMLButtonElement) || !target.classList.contains("fv-block")) return false;
      all[all.indexOf(target) + by]?.focus();
      return true;
    },
    twin: (): Twin => ({
      caption: title || "model", columns: ["block", "class", "place", "computes", "sizes", "output", "parameters", "shared"],
      rows: blocks.map((block) => [block.name, block.does, block.place, block.equation, sizes(block), block.output, block.parameters, block.shared]),
    }),
  };
};

/** A cell at its first places and its last, with the states that go from one to the next. */
function unrolled(block: ModelBlock, edges: number): SVGElement {
  const few = block.steps.length <= edges + 2, words = few ? block.steps : [...block.steps.slice(0, edges), null, block.steps.at(-1)!];
  const places = words.flatMap((word, k) => {
    const x = 2 + k * PLACE, gap = PLACE - BOX, arrow = block.backwards ? `M${x + PLACE} 25h${-gap + 3}m5 -4l-5 4l5 4` : `M${x + BOX} 25h${gap - 3}m-5 -4l5 4l-5 4`;
    return [
      ...(word === null ? [s("text", { x: x + BOX / 2, y: 29, "text-anchor": "middle" }, "…")] : [
        s("rect", { x, y: 14, width: BOX, height: 22, rx: 3, fill: "none", stroke: colourOf(block), "stroke-width": 1.5 }), s("text", { class: "fv-quiet", x: x + BOX / 2, y: 29, "text-anchor": "middle" }, "cell"),
        s("text", { class: "fv-quiet", x: x + BOX / 2, y: 52, "text-anchor": "middle" }, fitted(word, PLACE - 8, 12)), s("path", { class: "fv-wire", d: `M${x + BOX / 2} 41v-5` })]),
      ...(k < words.length - 1 ? [s("path", { class: "fv-wire", d: arrow }), s("text", { class: "fv-quiet", x: x + (BOX + PLACE) / 2, y: 12, "text-anchor": "middle" }, block.states)] : []),
    ];
  });
  const width = PLACE * words.length;
  return s("svg", { class: "fv-unrolled", viewBox: `0 0 ${width} 58`, width, height: 58, "aria-hidden": "true" }, ...places);
}
