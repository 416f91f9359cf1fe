// It learns in front of the reader: one training or two that race, their maps, what they make of a text, and their losses.
import { Grid } from "../core/cells";
import { choices, h } from "../core/dom";
import { levelsOf, pixels, sequential } from "../core/levels";
import { mount } from "../core/mount";
import { Selection } from "../core/selection";
import { adopt } from "../core/style";
import type { Drawn } from "../core/stage";
import type { LinesDrawing } from "../core/types";
import { hasSIMD } from "../engine/compiled";
import css from "./learn.css?inline";
import { MOST, type Frame, type Settings } from "./model";
import { HEADS, RATES, RIVALS, stateOf, type State } from "./state";
import { TASKS, type Example, type TaskName } from "./tasks";
import type { News, Wish } from "./worker";
import LearnWorker from "./worker?worker&inline";

const APART = 90, CALM = 2000; // milliseconds between two pictures; with reduced motion
const MODELS = { transformer: "Transformer", recurrent: "Recurrent (GRU)" } as const;
const SWITCHES = {
  transformer: { positions: "positions", scaled: "÷ √K", masked: "causal mask" }, recurrent: { attends: "attention" },
} as const;
const dressed = new WeakSet<Document | ShadowRoot>();

/** A training in its worker, and its frames so far. */
class Run {
  frames: Frame[] = [];
  step = 0; pace = 0; size = 0; failure = "";
  private readonly worker = new LearnWorker();
  private run = 0;

  constructor(public settings: Settings, private readonly changed: () => void) {
    this.worker.onmessage = ({ data }: MessageEvent<News>) => {
      if (data.run !== this.run) return;
      const { frames, from, failure = "", ...rest } = data;
      Object.assign(this, rest, { frames: [...this.frames.slice(0, from), ...frames], failure });
      this.changed();
    };
    this.worker.onerror = ({ message }) => { this.failure = message || "this browser does not start the training"; this.changed(); };
  }
  tell(wish: Wish): void {
    if (wish.kind === "start") Object.assign(this, { run: this.run + 1, frames: [], step: 0, settings: wish.settings });
    this.worker.postMessage({ ...wish, run: this.run });
  }
  destroy(): void {
    this.worker.terminate();
  }
}

export interface Learning extends Drawn { train(on: boolean): void; runs(): readonly { step: number; pace: number; size: number; frames: readonly Frame[] }[] }
interface Options { state?: State; onstate?: (state: State) => void; compact?: boolean; style?: string }

export function learn(host: HTMLElement, { state = stateOf(""), onstate, compact = false, style = "" }: Options = {}): Learning {
  const root = host.getRootNode() as Document | ShadowRoot, at = root instanceof ShadowRoot ? root : document;
  if (!dressed.has(at)) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css + style);
    at.adoptedStyleSheets = [...at.adoptedStyleSheets, sheet];
    dressed.add(at);
  }
  if (!hasSIMD()) {
    host.append(h("p", { class: "fv-wrong", role: "alert" }, "This browser has no WebAssembly with SIMD, which training needs."));
    return { train: () => undefined, runs: () => [], twin: () => ({ caption: "", columns: [], rows: [] }) };
  }
  const END_SIGN = compact ? "↵" : "</s>"; // narrow on a slide
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let example = TASKS[state.runs[0]!.task].read(state.text) as Example, isOn = false, place: number | undefined, timer: ReturnType<typeof setTimeout> | undefined;
  if (typeof example === "string") {
    state.text = TASKS[state.runs[0]!.task].first;
    example = TASKS[state.runs[0]!.task].read(state.text) as Example;
  }
  const isDone = () => shown.every(({ run }) => run.step >= MOST);
  const task = () => TASKS[state.runs[0]!.task];

  const play = h("button", { type: "button", class: "fv-primary", "data-testid": "train", click: () => train(!isOn) });
  const again = h("button", { type: "button", click: () => { restart(); } }, "Start again");
  const more = h("button", { type: "button", "aria-expanded": "false", "data-testid": "learn-more", click: () => { more.setAttribute("aria-expanded", String(element.classList.toggle("fv-learn-open"))); draw(); } }, "Settings");
  const race = h("button", { type: "button", "data-testid": "race", click: () => (state.runs.length > 1 ? set([state.runs[0]!]) : set([state.runs[0]!, { ...state.runs[0]!, ...RIVALS[state.runs[0]!.model] }])) });
  const seed = h("input", { type: "number", step: 1, min: 0, max: 99999, change: () => set(state.runs.map((run) => ({ ...run, seed: Math.trunc(Number(seed.value)) || 0 }))) });
  const tasks = choices("Task", Object.entries(TASKS).map(([name, { label }]) => [name as TaskName, label] as const), state.runs[0]!.task, (name) => {
    state.text = TASKS[name].first;
    example = TASKS[name].read(state.text) as Example;
    set(state.runs.map((run) => ({ ...run, task: name })));
  });
  const own = h("input", { type: "text", maxlength: 100, autocomplete: "off", spellcheck: "false", input: () => read(), "data-testid": "own" });
  const wrong = h("p", { class: "fv-wrong", role: "alert", hidden: true });
  const scrub = h("input", { type: "range", min: 0, value: 0, "aria-label": "step", "data-testid": "learn-scrub", input: () => { place = Number(scrub.value) === last() ? undefined : Number(scrub.value); draw(); } });
  const when = h("output", { class: "fv-learn-when" }), lanes = h("div", { class: "fv-learn-lanes" }), chart = h("div", { class: "fv-learn-chart" }), about = h("p", { class: "fv-caption" }), verdict = h("output", { class: "fv-caption" }, "Without positions, a model does not see the order of its input.");
  const element = h("section", { class: compact ? "fv-learn fv-learn-compact" : "fv-learn", "aria-label": "training" },
    h("div", { class: "fv-learn-top" }, tasks.element, h("label", { class: "fv-learn-own" }, h("span", {}, "Try your own"), own)), wrong,
    about, h("div", { class: "fv-learn-bar" }, play, ...(compact ? [more] : []), again, race, h("label", {}, "Seed ", seed), h("label", { class: "fv-learn-time" }, scrub, when)), verdict,
    h("div", { class: "fv-learn-body" }, lanes, chart));
  const frame = h("div", { class: "fv" }, element);
  host.append(frame);
  adopt(at);

  let shown: ReturnType<typeof lane>[] = [];
  const last = () => Math.max(0, Math.min(...shown.map(({ run }) => run.frames.length - 1))); // two that race are shown at the same step
  const stepAt = () => shown[0]?.run.frames[place ?? last()]?.step ?? 0;
  const called = (k: number) => (shown.length > 1 ? "AB"[k]! : "loss");
  const curves = (): LinesDrawing => {
    const x = [...new Set(shown.flatMap(({ run }) => run.frames.slice(1).map(({ step }) => step)))].sort((a, b) => a - b);
    const curve = (run: Run, name: string) => {
      const losses = new Map(run.frames.map(({ step, loss }) => [step, loss]));
      return { low: [], high: [], hue: null, name, y: x.map((step) => losses.get(step) ?? null), faint: false };
    };
    return { kind: "lines", title: "Loss", caption: "", notes: [], x, curves: shown.map(({ run }, k) => curve(run, called(k))), joined: true,
      ends: [0, Math.max(100, x.at(-1) ?? 0)], across: "step", up: "loss", log: "", labels: [], named: false, marks: [{ x: stepAt(), label: "" }] }; // it is read at the step that is shown
  };
  const lines = mount(chart, { ...curves(), x: [] }, { frame: false, selection: new Selection() });

  /** One training: its switches, its map and its heads, what it makes of the text. */
  function lane(run: Run, k: number) {
    const change = (change: Partial<Settings>) => set(state.runs.map((one, i) => (i === k ? { ...one, ...change } : one)));
    let head: number | null = null, cell = example.links[0] ?? [0, 0], frame: Frame | undefined;
    const settings = run.settings, isTransformer = settings.model === "transformer";
    const select = <T,>(name: string, values: readonly (readonly [T, string])[], now: T, choose: (value: T) => void) => {
      const made = h("select", { "aria-label": name, change: () => choose(values[made.selectedIndex]![0]) }, ...values.map(([value, text]) => h("option", { selected: value === now }, text)));
      return made;
    };
    const switches = Object.entries(SWITCHES[settings.model]).map(([key, text]) => {
      const box = h("input", { type: "checkbox", role: "switch", checked: settings[key as keyof Settings] === true, "data-testid": `${key}-${k}`, change: () => change({ [key]: box.checked }) });
      return h("label", {}, box, text);
    });
    const top = h("div", { class: "fv-learn-switches" },
      select("model", Object.entries(MODELS) as [Settings["model"], string][], settings.model, (model) => change({ model })), ...switches,
      ...(isTransformer ? [h("label", {}, "heads ", select("heads", HEADS.map((n) => [n, String(n)]), settings.heads, (heads) => change({ heads })))] : []),
      h("label", {}, compact ? "rate " : "learning rate ", select("learning rate", RATES.map((rate) => [rate, String(rate)]), settings.rate, (rate) => change({ rate }))));
    const status = h("output", { class: "fv-learn-status", "data-testid": `status-${k}` }), output = h("p", { class: "fv-learn-output", "data-testid": `output-${k}` });
    const point = (row: number, column: number) => { cell = [row, column]; readCell(); };
    const grid = new Grid(point, "matrix of attention"), reading = h("output", { class: "fv-reading fv-small" });
    const heads = h("div", { class: "fv-learn-heads", role: "group", "aria-label": "heads" }), tiles = (isTransformer && settings.heads > 1 ? [null, ...Array(settings.heads).keys()] : []).map((which) => {
      const canvas = h("canvas", { "aria-hidden": "true" });
      const button = h("button", { type: "button", "aria-pressed": String(which === null), click: () => { head = which; tiles.forEach((tile) => tile.button.setAttribute("aria-pressed", String(tile.which === head))); show(frame); } }, canvas, which === null ? "mean" : `head ${which}`);
      return { which, canvas, button };
    });
    heads.append(...tiles.map(({ button }) => button));
    const element = h("section", { class: "fv-learn-lane", "aria-label": state.runs.length > 1 ? `model ${"AB"[k]}` : "model" },
      state.runs.length > 1 ? h("h3", {}, `Model ${"AB"[k]}`) : undefined, output, status, h("div", { class: "fv-learn-maps" }, grid.element, heads), reading, top);
    element.addEventListener("keydown", (event) => {
      const step = event.target === grid.box ? grid.step(event.key) : undefined;
      if (!step) return;
      event.preventDefault();
      point(...step);
    });
    const mapOf = ({ weights, heads, rows, columns }: Frame, which: number | null) => {
      const size = rows * columns, values = new Float64Array(size);
      for (let i = 0; i < size; i++) for (const each of which === null ? Array(heads).keys() : [which]) values[i]! += weights[each * size + i]! / (which === null ? heads : 1);
      return { height: rows, width: columns, values };
    };
    const words = () => ({ rows: [...example.target, END_SIGN].map(visible), columns: [...example.source, END_SIGN].map(visible) });
    function readCell(): void {
      if (!frame) return;
      const [row, column] = cell.map((at, side) => Math.min(at, [frame!.rows, frame!.columns][side]! - 1)) as [number, number], { rows, columns } = words();
      grid.select(row, column);
      reading.replaceChildren(`for “${rows[row]}” it looks at “${columns[column]}” `, h("b", {}, mapOf(frame, head).values[row * frame.columns + column]!.toFixed(2)));
      grid.box.setAttribute("aria-label", `attention after step ${frame.step}: ${reading.textContent}`);
    }
    function show(next: Frame | undefined): void {
      frame = next;
      const { failure } = run;
      if (failure) status.textContent = `The training stopped: ${failure}.`;
      if (!frame) return;
      const { rows, columns } = words();
      if (rows.length !== frame.rows || columns.length !== frame.columns) return; // of the text before
      const isRight = frame.output.join("\n") === example.target.join("\n");
      output.replaceChildren(h("span", { class: "fv-quiet" }, "writes "), h("b", { dir: "auto" }, frame.output.join(task().joint) || "nothing"), isRight ? h("span", { class: "fv-learn-right" }, " ✓ right") : h("span", { class: "fv-quiet" }, compact ? " ✗" : ` ✗ right is ${example.target.join(task().joint)}`));
      const attends = frame.weights.some((weight) => weight > 0);
      status.textContent = [frame.step ? `loss ${frame.loss.toFixed(frame.loss < 0.1 ? 3 : 2)}` : "untrained",
        attends ? `${Math.round(100 * frame.right)} % of attention ${compact ? "right" : `on the right ${task().of}`}` : "no attention"].join(" · ");
      grid.element.hidden = heads.hidden = reading.hidden = !attends;
      if (!attends) return;
      const map = mapOf(frame, head);
      grid.show({ height: frame.rows, width: frame.columns, levels: levelsOf(map, "absolute"), colours: sequential, rows, columns, down: "target ↓", ...(compact ? { across: "↵: end · α: dark 0, yellow 1" } : {}), dots: example.links });
      for (const { which, canvas } of tiles) {
        Object.assign(canvas, { width: frame.columns, height: frame.rows });
        canvas.getContext("2d")!.putImageData(new ImageData(pixels(levelsOf(mapOf(frame, which), "absolute"), sequential), frame.columns, frame.rows), 0, 0);
      }
      readCell();
    }
    return { run, element, status, show };
  }

  function draw(): void {
    clearTimeout(timer);
    timer = undefined;
    scrub.max = String(last());
    scrub.value = String(place ?? last());
    scrub.setAttribute("aria-valuetext", when.textContent = `${stepAt() < MOST ? "" : "done: "}step ${stepAt().toLocaleString("en-US")}`);
    for (const { run, show, status } of shown) {
      status.setAttribute("aria-live", isOn ? "off" : "polite"); // not every step is read out
      show(run.frames[place ?? last()]);
    }
    if (isOn && isDone()) train(false);
    about.textContent = task().about;
    verdict.hidden = !isDone() || place !== undefined || state.runs.every(({ model, positions }) => model !== "transformer" || positions);
    lines.update(curves());
  }
  const later = () => { timer ??= setTimeout(draw, isOn && calm.matches && last() ? CALM : APART); }; // the first picture at once

  function train(on: boolean): void {
    if (on && isDone()) restart(false);
    isOn = on;
    place = undefined;
    play.textContent = on ? "❚❚ Pause" : "▶ Train";
    for (const { run } of shown) run.tell({ kind: "run", on });
    later();
  }
  function restart(keeps = true): void {
    place = undefined;
    shown.forEach(({ run }, k) => { run.tell({ kind: "start", settings: state.runs[k]!, example }); });
    if (keeps) train(isOn);
  }
  /** Begin anew with other settings: what was learnt with the others is another film. */
  function set(runs: Settings[]): void {
    const before = shown.map(({ run }) => run);
    state.runs = runs;
    place = undefined;
    const focused = document.activeElement?.getAttribute("data-testid") ?? document.activeElement?.getAttribute("aria-label"), from = shown.findIndex(({ element }) => element.contains(document.activeElement));
    shown = runs.map((settings, k) => {
      const run = before[k] ?? new Run(settings, later), isSame = before[k] !== undefined && JSON.stringify(run.settings) === JSON.stringify(settings);
      if (!isSame || runs.length >= before.length) run.tell({ kind: "start", settings, example });
      return lane(run, k);
    });
    before.slice(runs.length).forEach((run) => { run.destroy(); });
    lanes.replaceChildren(...shown.map((one) => one.element));
    lanes.classList.toggle("fv-learn-race", runs.length > 1);
    if (from >= 0 && focused) shown[from]?.element.querySelector<HTMLElement>(`[data-testid="${focused}"], [aria-label="${focused}"]`)?.focus();
    race.textContent = runs.length > 1 ? "Stop the race" : "Race two models";
    seed.value = String(runs[0]!.seed);
    own.value = state.text;
    own.placeholder = task().hint;
    wrong.hidden = true;
    own.removeAttribute("aria-invalid");
    train(isOn);
    draw();
    onstate?.(state);
  }
  function read(): void {
    const made = task().read(own.value);
    wrong.hidden = typeof made !== "string";
    own.toggleAttribute("aria-invalid", typeof made === "string");
    if (typeof made === "string") return void (wrong.textContent = made);
    state.text = own.value;
    example = made;
    for (const { run } of shown) run.tell({ kind: "example", example });
    onstate?.(state);
  }
  set(state.runs);
  return {
    train, runs: () => shown.map(({ run }) => run),
    twin: () => ({ caption: "Loss by step", columns: ["step", ...shown.map((_, k) => called(k))], rows: shown[0]?.run.frames.map(({ step }, k) => [step, ...shown.map(({ run }) => run.frames[k]?.loss ?? null)]) ?? [] }),
    resize: () => { draw(); },
    destroy: () => { frame.remove(); clearTimeout(timer); lines.destroy(); shown.forEach(({ run }) => { run.destroy(); }); },
  };
}

/** A blank as a sign that is seen. */
const visible = (token: string) => (token === " " ? "␣" : token);
