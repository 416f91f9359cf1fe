// One step of attention or of a cell, stage by stage from the first: played, or stepped through.
import { Grid } from "./cells";
import { formula, h, tallOf } from "./dom";
import { ends, levelsBetween } from "./levels";
import { decode, floats, type Values } from "./numbers";
import type { Choice } from "./selection";
import type { Draw, Drawn, Twin } from "./stage";
import { figure, written } from "./text";
import type { StageDrawing, StepsDrawing } from "./types";

const PAUSE = 1200; // milliseconds of a stage while the walk is played

/** The numbers of a stage in one frame: (R, C), a column where they belong to keys across. */
interface Card { stage: StageDrawing; element: HTMLElement; grid: Grid; values?: Float64Array; height: number; width: number; turned: boolean }

const ROW = 30, LEAST = 15; // pixels of a key, and where there are many
const THIN = 9, AROUND = 10, MORE = 84, SPARE = 70; // of a vector at least; around it; what vectors have more room by than keys, and all together, on a slide
const MOST_WRITTEN = 6; // numbers in a row that are written
const words = ({ stage }: Card) => (stage.rows.length ? stage.rows : stage.columns);

export const steps: Draw<StepsDrawing> = (stage, drawing) => {
  const { frames, stages } = drawing, last = stages.length - 1;
  // The query of the row that is chosen in a map, whose words may be of several pieces.
  const queryOf = ({ rows = [], row = -1, walk }: Readonly<Choice>): number | undefined => {
    const place = walk?.row ?? row, word = rows[place], near = (k: number) => Math.abs(k / frames.length - place / rows.length);
    return frames.map((_, k) => k).filter((k) => word?.startsWith(frames[k]!.replace(/^[▁Ġ ]+/, "") || " ")).sort((a, b) => near(a) - near(b))[0];
  };
  const memory = (stage.memory.get("steps") as { frame: number; at: number } | undefined) ?? { frame: drawing.frame ?? queryOf(stage.selection.now) ?? 0, at: 0 };
  let frame = Math.min(memory.frame, frames.length - 1), at = Math.min(memory.at, last), timer: ReturnType<typeof setInterval> | undefined;
  const equation = h("output", { class: "fv-equation", "aria-live": "polite" }), reading = h("output", { class: "fv-reading fv-small" });
  const cards: Card[] = stages.map((each, place) => {
    const turned = each.columns.length > 0, [, rows = 0, columns = 0] = each.values.shape;
    const [height, width] = turned ? [columns, rows] : [rows, columns];
    const card: Card = { stage: each, turned, height, width, element: h("figure", { class: "fv-step" }), grid: undefined! };
    card.grid = new Grid((row, column) => { point(card, row, column); }, each.title);
    card.grid.loupe?.element.remove();
    card.element.append(h("figcaption", { click: () => { stop(); show(frame, place); } }, h("b", {}, each.title), formula(each.equation)), card.grid.element);
    card.element.dataset.size = width === 1 ? "number" : turned || each.rows.length ? "vectors" : "vector";
    return card;
  });
  // Keys have a row in every card between what is before them (the query) and what comes of them.
  const first = cards.findIndex(({ stage: each }) => each.rows.length > 0 || each.columns.length > 0);
  const end = cards.findLastIndex(({ element }) => element.dataset.size !== "vector") + 1;
  const keys = first < 0 ? [] : words(cards[first]!).map((word) => h("bdi", {}, word));
  const zones = [cards.slice(0, Math.max(first, 0)), cards.slice(Math.max(first, 0), end), cards.slice(end)];
  const [before, table, after] = zones.map((zone, k) =>
    h("div", { class: k === 1 ? "fv-steps fv-scroll" : "fv-steps" }, k === 1 && keys.length ? h("div", { class: "fv-step-keys" }, ...keys) : undefined, ...zone.map(({ element }) => element)));
  const point = (card: Card, row: number, column: number) => {
    const value = card.values?.[row * card.width + column], word = words(card)[row];
    card.grid.select(row, column);
    reading.replaceChildren(`${card.stage.title} `, word === undefined ? "" : h("bdi", {}, `${word} `), card.width > 1 ? `[${column}] ` : "", h("b", {}, value === -Infinity ? "−∞" : figure(value)));
  };
  const play = h("button", { type: "button", "data-testid": "play", click: () => { toggle(); } }, "▶ play");
  const go = (text: string, name: string, by: number) => h("button", { type: "button", "aria-label": name, click: () => { stop(); move(by); } }, text);
  const scrub = h("input", { type: "range", min: 0, max: last, "aria-label": "stage", input: () => { stop(); show(frame, Number(scrub.value)); } });
  const query = h("select", { "aria-label": "query", change: () => { show(Number(query.value), at); } }, ...frames.map((word, k) => h("option", { value: k }, `${k} ${word}`)));
  const bar = h("div", { class: "fv-walk" }, h("label", {}, "of ", query), go("‹", "stage before", -1), play, go("›", "next stage", 1), scrub);
  const why = h("p", { class: "fv-quiet" });
  stage.body.append(bar, why, equation, before!, table!, after!, reading);

  const stop = () => { clearInterval(timer); timer = undefined; play.textContent = "▶ play"; };
  const move = (by: number) => {
    const next = at + by;
    if (next >= 0 && next <= last) show(frame, next);
    else if (next > last && frame < frames.length - 1) show(frame + 1, 0);
    else if (next < 0 && frame > 0) show(frame - 1, last);
    else stop();
  };
  const toggle = () => {
    if (timer) { stop(); return; }
    if (at === last) show(frame, 0);
    play.textContent = "❚❚ pause";
    timer = setInterval(() => { move(1); }, PAUSE);
  };
  const high = () => Math.max(LEAST, Math.min(ROW, Math.floor(tallOf(stage.body) / Math.max(1, keys.length))));
  const thin = (zone: Card[]) => Math.max(THIN, Math.min(ROW, Math.floor((tallOf(stage.body, Infinity) + MORE) / zone.length) - AROUND));
  const isWhole = () => tallOf(stage.body, -Infinity) + SPARE >= keys.length * ROW + (cards.length - (end - first)) * (ROW + AROUND); // all stages stand in the room of a slide
  const paint = (card: Card, made: Values) => {
    const { height, width } = card, all = floats(made), size = height * width;
    const from = made.shape[0] === 1 ? 0 : frame * size, values = (card.values = all.slice(from, from + size));
    const { colours, least, most } = ends(card.stage.least, card.stage.most);
    const isFew = width <= MOST_WRITTEN;
    const texts = isFew ? Array.from({ length: height }, (_, row) => Array.from(values.subarray(row * width, (row + 1) * width), written)) : [];
    card.grid.show({ height, width, levels: levelsBetween(values, least, most), colours, rows: [], columns: [], texts, high: height > 1 ? high() : thin(zones.find((zone) => zone.includes(card))!) });
    stage.changed();
  };
  const show = (to: number, place: number) => {
    const moved = place !== at && !timer;
    [frame, at] = [to, place];
    stage.memory.set("steps", { frame, at });
    query.value = String(frame);
    scrub.value = String(at);
    const { title, equation: text, origin, shape } = stages[at]!;
    equation.replaceChildren(h("b", {}, `${at + 1}. ${title}`), formula(text),
      h("span", { class: "fv-quiet" }, `of “${frames[frame]}”`, h("span", { class: "fv-origin" }, ` · ${origin} · ${shape.join(" × ")}`)));
    cards.forEach(({ element }, k) => {
      element.classList.toggle("fv-later", k > at);
      element.classList.toggle("fv-now", k === at);
    });
    if (moved) cards[at]!.element.scrollIntoView({ block: "nearest", inline: "nearest" });
    table!.style.setProperty("--row", `${high()}px`);
    stage.body.classList.toggle("fv-all", isWhole());
    cards.forEach((card) => {
      const coming = decode(card.stage.values);
      if (coming instanceof Promise) coming.then((made) => { paint(card, made); }, (error: unknown) => { reading.textContent = `The numbers could not be loaded: ${String(error)}`; });
      else paint(card, coming);
    });
  };
  const asked = ({ walk }: Readonly<Choice>) => { why.hidden = !(why.textContent = walk?.why ?? ""); };
  const quiet = stage.selection.on((now, changed) => {
    if (!changed.walk) return; // another row, or the same once more
    asked(now);
    stop();
    show(queryOf(now) ?? frame, 0);
  });
  asked(stage.selection.now);
  show(frame, at);
  const twin = (): Twin => ({
    caption: `${drawing.title}: ${frames[frame] ?? ""}`, columns: ["stage", "equation", "", "numbers"],
    rows: cards.flatMap((card) => Array.from({ length: card.height }, (_, row) => [
      row ? "" : card.stage.title, row ? "" : card.stage.equation, words(card)[row] ?? "",
      Array.from(card.values?.subarray(row * card.width, (row + 1) * card.width) ?? [], figure).join("  "),
    ])),
  });
  const drawn: Drawn = {
    twin,
    step: (by) => {
      if (at + by < 0 || at + by > last) return false;
      stop();
      show(frame, at + by);
      return true;
    },
    key: ({ key, target }) => {
      if (!(target instanceof Element) || !stage.body.contains(target)) return false; // pages have arrow keys of their own
      const by = { ArrowRight: 1, ArrowLeft: -1 }[key], plays = key === " " && !target.closest("button");
      if (by) { stop(); move(by); } else if (plays) toggle();
      return by !== undefined || plays;
    },
    resize: () => { show(frame, at); },
    destroy: () => { stop(); quiet(); },
  };
  return drawn;
};
