// Attention to one example at steps of a training: played, stepped through, or followed while it grows.
import { attention } from "./attention";
import { h, put, s } from "./dom";
import type { Draw, Drawn } from "./stage";
import type { AttentionDrawing, FilmDrawing } from "./types";

const LENGTH = 12_000, LEAST = 60; // milliseconds of a film that is played, and of a frame at least
const STOPS = 8; // of a lecture that steps through a film

/** What is known of a frame, in words. */
export const labelled = ({ step, loss, validation }: FilmDrawing["frames"][number]): string =>
  [`step ${step.toLocaleString("en-US")}`, ...(loss === null ? [] : [`loss ${loss.toFixed(2)}`]), ...(validation === null ? [] : [`validation ${validation.toFixed(2)}`])].join(" · ");

/** The losses of the frames as the points of a line in 100 × 30. */
export function lossPoints(frames: FilmDrawing["frames"]): string {
  const losses = frames.map(({ loss }) => loss ?? NaN), known = losses.filter(Number.isFinite), most = Math.max(...known), least = Math.min(0, ...known);
  const across = (k: number) => (100 * k) / Math.max(1, losses.length - 1), down = (loss: number) => 29 - (28 * (loss - least)) / (most - least || 1);
  return losses.flatMap((loss, k) => (Number.isFinite(loss) ? [`${across(k).toFixed(2)},${down(loss).toFixed(2)}`] : [])).join(" ");
}

export const film: Draw<FilmDrawing> = (stage, drawing) => {
  if (drawing.live && stage.options.onlearn) return stage.options.onlearn(stage, drawing);
  const { block, layer, head } = drawing;
  const isSlide = stage.options.frame === false; // which begins at the beginning
  let frames = drawing.frames, last = frames.length - 1, at = isSlide ? 0 : last, timer: ReturnType<typeof setInterval> | undefined;
  const frame = (): AttentionDrawing =>
    ({ kind: "attention", title: drawing.title, caption: "", notes: [], blocks: frames[at]!.blocks, form: "matrix", block, layer, head, scale: "absolute" });

  const play = h("button", { type: "button", "data-testid": "play-film", click: () => { toggle(); } }, "▶ play");
  const go = (text: string, name: string, by: number) => h("button", { type: "button", "aria-label": name, click: () => { stop(); show(at + by); } }, text);
  const scrub = h("input", { type: "range", min: 0, "aria-label": "snapshot", "data-testid": "film-scrub", input: () => { stop(); show(Number(scrub.value)); } });
  const line = s("polyline"), now = s("line", { class: "fv-film-now", y1: 0, y2: 30 });
  const losses = s("svg", { class: "fv-film-loss", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, line, now);
  const ends = h("p", { class: "fv-quiet" });
  const label = h("output", { class: "fv-film-label" }), body = h("div");
  stage.body.append(h("div", { class: "fv-walk" }, play, go("‹", "snapshot before", -1), go("›", "next snapshot", 1), h("div", { class: "fv-film-time" }, ends, losses, scrub)), label, body);
  const map = attention({ ...stage, body }, frame());

  const stop = () => { clearInterval(timer); timer = undefined; play.textContent = "▶ play"; body.removeAttribute("aria-busy"); };
  const show = (to: number) => {
    at = Math.max(0, Math.min(last, to));
    scrub.value = String(at);
    scrub.setAttribute("aria-valuetext", label.textContent = labelled(frames[at]!));
    const x = (100 * at) / Math.max(1, last);
    put(now, { x1: x, x2: x });
    map.redraw(frame());
  };
  const grow = (next: FilmDrawing) => {
    const follows = at === last && !timer && !(isSlide && !at); // at the end one sees what comes
    frames = next.frames;
    last = frames.length - 1;
    scrub.max = String(last);
    line.setAttribute("points", lossPoints(frames));
    ends.textContent = last > 0 ? `${labelled(frames[0]!)} → ${labelled(frames[last]!)}` : "";
    show(follows ? last : at);
  };
  const toggle = () => {
    if (timer) return stop();
    if (at === last) show(0);
    play.textContent = "❚❚ pause";
    body.setAttribute("aria-busy", "true"); // not every frame is read out
    timer = setInterval(() => { if (at < last) show(at + 1); else stop(); }, Math.max(LEAST, LENGTH / frames.length));
  };
  grow(drawing);
  const drawn: Drawn = {
    grow: (next) => { if (next.kind === "film") grow(next); },
    twin: () => ({ ...map.twin(), caption: `${labelled(frames[at]!)}: ${map.twin().caption}` }),
    key: (event) => {
      if (map.key?.(event)) return true;
      if (!(event.target instanceof Element) || !stage.body.contains(event.target)) return false; // pages have arrow keys of their own
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], plays = event.key === " " && !event.target.closest("button, input");
      if (by) { stop(); show(at + by); } else if (plays) toggle();
      return by !== undefined || plays;
    },
    step: (by) => {
      const to = at + by * Math.ceil(last / STOPS);
      if (at === (by > 0 ? last : 0)) return false;
      stop();
      show(to);
      return true;
    },
    resize: () => map.resize?.(),
    destroy: () => { stop(); map.destroy?.(); },
  };
  return drawn;
};
