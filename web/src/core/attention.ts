// Attention between words: sentences, links, matrix and heads, all of one map that is chosen.
import { Grid, LABELS, WRITTEN } from "./cells";
import { choices, fill, h, tallOf } from "./dom";
import { heads } from "./heads";
import { legend } from "./legend";
import { largest, levelsOf, rowOf, sequential, strongest, type Matrix, type Scale } from "./levels";
import { links } from "./links";
import { cellOf, layerAndHead, MOST_WORDS, nextHead, weightsOf, type Looking, type Side } from "./looking";
import { blockOf, BlockMaps } from "./maps";
import { palette } from "./palette";
import type { Choice } from "./selection";
import { sentences } from "./sentences";
import type { Drawn, Part, Stage, Twin } from "./stage";
import { spoken } from "./text";
import type { AttentionDrawing, Block } from "./types";

const FORMS: Record<AttentionDrawing["form"], readonly Part[]> = {
  matrix: ["sentences", "matrix"], links: ["links"], heads: ["matrix"], // beside the choices of a map
};
/** Whether nothing has the focus, so that the arrows are those of the first map that is seen. */
const isFree = (target: Node) => target === document.body || (target instanceof Element && target.matches("main"));
const isSeen = (box: Element) => box.checkVisibility() && box.getBoundingClientRect().bottom > 0 && box.getBoundingClientRect().top < innerHeight;

const rowsOf: Record<Block["rowMeans"], string> = { producing: "writes", at: "reads" }; // a row in words
const MOST_LISTED = 20_000; // cells in the table; above, each row says its strongest

/** Which map this is, in words. */
export function described({ name, layers, hasHeads }: Block, layer: number, head: number | null, isProduct = false, isCounted = false): string {
  const parts = [spoken(name)];
  if (layers.length > 1) parts.push(isProduct && layer ? `layers 0 to ${layer}` : `layer ${layer}${isCounted && layer === layers.length - 1 ? " (the last; counted from 0)" : ""}`);
  if (!hasHeads || (layers[layer]?.shape[0] ?? 1) > 1) parts.push(head === null ? "mean of the heads" : `head ${head}`);
  return parts.join(", ");
}

/** The numbers of a map as a table; of a large one the strongest of each row. */
export function listed(map: Matrix, { rows, columns }: Block, caption: string): Twin {
  const rounded = (weight: number) => weight.toFixed(4);
  if (map.values.length <= MOST_LISTED)
    return { caption, columns: ["", ...columns], rows: rows.map((word, t) => [word, ...Array.from(rowOf(map, t), rounded)]) };
  const most = (t: number) => strongest(rowOf(map, t), 8, 1e-4).map((k) => `${columns[k]} ${rounded(rowOf(map, t)[k]!)}`);
  return { caption: `${caption}: the strongest of each row`, columns: ["", "attends to"], rows: rows.map((word, t) => [word, most(t).join(", ")]) };
}

/** Attention on a stage; `redraw` shows other weights of the same blocks, what was chosen stays. */
export function attention(stage: Stage, drawing: AttentionDrawing): Drawn & { redraw(next: AttentionDrawing): void } {
  const { body, selection, options, memory } = stage;
  const parts = new Set<Part>(options.parts ?? [...FORMS[drawing.form], "blocks", "heads", "scale", "key"]);
  const chosenBlock = () => blockOf(drawing, selection.now.block ?? drawing.block);
  let scale = (memory.get("scale") as Scale | undefined) ?? drawing.scale;
  let shown = -1, maps!: BlockMaps, block!: Block, map: Matrix | undefined, looking: Looking = { row: 0, column: 0, side: "row" };

  const choose = (change: Choice) => selection.set(change);
  const words = () => ({ rows: block.rows, columns: block.columns });
  const pointSide = (side: Side, place: number) =>
    choose(side === "row" ? { ...words(), side, row: place, column: undefined } : { ...words(), side, column: place, row: undefined });
  const pointCell = (row: number, column: number) => choose({ ...words(), side: "row", row, column });

  const grid = new Grid(pointCell, "matrix of attention"), lines = sentences(pointSide), joined = parts.has("links") ? links(pointSide) : undefined; // a page without them has not their code
  const picker = heads((layer, head) => choose({ layer, head }), drawing.form === "heads" && !options.parts);
  const reading = h("output", { class: "fv-reading", "aria-live": "polite" }), others = h("p", { class: "fv-others" });
  const keys = h("p", { class: "fv-keys", "data-unsaved": true }, ...["←", "↑", "↓", "→"].map((k) => h("kbd", {}, k)), " cell · ",
    h("kbd", {}, "["), h("kbd", {}, "]"), " layer · ", h("kbd", {}, ","), h("kbd", {}, "."), " head");
  const blocks = choices("Attention of", drawing.blocks.map((b) => [b.name, spoken(b.name)] as const),
    drawing.blocks[chosenBlock()]?.name ?? "", (name) => choose({ block: name }));
  const scales = choices("Colours", [["absolute", "absolute"], ["row", "by row"]] as const, scale, (value) => {
    memory.set("scale", (scale = value));
    showBlock();
  });
  const key = h("div"), wrong = h("p", { class: "fv-wrong", hidden: true });
  const reads = parts.has("matrix") || parts.has("links") || parts.has("sentences");
  const has = (part: Part, ...nodes: HTMLElement[]) => (parts.has(part) ? nodes : []);
  const isOverview = drawing.form === "heads" && !options.parts, full = reads && (parts.has("blocks") || parts.has("heads") || parts.has("scale"));
  const pictures = [...(reads ? [reading, others] : []), ...(joined ? [joined.element] : []), ...has("matrix", grid.element, ...(options.frame === false ? [] : [keys])), wrong];
  const choosers = [...has("blocks", blocks.element), ...has("heads", picker.element), ...has("scale", scales.element), ...has("key", key)];
  const main = h("div", { class: isOverview ? "fv-main fv-aside" : "fv-main" }, ...(isOverview ? choosers : pictures));
  const aside = h("div", { class: isOverview ? "" : "fv-aside" }, ...(full ? has("matrix", grid.loupe!.element) : []), ...(isOverview ? pictures : choosers));
  body.append(...has("sentences", lines.element), h("div", { class: full ? "fv-two" : "" }, main, aside));
  main.hidden = !main.childElementCount;

  /** Which heads of the map are silenced: their weights are all 0. */
  function silence(layer: number, head: number | null): string {
    if (map && !map.values.some((weight) => weight > 0)) return "Silenced: all weights are 0. ";
    const silent = (head === null ? block.kinds[layer] ?? [] : []).flatMap((kind, k) => (kind === "silenced" ? [`head ${k}`] : []));
    return silent.length ? `Silenced: ${silent.join(", ")}. ` : "";
  }
  const isSlide = () => Number.isFinite(tallOf(body, Infinity));
  const many = () => Math.max(block.rows.length, block.columns.length) > MOST_WORDS;
  const heights = () => layerAndHead(selection.now, drawing, block), isProduct = drawing.notes.some((note) => note.startsWith("rollout"));

  function point(): void { // another cell of the same map
    if (!map) return;
    looking = cellOf(selection.now, block, map);
    const { row, column, side } = looking, weights = weightsOf(map, looking);
    const { layer, head } = heights(), name = described(block, layer, head, isProduct);
    if (parts.has("matrix")) grid.select(row, column);
    if (parts.has("sentences") && !lines.element.hidden) lines.select(side, side === "row" ? row : column, weights);
    joined?.select(looking);
    if (!reads) return;
    const value = map.values[row * map.width + column]!, names = side === "row" ? block.columns : block.rows;
    fill(reading, "“", h("bdi", {}, block.rows[row]!), "” ← “", h("bdi", {}, block.columns[column]!), "”: weight ", h("b", {}, value.toFixed(isSlide() ? 2 : 4)));
    reading.hidden = !!joined && isSlide(); // its lines say it
    fill(others, silence(layer, head), described(block, layer, head, isProduct, true), ...strongest(weights, 3, 0.005).flatMap((k, i) =>
      [i ? ", " : " · strongest: ", h("bdi", {}, names[k]!), ` ${weights[k]!.toFixed(2)}`]));
    for (const box of [grid.box, joined?.element.firstElementChild]) box?.setAttribute("aria-label", `${name}: ${reading.textContent}`);
  }

  /** The computation of the chosen row, of the head that is shown; of a mean, of the head with most weight on the cell. */
  function walk(): boolean {
    if (!map || !options.onwalk) return false;
    const { layer, head } = heights(), { row, column } = looking, at = row * map.width + column;
    const weights = Array.from({ length: maps.heads(layer) }, (_, k) => maps.map(layer, k)!.values[at]!);
    const most = head ?? largest(weights), link = `“${block.rows[row]}” ← “${block.columns[column]}”`;
    const why = head === null && weights.length > 1
      ? `Head ${most} has the largest weight for ${link}: ${weights[most]!.toFixed(2)}; the mean of the ${weights.length} heads is ${map.values[at]!.toFixed(2)}.` : "";
    choose({ ...words(), side: "row", row, column, walk: { row, why } });
    options.onwalk(block.name, layer, most);
    return true;
  }
  body.addEventListener("dblclick", ({ target }) => {
    if (target instanceof Element && target.closest(".fv-cells, .fv-joined, .fv-sentences")) walk();
  });

  function showMap(): void { // another layer or head of the same block
    const { layer, head } = heights();
    map = maps.map(layer, head);
    wrong.hidden = !(wrong.textContent = map ? "" : maps.failure ? `The weights could not be loaded: ${maps.failure}` : "Loading the weights …");
    if (parts.has("heads")) picker.select(layer, head);
    if (!map) return;
    const { rows, columns } = block;
    const isWritten = parts.has("matrix") && !isOverview && isSlide() && (grid.element.clientWidth - LABELS) / map.width >= WRITTEN; // on a slide
    if (parts.has("matrix")) grid.show({
      height: map.height, width: map.width, levels: levelsOf(map, scale), colours: sequential, rows, columns, down: rowsOf[block.rowMeans], whole: isWritten, outlines: selection.now.framed?.[block.name],
      texts: isWritten ? rows.map((_, t) => Array.from(rowOf(map!, t), (weight) => weight.toFixed(2))) : [],
    });
    joined?.show(rows, columns, map);
    point();
    stage.changed();
  }

  function showBlock(): void { // another block, or other colours
    const index = chosenBlock();
    if (shown !== index) {
      shown = index;
      block = drawing.blocks[index]!;
      maps = new BlockMaps(block, () => { if (shown === index) showBlock(); });
      lines.element.hidden = many();
      if (parts.has("sentences") && !many()) lines.show(block.rows, block.columns, rowsOf[block.rowMeans]);
      blocks.set(block.name);
    }
    if (parts.has("heads")) picker.show(maps, scale);
    const how = palette.scales[scale];
    key.replaceChildren(legend(sequential, how.marks, `${how.caption}; no colour: 0 (masked or silenced)`));
    showMap();
  }

  const quiet = selection.on((_, changed) => {
    if ("block" in changed) showBlock();
    else if ("layer" in changed || "head" in changed || "framed" in changed) showMap();
    else point();
  });
  showBlock();

  const onKey = (event: KeyboardEvent): boolean => {
    const { layer, head } = heights(), to = (l: number) => Math.max(0, Math.min(block.layers.length - 1, l));
    const ring = (by: number) => choose({ head: nextHead(head, by, maps.heads(layer)) });
    const acts: Record<string, () => void> = {
      "[": () => choose({ layer: to(layer - 1) }), "]": () => choose({ layer: to(layer + 1) }), ",": () => ring(-1), ".": () => ring(1),
    };
    const target = event.target as Node, inPicker = picker.element.contains(target);
    if (inPicker) Object.assign(acts, { ArrowUp: acts["["], ArrowDown: acts["]"], ArrowLeft: acts[","], ArrowRight: acts["."] });
    const inWords = joined?.element.contains(target), place = looking[looking.side];
    if (inWords) Object.assign(acts, {
      ArrowUp: () => pointSide(looking.side, Math.max(0, place - 1)),
      ArrowDown: () => pointSide(looking.side, Math.min(block[`${looking.side}s`].length - 1, place + 1)),
      ArrowLeft: () => pointSide("row", looking.row), ArrowRight: () => pointSide("column", looking.column),
    });
    const step = grid.box === target || (isFree(target) && isSeen(grid.box)) ? grid.step(event.key) : undefined, act = acts[event.key];
    if (event.key === "Enter" && (grid.box === target || inWords)) return walk();
    if (step) pointCell(...step);
    else act?.();
    return step !== undefined || act !== undefined;
  };
  const name = () => described(block, heights().layer, heights().head, isProduct);
  return {
    key: onKey,
    resize: () => { if (parts.has("heads")) picker.show(maps, scale); showMap(); },
    twin: () => (map ? listed(map, block, name()) : { caption: name(), columns: [], rows: [] }),
    json: () => map && ({ map: name(), rows: block.rows, columns: block.columns, weights: block.rows.map((_, t) => Array.from(rowOf(map!, t))) }),
    redraw: (next) => {
      drawing = next;
      shown = -1;
      showBlock();
    },
    destroy: quiet,
  };
}
