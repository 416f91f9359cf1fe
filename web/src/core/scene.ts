// One scene and its camera stops: boxes keep their place and colour while the camera moves.
import { faded, fill, fitted, h, put, s, tallOf, widthOf } from "./dom";
import { HIGH, insideOf, WIDE, type Inner } from "./insides";
import { decode, type Values } from "./numbers";
import type { Draw, Twin } from "./stage";
import { indexed } from "./text";
import type { Choice } from "./selection";
import type { SceneDrawing, SceneEdge, ScenePanel, SceneStop } from "./types";

const TYPE = 28, LEAST = 13; // pixels of letters where a stop is `WIDE` pixels wide, and at least
const LINE = 30, DIGIT = 0.73 * TYPE, AIR = 5, SHRUNK = 0.68; // of what a box says: its lines, the height of a digit, what is free around it; words at least
const SIDE = 14, INDEX = 0.7; // free beside what a box says; size of an index
const EDGE = 5; // around what a stop shows, so that its lines are whole
const SMALLEST = 12, GROWN = 1.25; // pixels of letters on a slide, and how much larger they are drawn for it
const MOVE = 300, CLEARLY = 1.7; // milliseconds of a camera move; how much more is seen elsewhere, so that a narrow window leaves the left
const HALF = WIDE / 2, STACKED = 2 * HIGH + 50, LOW = STACKED - HIGH; // of two parts on a narrow page: width of each, height of both, one below the other, and how far the second is below
type Box = SceneStop["box"];

/** The camera between two stops, at 0 to 1: its width changes by a factor, as a zoom looks even. Pure. */
export function between(from: Box, to: Box, at: number): Box {
  const t = at * at * (3 - 2 * at);
  const wide = from[2] * (to[2] / from[2]) ** t, part = Math.abs(to[2] - from[2]) < 1e-9 ? t : (wide - from[2]) / (to[2] - from[2]);
  return from.map((side, k) => side + (to[k]! - side) * part) as Box;
}

/** Whether a stop lights a name: all that begins with one of its names, everything where it has none. Pure. */
export const isLit = (stop: Pick<SceneStop, "lit">, name: string): boolean =>
  !stop.lit.length || stop.lit.some((lit) => name === lit || name.startsWith(`${lit} `));

/** The place of the row that is chosen in a map among others that count the same, whose words may be of several pieces. Pure. */
export function rowOf({ rows = [], walk }: Readonly<Choice>, others: readonly string[]): number | undefined {
  const row = walk?.row ?? -1, word = rows[row], near = (k: number) => Math.abs(k / others.length - row / rows.length);
  return others.map((_, k) => k).filter((k) => word?.startsWith(others[k]!.replace(/^[▁Ġ ]+/, "") || " ")).sort((a, b) => near(a) - near(b))[0];
}

/** Whether something is drawn at a stop. Pure. */
export const isShown = (stop: Pick<SceneStop, "shows">, tag: string): boolean => !tag || stop.shows.includes(tag);

/** A line between two parts that are drawn one below the other: beside the first, between them, beside the second. Pure. */
export const stacked = (points: SceneEdge["points"]): SceneEdge["points"] => {
  const [from, to] = points.map(([x, y]) => (x < HALF ? [x, y, HALF - 12] : [x - HALF, y + LOW, 12])).filter((_, k) => !k || k === points.length - 1);
  return from![2] === to![2] ? points : [[from![0]!, from![1]!], [from![2]!, from![1]!], [from![2]!, STACKED / 2], [to![2]!, STACKED / 2], [to![2]!, to![1]!], [to![0]!, to![1]!]];
};
const pathOf = ({ weight }: SceneEdge, points: SceneEdge["points"]) => {
  const letters = weight !== null && points.length === 4 ? "MC" : "M"; // what follows is joined by lines
  return points.map(([x, y], k) => `${letters[k] ?? ""}${x} ${y}`).join(" ");
};
/** Writes a label, its indices low: h_t. */
const write = (element: SVGTextElement, text: string, isPlain = false) => {
  let low = 0;
  fill(element, ...(isPlain ? [text] : indexed(text).map(({ text: part, tag }) => {
    const was = low;
    low = tag === "sub" ? 1 : tag === "sup" ? -1 : 0;
    return s("tspan", { dy: low === was ? undefined : `${(low - was) * (low ? 0.37 : 0.26)}em`, class: low ? "fv-low" : undefined }, part);
  })));
};
/** Units that a label is wide, of which indices take less. */
const across = (label: string) => indexed(label).reduce((sum, { text, tag }) => sum + widthOf(text, tag === "span" ? TYPE : INDEX * TYPE), 0);
/** What a box says: its numbers, or its label. */
const saidBy = ({ texts, label }: Inner) => (texts?.length ? texts : [label]);
/** What words or numbers that are side by side have in common: they are written in one size. */
const rowIn = ({ name, form }: Inner, text: string) => (form === "word" || /^[−\d.∞]+$/.test(text) ? form + name.replace(/^\w+coder \w+s|( \d+)+/g, "") : "");
const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const scene: Draw<SceneDrawing> = (stage, drawing) => {
  const { stops, panels } = drawing, last = stops.length - 1;
  let at = Math.min((stage.memory.get("scene") as number | undefined) ?? 0, last), camera: Box = stops[at]!.box, frame = 0, grown = 1;
  const drawn = new Map<Inner, { group: SVGGElement; texts: SVGTextElement[] }>();
  let lines: { edge: SceneEdge; path: SVGPathElement }[] = [];
  const opened = new Map<number, [Inner[], typeof lines]>(); // what is drawn of a panel
  const layers = [s("g"), s("g"), s("g")] as const; // groups, edges, boxes
  const mark = `fv-${Math.random().toString(36).slice(2)}`, right = s("g", { transform: `translate(${-HALF} ${LOW})` }); // a copy, of which the right half is seen
  const svg = s("svg", { class: "fv-scene-picture", role: "img", tabindex: 0 },
    s("defs", {}, s("marker", { id: mark, viewBox: "0 0 8 8", refX: 7, refY: 4, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { class: "fv-arrowhead", d: "M0 0L8 4L0 8z" }))), ...layers, right);
  const head = svg.querySelector("marker")!, view = h("div", { class: "fv-scroll" }, svg), cue = faded(view);
  const caption = h("output", { class: "fv-scene-caption", "aria-live": "polite" });
  const go = (text: string, name: string, by: number) => h("button", { type: "button", "aria-label": name, click: () => { move(by); } }, text);
  const chooser = h("select", { "aria-label": "camera stop", change: () => { show(Number(chooser.value)); } }, ...stops.map(({ name }, k) => h("option", { value: k }, `${k + 1} ${name}`)));
  const why = h("p", { class: "fv-quiet" });
  stage.body.append(why, view, caption, h("div", { class: "fv-walk", "data-unsaved": true }, go("‹", "before (←)", -1), go("›", "next (→)", 1), chooser));

  const hue = (number: number | null) => (number === null ? "" : ` fv-hue-${number}`);
  const addNode = (node: Inner) => {
    const [x, y, w, tall] = node.box, isGroup = node.form === "group", isStart = isGroup || (node.form === "label" && node.level);
    const isText = node.form === "word" || node.form === "label", shape = isText ? undefined : s("rect", { x, y, width: w, height: tall, rx: node.form === "plus" ? w / 2 : Math.min(12, 0.12 * w, 0.12 * tall) });
    shape?.style.setProperty("--level", String(node.level ?? 0)); // a page may forbid attributes of style
    const texts = saidBy(node).map(() => s("text", {
      x: isStart ? x + 10 : x + w / 2, "text-anchor": isStart ? "start" : "middle", "dominant-baseline": "central" }));
    const group = s("g", { class: `fv-node fv-${node.form}${hue(node.hue)}`, "data-name": node.name, click: () => { tell(node); } }, shape, ...texts);
    drawn.set(node, { group, texts });
    lighten(group, node); // before it is seen: what is hidden does not fade away
    layers[isGroup ? 0 : 2].append(group);
  };
  const addEdge = (edge: SceneEdge) => {
    const path = s("path", { class: `fv-edge-line${edge.weight === null ? "" : " fv-arc"}${hue(edge.hue)}`, ...(edge.weight === null ? { "marker-end": `url(#${mark})` } : {}) });
    if (edge.weight !== null) path.style.setProperty("--weight", String(edge.weight));
    lines.push({ edge, path });
    lighten(path, edge);
    layers[1].append(path);
  };
  const tell = ({ name, label, detail }: Inner) => { if (detail.length) caption.textContent = `${label || name}: ${detail.join(" · ")}`; };

  let asked = stage.selection.now.walk; // the row of a map whose computation is asked for
  /** A panel of the row that is asked for, whose word may be of several pieces. */
  const rowed = (number: number): ScenePanel => {
    const panel = panels[number]!, words = panel.tokens.writes?.map(([word]) => word ?? "") ?? panel.rows; // a decoder's rows are named by what they write in maps
    const row = asked && panel.columns.length ? rowOf(stage.selection.now, words) : undefined;
    return row === undefined ? panel : { ...panel, row };
  };
  const told = ({ caption: text, panel: number }: SceneStop): string => {
    if (number === null) return text;
    const own = panels[number]!, { row } = rowed(number);
    const named = (k: number) => [own.rows[k]!, own.tokens.writes?.[k]?.[0] ?? ""].map((word) => `“${word}”`);
    return row === own.row ? text : named(row).reduce((made, word, k) => made.replaceAll(named(own.row)[k]!, word), text.replace(/: (for “|\(|c ).*/, "."));
  };
  const failed = (error: unknown) => { caption.textContent = String(error); };
  /** The inside of a panel, made when the camera first goes there. */
  const open = (number: number) => {
    const [nodes, edges] = opened.get(number) ?? [[], []]; // of another row
    for (const node of nodes) {
      drawn.get(node)?.group.remove();
      drawn.delete(node);
    }
    for (const { path } of edges) path.remove();
    lines = lines.filter((each) => !edges.includes(each));
    opened.set(number, [[], []]);
    const panel = rowed(number), box = stops.find((stop) => stop.panel === number)!.box, names = Object.keys(panel.values);
    const build = (made: Values[]) => {
      const inside = insideOf(panel, new Map(names.map((name, k) => [name, made[k]!])), box);
      inside.nodes.forEach(addNode);
      const before = lines.length;
      inside.edges.forEach(addEdge);
      opened.set(number, [inside.nodes, lines.slice(before)]);
    };
    const coming = names.map((name) => decode(panel.values[name]!));
    if (coming.every((each) => !(each instanceof Promise))) build(coming as Values[]);
    else Promise.all(coming).then((made) => { build(made); paint(); }, failed);
  };

  const isPair = drawing.nodes.filter(({ form }) => form === "group").length > 1; // two stacks, which can be drawn one below the other
  let isNarrow = false;
  const isStacked = ({ box }: SceneStop) => isNarrow && isPair && box[2] === WIDE;
  const look = (box: Box) => {
    camera = box;
    const unit = box[2] / WIDE, seen = isStacked(stops[at]!) ? [0, 0, HALF, STACKED] : box;
    svg.setAttribute("viewBox", seen.map((side, k) => side + (k < 2 ? -EDGE : 2 * EDGE) * unit).join(" "));
    svg.style.setProperty("--unit", String(unit));
    put(head, { markerWidth: 12 * unit, markerHeight: 12 * unit });
  };
  const lighten = (element: Element, { tag, name, faint }: { tag: string; name: string; faint?: boolean }) => {
    element.classList.toggle("fv-off", !isShown(stops[at]!, tag));
    element.classList.toggle("fv-dim", faint || !isLit(stops[at]!, name));
  };
  /** Shows and lights what the stop says, with labels that fit their boxes. */
  const paint = () => {
    const stop = stops[at]!, [, , wide, high] = stop.box, unit = wide / WIDE, shown = [...drawn.keys()].filter(({ tag }) => isShown(stop, tag)), rows = new Map<string, number>(); // size of the words of a row
    const roomOf = ({ box, form }: Inner) => box[2] / unit - (form === "word" || form === "label" ? 0 : SIDE);
    const sizeOf = (node: Inner, text: string) => {
      const { length } = saidBy(node), tall = (node.box[3] / unit - AIR * (length + 1)) / length, row = rowIn(node, text);
      const own = node.form === "plus" ? 1 : Math.min(grown, roomOf(node) / across(text), node.form === "box" ? tall / DIGIT : grown), size = Math.max(SHRUNK, Math.min(own, rows.get(row) ?? own));
      if (row) rows.set(row, size);
      return size;
    };
    for (const node of shown) for (const text of saidBy(node)) sizeOf(node, text);
    for (const [node, { group, texts }] of drawn) {
      const [, y, w, tall] = node.box, { form } = node, isAround = (w > 0.9 * wide && form !== "group") || tall > 0.9 * high;
      const isLater = stop.panel !== null && form === "box" && !!node.texts && !isLit(stop, node.name); // its numbers are not written yet
      const told = isAround || isLater ? [] : saidBy(node), letter = DIGIT * unit * grown, gap = Math.min(LINE * unit * grown, letter + (tall - told.length * letter) / (told.length + 1));
      lighten(group, node);
      group.classList.toggle("fv-around", isAround);
      group.classList.toggle("fv-later", isLater);
      texts.forEach((text, k) => {
        text.setAttribute("y", String(form === "group" ? y + 28 : y + tall / 2 + (k - (told.length - 1) / 2) * gap));
        const full = told[k] ?? "", shrink = sizeOf(node, full), room = roomOf(node) / shrink;
        text.style.setProperty("--shrink", String(shrink));
        write(text, form === "plus" || across(full) < room + 1 ? full : fitted(full, room, TYPE), form === "word");
      });
    }
    for (const { edge, path } of lines) {
      put(path, { d: pathOf(edge, isStacked(stop) ? stacked(edge.points) : edge.points) });
      lighten(path, edge);
    }
    right.replaceChildren(...(isStacked(stop) ? layers.map((layer) => layer.cloneNode(true)) : []));
  };
  const say = (text: string) => { caption.replaceChildren(...indexed(text).map(({ text: part, tag }) => h(tag, {}, part))); };
  const size = () => {
    caption.style.minHeight = "0";
    say(stops.map(told).sort((a, b) => b.length - a.length)[0]!); // the picture keeps its size at all stops
    caption.style.minHeight = `${caption.offsetHeight}px`;
    say(told(stops[at]!));
    const room = stage.body.clientWidth || WIDE, slide = tallOf(stage.body, 0), tall = slide ? slide - caption.offsetHeight - 24 : tallOf(stage.body);
    const least = (WIDE * LEAST) / TYPE, most = (tall * WIDE) / HIGH;
    isNarrow = !slide && room < least;
    const both = isStacked(stops[at]!), wide = both ? room : Math.max(Math.min(room, most), slide > room ? Math.min(most, least) : slide ? 99 : least);
    grown = slide ? Math.max(1, Math.min(GROWN, SMALLEST / ((TYPE * wide) / WIDE))) : 1;
    put(svg, { width: wide, height: both ? (wide * STACKED) / HALF : (wide * HIGH) / WIDE });
    cue();
  };
  /** Brings what is lit and coloured most into a window that is narrower than the picture. */
  const arrive = () => {
    const stop = stops[at]!, [left, , wide] = stop.box, part = view.scrollWidth / wide, room = view.clientWidth / part;
    const lit = [...drawn.keys()].filter(({ hue: own, tag, name }) => own !== null && isShown(stop, tag) && isLit(stop, name));
    const seen = (from: number) => lit.reduce((sum, { box: [x, , w], level = 0 }) => sum + (x < from || x + w > from + room ? 0 : 0.2 + level), 0);
    const best = [left, ...lit.map(({ box }) => box[0])].reduce((one, other) => (seen(other) > (one === left ? CLEARLY : 1) * seen(one) ? other : one));
    view.scrollLeft = (best - left) * part;
    cue();
  };
  const show = (to: number, jump = false) => {
    at = Math.max(0, Math.min(last, to));
    const stop = stops[at]!, from = camera, start = performance.now();
    stage.memory.set("scene", at);
    if (stop.panel !== null && !opened.has(stop.panel)) open(stop.panel);
    chooser.value = String(at);
    svg.setAttribute("aria-label", `${stop.name}: ${told(stop)}`);
    cancelAnimationFrame(frame);
    size();
    paint();
    stage.changed();
    if (jump || isNarrow || isStill()) { look(stop.box); arrive(); return; }
    const tick = (now: number) => {
      const part = Math.min(1, (now - start) / MOVE);
      look(between(from, stop.box, part));
      if (part < 1) frame = requestAnimationFrame(tick);
      else arrive();
    };
    frame = requestAnimationFrame(tick);
  };
  const move = (by: number) => {
    if (at + by < 0 || at + by > last) return false;
    show(at + by);
    return true;
  };

  drawing.nodes.forEach(addNode);
  drawing.edges.forEach(addEdge);
  /** Goes to the numbers of the row that is asked for. */
  const walk = () => {
    const to = stops.findIndex(({ name }) => name.endsWith(" numbers"));
    why.hidden = !(why.textContent = asked?.why ?? "");
    opened.forEach((_, number) => { open(number); });
    show(asked && to >= 0 ? to : at, true);
  };
  const quiet = stage.selection.on(({ walk: next }, changed) => {
    if (!changed.walk) return;
    asked = next;
    walk();
  });
  walk();
  const twin = (): Twin => {
    const stop = stops[at]!, nodes = [...drawn.keys()].filter(({ name, tag }) => isShown(stop, tag) && isLit(stop, name));
    return {
      caption: told(stop), columns: ["", "numbers", "computes"],
      rows: [...nodes.filter(({ form, tag }) => form !== "plus" && (tag || stop.panel === null)).map(({ name, label, texts = [], detail: computes }) => [label || name, texts.join("  "), computes.join(" · ")]),
        ...(stop.lit.length ? lines : []).filter(({ edge: { weight, tag, name } }) => weight !== null && isShown(stop, tag) && isLit(stop, name)).map(({ edge }) => [edge.name, edge.weight!.toFixed(4), ""])],
    };
  };
  return {
    twin,
    step: move,
    key: ({ key, target }) => {
      const inside = target instanceof Element && stage.body.contains(target); // pages have arrow keys of their own
      const by = inside ? { ArrowRight: 1, ArrowLeft: -1 }[key] : undefined;
      return by !== undefined && move(by);
    },
    resize: () => { size(); paint(); },
    destroy: () => { cancelAnimationFrame(frame); quiet(); },
  };
};
