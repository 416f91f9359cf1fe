// A forward pass, frame by frame: what each stage reads and gives, beside the blocks of the model.
import { Grid, LABELS, WRITTEN } from "./cells";
import { formula, h, tallOf } from "./dom";
import { ends, largest, levelsBetween } from "./levels";
import { decode, floats, type Values } from "./numbers";
import { palette } from "./palette";
import type { Draw, Drawn, Twin } from "./stage";
import { figure, written } from "./text";
import { barred } from "./words";
import type { ForwardDrawing, FrameDrawing, ModelBlock } from "./types";

const PAUSE = 1600; // milliseconds of a frame while the film is played
const INPUTS = 3; // frames that one is computed from and that stand beside it
const CELL = 42; // pixels of a number that is written
const TALL = 22, TALLEST = 300, NAMED = 20; // pixels of a position, and of all

/** The frames of each block that follow one another, and their first number. Pure. */
export function scenes(frames: readonly FrameDrawing[]): { block: string; first: number; count: number }[] {
  const made: { block: string; first: number; count: number }[] = [];
  frames.forEach(({ block }, k) => {
    const last = made.at(-1);
    if (last?.block === block) last.count++;
    else made.push({ block, first: k, count: 1 });
  });
  return made;
}

/** The blocks that are drawn: of layers that are not `open` only the first, which stands for them. Pure. */
export function folded(blocks: readonly ModelBlock[], open: number | null): ModelBlock[] {
  return blocks.filter(({ layer }, k) => layer === null || layer === open || blocks[k - 1]?.layer !== layer);
}

export const forward: Draw<ForwardDrawing> = (stage, drawing) => {
  const { frames, parts, places, produced } = drawing, last = frames.length - 1, all = scenes(frames);
  const kept = (stage.memory.get("forward") ?? { at: drawing.stops[0] ?? 0, head: drawing.head, rows: {} }) as { at: number; head: number; rows: Record<string, number> };
  let timer: ReturnType<typeof setInterval> | undefined, isTold = false; // in its cells
  const rowOf = (part: string) => Math.min(kept.rows[part] ?? drawing.query, Math.max(0, (places[part]?.length ?? 1) - 1));
  const named = (part: string, row: number) => `${places[part]?.[row] ?? row}${produced[part] ? ` → ${produced[part][row] ?? ""}` : ""}`;
  const sceneOf = (k: number) => all.find(({ first, count }) => k >= first && k < first + count)!;

  // Controls: play, the place in the film, positions and heads.
  const play = h("button", { type: "button", "data-testid": "play-forward", click: () => { toggle(); } }, "▶ play");
  const go = (text: string, name: string, by: number) => h("button", { type: "button", "aria-label": name, title: name, click: () => { stop(); move(by); } }, text);
  const scrub = h("input", { type: "range", min: 0, max: last, "aria-label": "stage", "data-testid": "forward-scrub", input: () => { stop(); show(Number(scrub.value)); } });
  const count = h("span", { class: "fv-quiet fv-count" });
  const choosers = Object.entries(places).filter(([, words]) => words.length > 1).map(([part, words]) => {
    const made = h("select", { "aria-label": `position of the ${part}`, change: () => { kept.rows[part] = Number(made.value); show(kept.at); } },
      ...words.map((_, k) => h("option", { value: k }, `${k} ${named(part, k)}`)));
    return { part, made, label: h("label", {}, `${part} `, made) };
  });
  const heads = Math.max(1, ...frames.map(({ values }) => values.shape[0] ?? 1));
  const head = h("select", { "aria-label": "head", change: () => { kept.head = Number(head.value); show(kept.at); } },
    ...Array.from({ length: heads }, (_, k) => h("option", { value: k }, String(k))));
  const headLabel = h("label", {}, "head ", head);
  const controls = h("div", { class: "fv-walk" }, go("‹", "stage before (← or ,)", -1), play, go("›", "next stage (→ or .)", 1), scrub, count);
  const pickers = h("div", { class: "fv-walk fv-pickers" }, ...choosers.map(({ label }) => label), headLabel);

  // The model: a column for each part, the block of the frame marked; layers that are not shown are folded.
  const picture = h("nav", { class: "fv-map", "aria-label": "blocks of the model", "data-unsaved": true });
  const drawBlocks = (current: string) => {
    const columns: HTMLElement[] = [];
    for (const { name, blocks } of parts) {
      const open = blocks.find((block) => block.name === current)?.layer ?? null;
      if (blocks.length > 1 || !columns.length) columns.push(h("div"));
      columns.at(-1)!.append(h("h3", {}, name), ...folded(blocks, open).map((block) => {
        const stands = block.layer !== null && block.layer !== open, names = stands ? blocks.filter(({ layer }) => layer === block.layer) : [block];
        const scene = all.find((each) => names.some((own) => own.name === each.block)), mark = h("i", { "aria-hidden": "true" });
        if (block.hue !== null && !stands) mark.style.background = palette.lines[block.hue % palette.lines.length]!;
        return h("button", {
          type: "button", disabled: !scene, class: block.branch === null || stands ? "" : "fv-branch", title: stands ? "" : block.equation,
          "aria-current": block.name === current ? "step" : undefined, click: () => { stop(); show(scene!.first); },
        }, mark, stands ? `layer ${block.layer}` : block.label.replace(/ \d+$/, ""));
      }));
    }
    picture.replaceChildren(...columns);
  };

  const bar = h("div", { class: "fv-bar", role: "group", "aria-label": "stages of the block" });
  const heading = h("h3", { class: "fv-place" }), equation = h("output", { class: "fv-equation", "aria-live": "polite" });
  const flow = h("div", { class: "fv-flow" }), numbers = h("div", { class: "fv-numbers" }), reading = h("output", { class: "fv-reading fv-small" });
  const main = h("div", { class: "fv-main" }, heading, bar, equation, flow, numbers, reading);
  stage.body.append(controls, pickers, h("div", { class: "fv-forward" }, picture, main));

  const stop = () => { clearInterval(timer); timer = undefined; play.textContent = "▶ play"; };
  const move = (by: number) => {
    const next = kept.at + by;
    if (next >= 0 && next <= last) show(next);
    else stop();
  };
  const toggle = () => {
    if (timer) { stop(); return; }
    if (kept.at === last) show(0);
    play.textContent = "❚❚ pause";
    timer = setInterval(() => { move(1); }, PAUSE);
  };

  /** The numbers of a frame at the head that is chosen: all positions, or the keys of the one that is chosen. */
  const matrix = (frame: FrameDrawing, made: Values) => {
    const [count = 1, height = 0, ...inner] = made.shape, which = Math.min(kept.head, count - 1), row = Math.min(rowOf(frame.rows), height - 1);
    const size = inner.reduce((a, b) => a * b, 1), whole = floats(made, which * height * size, height * size);
    return inner.length === 2
      ? { values: whole.subarray(row * size, (row + 1) * size), height: inner[0]!, width: inner[1]!, rows: places[frame.columns] ?? [], keyed: true }
      : { values: whole, height, width: inner[0] ?? 1, rows: rowsOf(frame), keyed: false };
  };
  /** What a decoder writes at each position, as in a map; what it reads there before it has computed anything. */
  const writes = (frame: FrameDrawing) => (frame.block.endsWith("stem") ? undefined : produced[frame.rows]);
  const rowsOf = (frame: FrameDrawing) => writes(frame) ?? places[frame.rows] ?? [];

  const card = (frame: FrameDrawing, isGiven: boolean): HTMLElement => {
    const grid = new Grid((row, column) => { point(row, column); }, frame.title);
    let shown: ReturnType<typeof matrix> | undefined, pointed = 0;
    grid.loupe?.element.remove();
    const point = (row: number, column: number) => {
      if (!shown) return;
      grid.select(row, column);
      const value = shown.values[row * shown.width + column]!, at = frame.tokens[row]?.[column] ?? places[frame.columns]?.[column];
      reading.replaceChildren(`${frame.title} · `, h("bdi", {}, shown.rows[row] ?? String(row)), " · ", shown.keyed || at === undefined ? `[${column}]` : h("bdi", {}, at), " = ", h("b", {}, figure(value)));
      pointed = row;
    };
    grid.box.addEventListener("click", () => {
      if (!shown || shown.keyed || !frame.rows || pointed === rowOf(frame.rows)) return;
      kept.rows[frame.rows] = pointed;
      show(kept.at);
    });
    const box = h("figure", { class: isGiven ? "fv-given" : "" }, h("figcaption", {}, h("b", {}, frame.title), ` ${frame.shape.filter((n, k) => k || n > 1).join(" × ")}`), grid.element);
    queue(frame, (made) => {
      shown = matrix(frame, made);
      const { values, height, width, rows } = shown;
      const columns = shown.keyed ? [] : (places[frame.columns] ?? []);
      const isWritten = width === 1 || (!isGiven && (columns.length > 0 && (box.clientWidth - LABELS) / width >= WRITTEN));
      const texts = isWritten ? Array.from({ length: height }, (_, row) => Array.from(values.subarray(row * width, (row + 1) * width), frame.title === "tokens" ? String : written)) : [];
      const high = Math.max(4, Math.min(TALL, (tallOf(stage.body, TALLEST) - NAMED) / height)), row = shown.keyed ? 0 : Math.min(rowOf(frame.rows), height - 1);
      const down = shown.keyed || !produced[frame.rows] ? "" : writes(frame) ? "writes" : "reads";
      grid.show({ height, width, ...shaded(frame, values), rows, columns, texts, whole: true, high, down });
      isTold = texts.length > 0;
      grid.select(row, columns.length ? largest(values.subarray(row * width, (row + 1) * width)) : 0);
    });
    return box;
  };
  const isRectified = ({ title, least }: FrameDrawing) => least === 0 && (title === "activation" || title === "ReLU");
  const shaded = (frame: FrameDrawing, values: ArrayLike<number>) => {
    const { least, most, colours } = ends(frame.least, frame.most);
    return { colours, levels: levelsBetween(values, least, most).map((level, k) => (isRectified(frame) && values[k] === 0 ? -1 : level)) };
  };
  const queue = (frame: FrameDrawing, act: (made: Values) => void) => {
    const coming = decode(frame.values), at = kept.at;
    if (coming instanceof Promise) coming.then((made) => { if (kept.at === at) act(made); }, (error: unknown) => { reading.textContent = `The numbers could not be loaded: ${String(error)}`; });
    else ready.push(() => { act(coming); });
  };
  let ready: (() => void)[] = [];

  /** The numbers of the chosen position, written; of probabilities as bars. */
  const spell = (frame: FrameDrawing) => {
    queue(frame, (made) => {
      const { values, height, width, keyed } = matrix(frame, made), row = Math.min(rowOf(frame.rows), height - 1);
      if (keyed || width < 2 || isTold) return;
      const own = Array.from(values.subarray(row * width, (row + 1) * width)), word = places[frame.rows] && named(frame.rows, row);
      const title = h("span", { class: "fv-quiet" }, ...(word === undefined ? [] : [h("bdi", {}, word), ": "]), frame.shape[0]! > 1 ? `head ${kept.head}, ` : "");
      const tokens = frame.tokens[row];
      if (tokens) {
        if (tokens.length < frame.shape.at(-1)!) title.append(`${tokens.length} of ${frame.shape.at(-1)!.toLocaleString("en-US")}`);
        flow.append(h("figure", {}, h("figcaption", {}, h("b", {}, frame.title), word === undefined ? "" : " of ", title), h("ol", { class: "fv-alternatives" }, ...tokens.map((token, k) =>
          barred(h("bdi", { class: "fv-other" }, token), own[k]! / frame.most, own[k]!, !k && frame.rows !== "")))));
      } else {
        const zeros = own.filter((value) => value === 0).length, fit = Math.max(4, Math.min(own.length, Math.floor((numbers.clientWidth - 8) / CELL)));
        title.append(`${own.length > fit ? `the first ${fit} of ` : ""}${own.length} numbers`, isRectified(frame) ? `, ${zeros} of them 0 (blank)` : "");
        const line = new Grid(undefined), some = own.slice(0, fit);
        numbers.append(title, line.element);
        line.show({ height: 1, width: fit, ...shaded(frame, some), rows: [], columns: places[frame.columns]?.slice(0, fit) ?? [], texts: [some.map(written)], whole: true });
      }
    });
  };

  const show = (to: number) => {
    const root = stage.body.getRootNode() as Document | ShadowRoot;
    if (root.activeElement && flow.contains(root.activeElement)) play.focus({ preventScroll: true });
    kept.at = Math.max(0, Math.min(last, to));
    stage.memory.set("forward", kept);
    const frame = frames[kept.at]!, scene = sceneOf(kept.at);
    scrub.value = String(kept.at);
    scrub.setAttribute("aria-valuetext", `${frame.label}: ${frame.title}`);
    count.textContent = `${kept.at + 1} / ${frames.length}`;
    for (const { part, made } of choosers) made.value = String(rowOf(part));
    head.value = String(kept.head);
    headLabel.hidden = heads < 2;
    const part = frame.block.split(".")[0]!;
    heading.textContent = part === frame.label ? part : `${part} · ${frame.label}`;
    bar.replaceChildren(...frames.slice(scene.first, scene.first + scene.count).map(({ title }, k) =>
      h("button", { type: "button", "aria-current": scene.first + k === kept.at ? "step" : undefined, click: () => { stop(); show(scene.first + k); } }, title)));
    equation.replaceChildren(formula(frame.equation));
    drawBlocks(frame.block);
    [isTold, ready] = [false, []];
    const inputs = frame.reads.slice(-INPUTS).map((k) => card(frames[k]!, true));
    numbers.replaceChildren();
    flow.replaceChildren(...inputs, ...(inputs.length ? [h("span", { class: "fv-arrow", "aria-hidden": "true" }, "→")] : []), ...(frame.tokens.length ? [] : [card(frame, false)]));
    spell(frame);
    for (const act of ready) act();
    stage.changed();
  };
  show(kept.at);

  const twin = (): Twin => {
    const frame = frames[kept.at]!, made = decode(frame.values);
    if (made instanceof Promise) return { caption: frame.title, columns: [], rows: [] };
    const { values, height, width, rows } = matrix(frame, made);
    return {
      caption: `${frame.block}: ${frame.title}${frame.shape[0]! > 1 ? `, head ${kept.head}` : ""}`, columns: ["", "numbers"],
      rows: Array.from({ length: height }, (_, row) => [rows[row] ?? String(row),
        Array.from(values.subarray(row * width, (row + 1) * width), (value, k) => `${frame.tokens[row]?.[k] ?? ""} ${figure(value)}`.trim()).join("  ")]),
    };
  };
  const drawn: Drawn = {
    twin,
    step: (by) => {
      const next = by > 0 ? drawing.stops.find((k) => k > kept.at) : drawing.stops.findLast((k) => k < kept.at);
      if (next === undefined) return false;
      stop();
      show(next);
      return true;
    },
    key: ({ key, target }) => {
      const by = { ".": 1, ",": -1 }[key];
      const inside = target instanceof Element && stage.body.contains(target); // pages have arrow keys of their own
      const arrow = inside ? { ArrowRight: 1, ArrowLeft: -1 }[key] : undefined, plays = inside && key === " " && !target.closest("button, input");
      if (by ?? arrow) { stop(); move((by ?? arrow)!); } else if (plays) toggle();
      return (by ?? arrow) !== undefined || plays;
    },
    resize: () => { show(kept.at); },
    destroy: stop,
  };
  return drawn;
};
