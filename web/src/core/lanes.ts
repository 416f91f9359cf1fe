// A beam as it went: a column for each step, the best beginning on top, what was cut off dashed.
import { faded, fill, h, s, squeezed, tallOf, widthOf } from "./dom";
import type { Draw } from "./stage";
import { figure } from "./text";
import type { LanesDrawing, Node } from "./types";

const DOWN = 46, LOW = 34, TIGHT = 17, GAP = 8, TOP = 24, START = 16; // pixels from rank to rank, where there is less room, where there is little, between nodes, above the first; of the beginning
const FEW = 5; // steps, beyond which a slide draws no prefix that was dropped
const LINES = 27, UNDER = 8; // pixels of a box that has room for two lines, from its middle to theirs
const WIDE = 156, NARROW = 46, BETWEEN = 34, NEAR = 12; // pixels of a node, from step to step, where all have to fit: edges are told apart there

/** The nodes from the first step to this one, by parents. */
export function pathTo(nodes: ReadonlyMap<number, Node>, id: number): Node[] {
  const path: Node[] = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent ?? -1)) path.unshift(node);
  return path;
}

/** The text of a path: tokens say themselves whether a blank stands before them; names in angles and those of a table of probabilities do not. */
export const textOf = (path: readonly Node[]): string => path.reduce((text, { text: next, score }) =>
  text + (score > 0 ? ` ${next.replace(/: .* =$/g, "")}` : /^<.*>$/.test(next) ? ` ${next}` : next.replace("␣", " ")), "").trim();

const soFar = ({ logP }: Node) => (logP < Math.log(0.001) ? "<.001" : Math.exp(logP).toPrecision(2).replace(/^0/, "")); // the product of all p

/** What stands in the box of a node; its score too where that is a probability, the product so far. */
export const boxed = ({ text, score }: Node) => (text.trim() || text) + (score > 0 ? ` ${String(+score.toPrecision(3)).replace(/^0/, "")}` : "");

/** Whether a token continues the word before. */
export const joins = (text: string, before?: string) => before?.trim() && /^\p{L}/u.test(text);

/** The path of greedy search: from the beginning, the most probable next token, as far as the beam has it. */
export function greedyOf(steps: LanesDrawing["steps"]): number[] {
  const made: number[] = [];
  for (const step of steps) {
    const next = step.filter(({ parent }) => parent === (made.at(-1) ?? null)).sort((a, b) => b.logP - a.logP)[0];
    if (!next) break;
    made.push(next.id);
  }
  return made;
}

/** How wide a node is and how far it is from step to step: as wished, or nearer and narrower where the room is less. Pure. */
export function columnsOf(wish: number, steps: number, room: number, least: number): { wide: number; across: number } {
  const across = Math.max(least + NEAR, Math.min(wish + BETWEEN, room > 0 ? (room - 4 + NEAR) / steps : Infinity));
  return { wide: Math.min(wish, across - NEAR), across };
}

export const lanes: Draw<LanesDrawing> = ({ body, selection }, drawing) => {
  const isWhole = Number.isFinite(tallOf(body, Infinity)), isBare = isWhole && drawing.steps.length > FEW, greedy = new Set(drawing.greedy); // on a slide
  const isLost = ({ id, state }: Node) => state === "pruned" && greedy.has(id); // greedy search went on where the beam did not
  const steps = isBare ? drawing.steps.slice(0, Math.max(drawing.best.length, drawing.greedy.length)).map((step) => step.filter((node) => node.state !== "pruned" || isLost(node))) : drawing.steps;
  const low = Math.max(...steps.map((step) => (step.some(isLost) ? step.filter((node) => !isLost(node)).length : 0))); // the rank of what greedy search adds
  const all = steps.flat(), nodes = new Map(all.map((node) => [node.id, node])), best = new Set(drawing.best);
  const isProduct = all.some(({ score }) => score > 0), parts = !isProduct && all.some(({ text }) => / ./.test(text)); // words are told from parts of them
  const way = all.filter(({ id }) => best.has(id)), answer = way.map(({ text }) => text.trim() || text); // as the words of other drawings
  const before = ({ parent }: Node) => nodes.get(parent ?? -1);
  const said = drawing.greedy.flatMap((id) => nodes.get(id) ?? []), last = said.at(-1);
  /** Its token, and the product of all p so far. */
  const linesOf = (node: Node) => {
    const by = soFar(node), text = boxed(node).replace(/^\p{P}$/u, "“$&”"), [, token = text, product = by] = (isProduct && /^(.+?):? ((\S+ = )?\S+)$/s.exec(text)) || [];
    return [(parts && joins(node.text, before(node)?.text) ? "‑" : "") + token, product];
  };
  const wish = Math.min(WIDE, Math.max(NARROW, ...all.flatMap(linesOf).map((line) => widthOf(line) + (isWhole && !isBare ? 36 : 12))));
  const rankOf = (node: Node, rank: number) => (isBare && isLost(node) ? low : rank), deepest = Math.max(1, low + 1, ...steps.map((step) => step.length)), { wide, across } = columnsOf(wish, steps.length, body.clientWidth - 6 - START, isWhole ? NARROW : 0.75 * wish); // letters are squeezed, no word is cut
  const down = Math.max(TIGHT, Math.min(DOWN, (tallOf(body, Infinity) - TOP) / deepest)), tall = down - (down < LOW ? GAP / 2 : GAP);
  const width = START + across * (steps.length - 1) + wide + 4, height = TOP + down * deepest + 4;
  const at = new Map<number, [number, number]>();
  steps.forEach((step, t) => step.forEach((node, rank) => at.set(node.id, [START + t * across + 2, TOP + rankOf(node, rank) * down])));
  const svg = s("svg", { class: "fv-plot", "aria-hidden": "true", width, height, viewBox: `0 0 ${width} ${height}` });
  const box = h("div", { class: "fv-scroll fv-lanes", tabindex: 0, role: "application", "aria-roledescription": "beam" }, svg);
  const reading = h("output", { class: "fv-reading fv-small", "aria-live": "polite" });
  const keys = [ // in the colours of the page
    ...(isProduct ? [] : [["number: p so far"], ["round: finished"]]),
    [h("b", {}, "■ "), "best"],
    drawing.greedy.every((id) => best.has(id)) ? ["greedy search: the same"] : [h("mark", {}, "■ "), "greedy", ...(isWhole && last ? [": ", h("bdi", {}, textOf(said)), ` · p ${soFar(last)}`] : [])],
    ...(isBare ? [] : [["dashed: dropped"]]),
    ...(width > body.clientWidth && !isWhole ? [[`scroll for all ${steps.length} steps`]] : []),
    ...(!isWhole && drawing.scored ? [[`score: ${drawing.scored}`]] : []),
  ];
  body.append(reading, box, h("p", { class: "fv-quiet" }, ...keys.map((key) => h("span", {}, ...key))), h("p", { class: "fv-keys", "data-unsaved": true },
    h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " step · ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " rank"));
  const cue = faded(box); // columns to the right

  const edges = new Map<number, SVGElement>(), boxes = new Map<number, SVGElement>();
  const kind = (node: Node) => `fv-${!isBare || !isLost(node) ? node.state : node === last ? "done" : "live"}${best.has(node.id) ? " fv-best" : greedy.has(node.id) ? " fv-greedy" : ""}`;
  let chosen: Node | undefined;
  const tell = (node: Node) => {
    chosen = node;
    fill(reading, h("bdi", {}, textOf(pathTo(nodes, node.id))), ...(isWhole ? [] : [" · log p ", h("b", {}, figure(node.logP))]), node.score > 0 || isWhole ? " · p " : " · score ", h("b", {}, isWhole ? soFar(node) : figure(node.score)),
      { pruned: " · dropped", done: " · finished", live: "" }[node.state]);
    box.setAttribute("aria-label", reading.textContent ?? "");
  };
  const choose = (node: Node) => {
    const on = new Set(pathTo(nodes, node.id).map(({ id }) => id));
    for (const [id, each] of [...edges, ...boxes]) each.classList.toggle("fv-on", on.has(id));
    for (const [id, group] of boxes) group.classList.toggle("fv-chosen", id === node.id);
    tell(node);
  };
  const point = (node: Node) => {
    choose(node);
    if (best.has(node.id)) selection.point(answer, way.indexOf(node));
  };
  for (const node of all) {
    const [x, y] = at.get(node.id)!, from = at.get(node.parent ?? -1);
    if (from ?? node.parent === null) {
      const [x1, y1] = from ? [from[0] + wide, from[1] + tall / 2] : [6, TOP + tall / 2], y2 = y + tall / 2, middle = (x1 + x) / 2;
      edges.set(node.id, s("path", { class: `fv-edge-line ${kind(node)}`, d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x} ${y2}` }));
    }
    boxes.set(node.id, s("g", { class: `fv-node ${kind(node)}`, pointerenter: () => point(node), click: () => point(node) },
      s("rect", { x, y, width: wide, height: tall, rx: 6 }),
      ...(tall < LINES ? [linesOf(node).join(" ")] : linesOf(node)).map((line, k, { length }) => squeezed(line, wide - 8, 13, { x: x + wide / 2, y: y + tall / 2 + 3 + length + Math.min(UNDER, tall / 4) * (2 * k + 1 - length), "text-anchor": "middle" }))));
  }
  svg.append(...steps.map((_, t) => s("text", { class: "fv-quiet", x: START + t * across + 2 + wide / 2, y: 14, "text-anchor": "middle" }, String(t + 1))),
    s("circle", { fill: "currentColor", cx: 6, cy: TOP + tall / 2, r: 5 }), ...edges.values(), ...boxes.values());
  const first = way.at(-1) ?? steps.at(-1)?.[0];
  if (first) (isWhole ? tell : choose)(first); // on a slide no third colour until one is pointed at
  const quiet = selection.on(() => {
    const node = way[selection.placeOf(answer) ?? -1];
    if (node && node !== chosen) choose(node);
  });
  const step = (by: number, rankBy: number): boolean => {
    const t = steps.findIndex((nodesOf) => chosen !== undefined && nodesOf.includes(chosen));
    if (t < 0) return false;
    const to = steps[Math.max(0, Math.min(steps.length - 1, t + by))]!, rank = steps[t]!.indexOf(chosen!) + rankBy;
    const node = to[Math.max(0, Math.min(to.length - 1, rank))];
    if (node) point(node);
    boxes.get(node?.id ?? -1)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    return true;
  };
  cue();
  return {
    destroy: quiet,
    resize: cue,
    key: (event) => {
      const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const move = event.target === box ? moves[event.key] : undefined;
      return move !== undefined && step(...move);
    },
    twin: () => ({
      caption: drawing.title || "beam", columns: ["step", "rank", "text", "log p", "score", "state"],
      rows: steps.flatMap((step, t) => step.map((node, rank) =>
        [String(t + 1), rank + 1, textOf(pathTo(nodes, node.id)), node.logP, node.score, best.has(node.id) ? `${node.state}, answer` : node.state])),
    }),
  };
};
