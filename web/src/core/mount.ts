// One drawing in an element: its frame, and inside it what its kind draws.
import { attention } from "./attention";
import { bars } from "./bars";
import { h, language } from "./dom";
import { film } from "./film";
import { interactive } from "./interactive";
import { lanes } from "./lanes";
import { lines } from "./lines";
import { picture } from "./picture";
import { saveButtons } from "./save";
import { scene } from "./scene";
import { Selection } from "./selection";
import { sheet } from "./sheet";
import type { Draw, Drawn, Options, Stage } from "./stage";
import { adopt } from "./style";
import { table } from "./table";
import { twinOf } from "./twin";
import type { AnyDrawing } from "./types";
import { words } from "./words";

const KINDS: { [K in AnyDrawing["kind"]]: Draw<Extract<AnyDrawing, { kind: K }>> } = {
  attention, film, sheet, lines, bars, words, lanes, picture, scene, table, interactive,
};

export interface Mounted {
  readonly element: HTMLElement;
  /** Draw this instead; what was chosen stays chosen. */
  update(drawing: AnyDrawing): void;
  /** A key pressed elsewhere on the page; true where it meant something here. */
  key(event: KeyboardEvent): boolean;
  /** Show the next stage or the one before; false where the drawing has none. */
  step(by: number): boolean;
  destroy(): void;
}

const isTyping = (event: KeyboardEvent) =>
  event.ctrlKey || event.metaKey || event.altKey
  || (event.target instanceof Element && event.target.closest("input:not([type=radio]):not([type=checkbox]), select, textarea") !== null);

/** Draw into an element. Keeps itself as wide as the element; ends with `destroy`. */
export function mount(host: Element, drawing: AnyDrawing, options: Options = {}): Mounted {
  const root = host.getRootNode();
  adopt(root instanceof ShadowRoot ? root : document);
  const selection = options.selection ?? new Selection();
  const quiet = options.onselect ? selection.on(options.onselect) : () => undefined;
  const title = h("h2", { class: "fv-title", dir: "auto" }), body = h("div", { class: "fv-body" });
  const caption = h("p", { class: "fv-caption", dir: "auto" }), notes = h("p", { class: "fv-notes" });
  const twin = twinOf(() => drawn?.twin());
  const element = h("section", { class: "fv" }, title, body, caption, notes);
  let current = drawing, drawn: Drawn | undefined;
  const framed = () => options.frame !== false && current.kind !== "interactive"; // its parts have frames of their own
  if (framed())
    element.append(h("div", { class: "fv-foot", "data-unsaved": true }, twin.element,
      saveButtons(element, () => current, () => drawn?.json?.() ?? current, options.page)));
  else title.hidden = caption.hidden = notes.hidden = true;

  const memory = new Map<string, unknown>();
  const stage: Stage = { body, selection, options, memory, mount, changed: () => twin.refresh() };
  const show = (given: AnyDrawing) => {
    const next = language.of(given), grows = next.kind === current.kind ? drawn?.grow : undefined;
    if (!grows) {
      drawn?.destroy?.();
      drawn = undefined;
    }
    current = next;
    element.dataset.kind = next.kind;
    if (framed()) {
      title.hidden = !(title.textContent = next.title);
      caption.hidden = !(caption.textContent = next.caption);
      notes.hidden = !(notes.textContent = next.notes.join(" · "));
    }
    if (grows) grows(next);
    else body.replaceChildren();
    drawn ??= (KINDS[next.kind] as Draw<AnyDrawing>)(stage, next);
    twin.refresh();
  };
  const key = (event: KeyboardEvent) => !isTyping(event) && (drawn?.key?.(event) ?? false);
  element.addEventListener("keydown", (event) => {
    if (!event.defaultPrevented && key(event)) event.preventDefault();
  });
  host.append(element);
  let width = element.clientWidth;
  show(drawing);
  const watch = new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    drawn?.resize?.();
  });
  watch.observe(element);
  return {
    element, update: show, key,
    step: (by) => drawn?.step?.(by) ?? false,
    destroy: () => { watch.disconnect(); quiet(); drawn?.destroy?.(); element.remove(); },
  };
}
