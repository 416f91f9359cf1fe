// A model as blocks in blocks, in the order in which data goes through them.
import { h } from "./dom";
import type { Draw, Twin } from "./stage";
import type { ModelDrawing, Module } from "./types";

const OPEN = 2; // levels that are open at first

export const model: Draw<ModelDrawing> = ({ body, memory }, drawing) => {
  const opened = (memory.get("open") as Map<string, boolean> | undefined) ?? new Map<string, boolean>();
  memory.set("open", opened);
  const whole = drawing.parts.reduce((sum, { parameters }) => sum + parameters, 0) || 1;
  const block = (part: Module, depth: number, place: string): HTMLElement => {
    const share = h("span", { class: "fv-share" });
    share.style.width = `${(100 * part.parameters) / whole}%`;
    const said = [h("b", {}, part.name), h("span", { class: "fv-does" }, part.does),
      ...(part.output ? [h("code", {}, part.output)] : []),
      h("span", { class: "fv-count" }, part.parameters.toLocaleString("en-US"), h("span", { class: "fv-bar-room", title: "share of all parameters" }, share))];
    if (!part.parts.length) return h("div", { class: "fv-module" }, h("div", { class: "fv-module-line" }, ...said));
    const made = h("details", { class: "fv-module", toggle: () => { opened.set(place, made.open); } },
      h("summary", { class: "fv-module-line" }, ...said), ...part.parts.map((inner, k) => block(inner, depth + 1, `${place}.${k}`)));
    made.open = opened.get(place) ?? depth < OPEN;
    return made;
  };
  body.append(h("div", { class: "fv-model" }, ...drawing.parts.map((part, k) => block(part, 0, String(k)))));
  const lines = (parts: readonly Module[], before: string): Twin["rows"] => parts.flatMap((part) =>
    [[before + part.name, part.does, part.output, part.parameters], ...lines(part.parts, `${before}${part.name} › `)]);
  return {
    twin: () => ({ caption: drawing.title || "model", columns: ["part", "does", "output", "parameters"], rows: lines(drawing.parts, "") }),
  };
};
