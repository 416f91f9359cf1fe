// Sliders over drawings: what is dragged, by mouse, finger or arrow keys, changes them at once, without a request.
import { h, tallOf, zoomOf } from "./dom";
import { FORMULAS, type Dragged } from "./formulas";
import { decode, floats, type Values } from "./numbers";
import { nearest } from "./lines";
import type { Mounted } from "./mount";
import type { Draw } from "./stage";
import { figure } from "./text";
import type { InteractiveDrawing, Slider } from "./types";

const AROUND = 140; // pixels around the cells of each part

/** The values of sliders by option. */
export function dragged(sliders: readonly Slider[]): Dragged {
  const of = (option: string) => sliders.filter((slider) => slider.option === option);
  return Object.fromEntries(sliders.map(({ option, index, value }) => [option, index === null ? value : of(option).map((each) => each.value)]));
}

export const interactive: Draw<InteractiveDrawing> = (stage, drawing) => {
  const formula = FORMULAS[drawing.formula], sliders = drawing.sliders.map((slider) => ({ ...slider }));
  const data = Object.fromEntries(Object.entries(drawing.data).map(([name, numbers]) => [name, [...floats(decode(numbers) as Values)]]));
  const hosts = drawing.parts.map(() => h("div")), framed = stage.options.frame !== false;
  let frame = 0, parts = drawing.parts;

  const inputs = sliders.map((slider) => {
    const shown = h("output", {}), { stops } = slider, last = stops.length - 1;
    const move = () => { turn(slider, stops[Number(input.value)]!); };
    const input = h("input", { type: "range", min: 0, max: last, step: 1, value: 0, "data-option": slider.option, input: move, change: () => tell(slider) });
    const set = () => {
      const place = String(nearest(stops, slider.value));
      if (input.value !== place) input.value = place; // to set it ends a drag
      input.setAttribute("aria-valuetext", (shown.textContent = figure(slider.value)));
    };
    set();
    return { set, element: h("label", { class: "fv-slider" }, h("span", {}, slider.label), shown, input) };
  });
  const reset = h("button", { type: "button", disabled: true, click: () => {
    sliders.forEach((slider, k) => { slider.value = drawing.sliders[k]!.value; });
    inputs.forEach(({ set }) => { set(); });
    draw();
    sliders.forEach(tell);
  } }, "reset");
  const controls = h("fieldset", { class: "fv-sliders", "data-unsaved": true }, h("legend", {}, "drag"), ...inputs.map(({ element }) => element), reset);
  const view = h("div", { class: drawing.plane ? "fv-live fv-plane" : "fv-live", "data-parts": hosts.length }, ...hosts);
  controls.hidden = !formula;
  stage.body.append(controls, view);
  const tall = tallOf(stage.body, NaN), rows = Math.ceil(hosts.length / 3); // at most three beside each other
  if (tall) view.style.setProperty("--tall", String(Math.max(60, (tall + AROUND) / rows - AROUND)));
  const page = stage.options.page && (() => stage.options.page!({ ...drawing, sliders, parts }));
  const drawn: Mounted[] = parts.map((part, k) => stage.mount(hosts[k]!, part, { ...stage.options, selection: stage.selection, onselect: undefined, page }));
  const headings = hosts.map(() => (!framed && parts.length > 1 ? h("h3") : undefined)), named = (k: number) => { const part = parts[k]!; return "up" in part && part.up === part.title ? "" : part.title.split(" · ").at(-1)!; };
  headings.forEach((heading, k) => { if (heading) hosts[k]!.prepend(heading); heading?.append(named(k)); });

  const draw = () => {
    frame = 0;
    if (formula) parts = formula(dragged(sliders), data, drawing.parts);
    parts.forEach((part, k) => { drawn[k]!.update(part); headings[k]?.replaceChildren(named(k)); });
    reset.disabled = sliders.every(({ value }, k) => value === drawing.sliders[k]!.value);
  };
  const turn = (slider: Slider, value: number) => {
    slider.value = value;
    inputs[sliders.indexOf(slider)]!.set();
    frame ||= requestAnimationFrame(draw);
  };
  const tell = ({ option }: Slider) => stage.options.ondrag?.(option, dragged(sliders)[option]!);

  // In maps of a plane the pointer drags the point itself; sliders do the same by keys.
  const [across, up] = (drawing.plane ?? []).map((option) => sliders.find((slider) => slider.option === option)!);
  const pull = (event: PointerEvent) => {
    const k = hosts.findIndex((host) => host.contains(held)), box = hosts[k]?.querySelector<HTMLElement>(".fv-cells"), part = parts[k];
    if (!box || !across || !up || part?.kind !== "sheet") return;
    const { x, y } = box.getBoundingClientRect(), zoom = zoomOf(box), far = across.stops.at(-1)!, cells = part.values.shape[0]!;
    const at = (pixel: number, from: string, cell: string) => (2 * ((pixel / zoom - Number(from)) / Number(cell) - 0.5)) / (cells - 1) - 1;
    const { left = "", top = "", across: wide = "", down = "" } = box.dataset;
    for (const [slider, value] of [[across, at(event.clientX - x, left, wide)], [up, -at(event.clientY - y, top, down)]] as const)
      turn(slider, slider.stops[nearest(slider.stops, far * value)]!);
  };
  let held: Node | null = null;
  view.addEventListener("pointerdown", (event) => {
    if (!across || !(event.target as Element).closest(".fv-cells")) return;
    held = hosts.find((host) => host.contains(event.target as Node)) ?? null;
    view.setPointerCapture(event.pointerId);
    pull(event);
  });
  view.addEventListener("pointermove", (event) => { if (held) pull(event); });
  view.addEventListener("lostpointercapture", () => {
    held = null;
    [across!, up!].forEach(tell);
  });

  return {
    twin: () => ({ caption: "", columns: [], rows: [] }), // each part has its own
    key: (event) => drawn.some((each) => each.key(event)),
    destroy: () => { cancelAnimationFrame(frame); drawn.forEach((each) => { each.destroy(); }); },
  };
};
