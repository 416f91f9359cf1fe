// One scene and its camera stops: boxes keep their place and colour while the camera moves.
import { fitted, h, s, tallOf } from "./dom";
import { HIGH, insideOf, WIDE, type Inner, type Inside } from "./insides";
import { decode, type Values } from "./numbers";
import type { Draw, Drawn, Twin } from "./stage";
import type { SceneDrawing, SceneEdge, SceneStop } from "./types";

const TYPE = 26, LEAST = 13; // pixels of letters where a stop is `WIDE` pixels wide, and at least
const SMALL = 21, LINE = 34, ROOMY = 100, FACTS = 3; // of what a box computes: its letters, lines, and from which height and how much
const MOVE = 900; // milliseconds of a camera move
type Box = SceneStop["box"];

/** The camera between two stops, at 0 to 1: its width changes by a factor, as a zoom looks even. Pure. */
export function between(from: Box, to: Box, at: number): Box {
  const t = at < 0.5 ? 4 * at ** 3 : 1 - (2 - 2 * at) ** 3 / 2;
  const wide = from[2] * (to[2] / from[2]) ** t, part = Math.abs(to[2] - from[2]) < 1e-9 ? t : (wide - from[2]) / (to[2] - from[2]);
  return [0, 1].map((k) => from[k]! + (to[k]! - from[k]!) * part).concat(wide, (wide * HIGH) / WIDE) as Box;
}

/** Whether a stop lights a name: all that begins with one of its names, everything where it has none. Pure. */
export const isLit = (stop: Pick<SceneStop, "lit">, name: string): boolean =>
  !stop.lit.length || stop.lit.some((lit) => name === lit || name.startsWith(`${lit} `));

/** Whether something is drawn at a stop. Pure. */
export const isShown = (stop: Pick<SceneStop, "shows">, tag: string): boolean => !tag || stop.shows.includes(tag);

const pathOf = ({ points, weight }: SceneEdge) => points.map(([x, y], k) => `${k === 0 ? "M" : k === 1 && weight !== null && points.length === 4 ? "C" : weight !== null && points.length === 4 ? "" : "L"}${x} ${y}`).join(" ");
const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const scene: Draw<SceneDrawing> = (stage, drawing) => {
  const { stops, panels } = drawing, last = stops.length - 1;
  let at = Math.min((stage.memory.get("scene") as number | undefined) ?? 0, last), camera: Box = stops[at]!.box, frame = 0;
  const insides = new Map<number, Inside>();
  const drawn = new Map<Inner, { group: SVGGElement; texts: SVGTextElement[] }>(), lines: { edge: SceneEdge; path: SVGPathElement }[] = [];
  const layers = [s("g"), s("g"), s("g")] as const; // groups, edges, boxes
  const mark = `fv-${Math.random().toString(36).slice(2)}`;
  const svg = s("svg", { class: "fv-scene-picture", role: "img", tabindex: 0 },
    s("defs", {}, s("marker", { id: mark, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { class: "fv-arrowhead", d: "M0 0L8 4L0 8z" }))), ...layers);
  const head = svg.querySelector("marker")!, view = h("div", { class: "fv-scene-view" }, svg);
  const caption = h("output", { class: "fv-scene-caption", "aria-live": "polite" }), detail = h("p", { class: "fv-quiet fv-scene-detail" });
  const go = (text: string, name: string, by: number) => h("button", { type: "button", "aria-label": name, title: name, click: () => { move(by); } }, text);
  const chooser = h("select", { "aria-label": "camera stop", change: () => { show(Number(chooser.value)); } }, ...stops.map(({ name }, k) => h("option", { value: k }, `${k + 1} ${name}`)));
  const count = h("span", { class: "fv-quiet fv-count" });
  stage.body.append(view, caption, detail, h("div", { class: "fv-walk", "data-unsaved": true }, go("‹", "stop before (←)", -1), go("›", "next stop (→)", 1), chooser, count));

  const hue = (number: number | null) => (number === null ? "" : ` fv-hue-${number}`);
  const addNode = (node: Inner) => {
    const [x, y, w, tall] = node.box, isGroup = node.form === "group";
    const shape = node.form === "plus" ? s("circle", { cx: x + w / 2, cy: y + tall / 2, r: w / 2 }) : node.form === "word" ? undefined
      : s("rect", { x, y, width: w, height: tall, rx: isGroup ? 12 : Math.min(w, tall) * 0.12 });
    shape?.style.setProperty("--level", String(node.level ?? 0)); // a page may forbid attributes of style
    const texts = (node.texts ?? [node.label]).map((_, k, all) => s("text", {
      x: isGroup ? x + 10 : x + w / 2, y: y + (tall * (k + 0.5)) / all.length, "text-anchor": isGroup ? "start" : "middle", "dominant-baseline": "central" }));
    const group = s("g", { class: `fv-node fv-${node.form}${hue(node.hue)}`, "data-name": node.name, click: () => { tell(node); } }, shape, ...texts);
    drawn.set(node, { group, texts });
    layers[isGroup ? 0 : 2].append(group);
  };
  const addEdge = (edge: SceneEdge) => {
    const path = s("path", { d: pathOf(edge), class: `fv-edge-line${edge.weight === null ? "" : " fv-arc"}${hue(edge.hue)}`, ...(edge.weight === null ? { "marker-end": `url(#${mark})` } : {}) });
    if (edge.weight !== null) path.style.setProperty("--weight", String(edge.weight));
    lines.push({ edge, path });
    layers[1].append(path);
  };
  const tell = ({ name, label, detail: computes }: Inner) => { detail.textContent = computes.length ? `${label || name}: ${computes.join(" · ")}` : ""; };

  /** The inside of a panel, made when the camera first goes there. */
  const open = (number: number) => {
    const panel = panels[number]!, box = stops.find((stop) => stop.panel === number)!.box, names = Object.keys(panel.values);
    const build = (made: Values[]) => {
      const inside = insideOf(panel, new Map(names.map((name, k) => [name, made[k]!])), box);
      insides.set(number, inside);
      inside.nodes.forEach(addNode);
      inside.edges.forEach(addEdge);
    };
    const coming = names.map((name) => decode(panel.values[name]!));
    if (coming.every((each) => !(each instanceof Promise))) build(coming as Values[]);
    else Promise.all(coming).then((made) => { build(made); paint(); }, (error: unknown) => { detail.textContent = `The numbers could not be loaded: ${String(error)}`; });
  };

  const look = (box: Box) => {
    camera = box;
    svg.setAttribute("viewBox", box.join(" "));
    svg.style.setProperty("--unit", String(box[2] / WIDE));
    head.setAttribute("markerWidth", String((12 * box[2]) / WIDE));
    head.setAttribute("markerHeight", String((12 * box[2]) / WIDE));
  };
  /** Shows and lights what the stop says, with labels that fit their boxes. */
  const paint = () => {
    const stop = stops[at]!, unit = stop.box[2] / WIDE, [left, top, wide, high] = stop.box;
    for (const [node, { group, texts }] of drawn) {
      const [x, y, w, tall] = node.box, isAround = (w > 0.9 * wide || tall > 0.9 * high) && node.form !== "group";
      const isAway = x >= left + wide || y >= top + high || x + w <= left || y + tall <= top;
      group.classList.toggle("fv-off", !isShown(stop, node.tag) || isAway);
      group.classList.toggle("fv-dim", !isLit(stop, node.name));
      const facts = !node.texts && tall / unit > ROOMY && !isAround ? node.detail.slice(0, FACTS) : [];
      if (!node.texts && node.form === "box") spell(group, texts[0]!, facts.map((fact) => fitted(fact.split(";")[0]!, w / unit - 16, SMALL)), unit);
      texts.forEach((text, k) => { text.textContent = isAround ? "" : fitted(node.texts?.[k] ?? node.label, w / unit - (node.form === "word" ? 0 : 8), TYPE); });
    }
    for (const { edge, path } of lines) {
      path.classList.toggle("fv-off", !isShown(stop, edge.tag));
      path.classList.toggle("fv-dim", !isLit(stop, edge.name));
    }
  };
  /** What a box computes and gives, below its label, where there is room. */
  const spell = (group: SVGGElement, label: SVGTextElement, facts: readonly string[], unit: number) => {
    for (const each of group.querySelectorAll(".fv-small")) each.remove();
    label.setAttribute("dy", String(-0.5 * facts.length * LINE * unit));
    facts.forEach((fact, k) => group.append(s("text", { class: "fv-small", x: label.getAttribute("x")!, y: label.getAttribute("y")!, dy: (k + 1 - 0.5 * facts.length) * LINE * unit, "text-anchor": "middle", "dominant-baseline": "central" }, fact)));
  };
  const size = () => {
    const room = stage.body.clientWidth || WIDE, tall = tallOf(stage.body, undefined);
    const wide = Math.max(Math.min(room, (tall * WIDE) / HIGH), (WIDE * LEAST) / TYPE);
    svg.setAttribute("width", String(wide));
    svg.setAttribute("height", String((wide * HIGH) / WIDE));
    view.scrollLeft = centre(wide) - view.clientWidth / 2;
  };
  /** Where the middle of what is lit is, in a picture so wide, for windows that are narrower. */
  const centre = (wide: number) => {
    const stop = stops[at]!, lit = stop.lit.length ? [...drawn.keys()].filter(({ name, tag }) => isLit(stop, name) && isShown(stop, tag)) : [];
    const ends = lit.flatMap(({ box }) => [box[0], box[0] + box[2]]).map((x) => Math.max(0, Math.min(1, (x - stop.box[0]) / stop.box[2])));
    return ends.length ? (wide * (Math.min(...ends) + Math.max(...ends))) / 2 : wide / 2;
  };
  const show = (to: number, jump = false) => {
    at = Math.max(0, Math.min(last, to));
    const stop = stops[at]!, from = camera, start = performance.now();
    stage.memory.set("scene", at);
    if (stop.panel !== null && !insides.has(stop.panel)) open(stop.panel);
    chooser.value = String(at);
    count.textContent = `${at + 1} / ${stops.length}`;
    caption.textContent = stop.caption;
    svg.setAttribute("aria-label", `${stop.name}: ${stop.caption}`);
    detail.textContent = "";
    cancelAnimationFrame(frame);
    paint();
    size();
    stage.changed();
    if (jump || isStill()) { look(stop.box); return; }
    const tick = (now: number) => {
      const part = Math.min(1, (now - start) / MOVE);
      look(between(from, stop.box, part));
      if (part < 1) frame = requestAnimationFrame(tick);
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
  show(at, true);
  const twin = (): Twin => {
    const stop = stops[at]!, nodes = [...drawn.keys()].filter(({ name, tag }) => isShown(stop, tag) && isLit(stop, name));
    return {
      caption: stop.caption, columns: ["", "numbers", "computes"],
      rows: [...nodes.filter(({ form, tag }) => form !== "plus" && (tag || stop.panel === null)).map((node) => [node.label || node.name.slice(node.name.indexOf(" ") + 1), (node.texts ?? []).join("  "), node.detail.join(" · ")]),
        ...lines.filter(({ edge }) => edge.weight !== null && isShown(stop, edge.tag) && stop.lit.length && isLit(stop, edge.name)).map(({ edge }) => [edge.name, edge.weight!.toFixed(4), "weight"])],
    };
  };
  const result: Drawn = {
    twin,
    step: move,
    key: ({ key, target }) => {
      const inside = target instanceof Element && stage.body.contains(target); // pages have arrow keys of their own
      const by = inside ? { ArrowRight: 1, ArrowLeft: -1 }[key] : undefined;
      return by !== undefined && move(by);
    },
    resize: size,
    destroy: () => { cancelAnimationFrame(frame); },
  };
  return result;
};
