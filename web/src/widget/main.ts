// A view in a notebook (anywidget): drawings come as JSON, their numbers as bytes beside it.
import { mount, Selection, type AnyDrawing, type Choice, type Mounted } from "../core";
import { provide } from "../core/numbers";

/** What anywidget gives: the state that Python and the page share. */
interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

/** Notebooks say in their own ways whether they are dark; the wish of the system is the last to ask. */
function isDark(): boolean {
  const { dataset, classList } = document.body;
  if (dataset.jpThemeLight !== undefined) return dataset.jpThemeLight === "false";
  if (dataset.vscodeThemeKind !== undefined) return dataset.vscodeThemeKind.includes("dark");
  if (classList.contains("dark") || document.documentElement.dataset.theme === "dark") return true;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const root = el.attachShadow({ mode: "open" }), host = document.createElement("div"); // the notebook's style stays out
  root.append(host);
  const dress = () => { host.style.cssText = `color-scheme: ${isDark() ? "dark" : "light"}; padding: 8px; background: ${isDark() ? "#14161b" : "#fff"}`; };
  dress();
  const watch = new MutationObserver(dress);
  watch.observe(document.body, { attributes: true });

  const selection = new Selection(model.get("selection") as Choice);
  const tell = selection.on((choice) => { // words are of the drawing; Python knows them
    const { block, layer, head, row, column, side } = choice;
    model.set("selection", Object.fromEntries(Object.entries({ block, layer, head, row, column, side }).filter(([, value]) => value !== undefined)));
    model.save_changes();
  });
  const hear = () => selection.set(model.get("selection") as Choice);
  let drawn: Mounted[] = [];
  const show = () => {
    const name = crypto.randomUUID?.() ?? String(Math.random());
    (model.get("arrays") as DataView<ArrayBuffer>[]).forEach((view, k) => {
      const copy = new Uint8Array(view.byteLength); // numbers begin at a place that is theirs
      copy.set(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
      provide(`${name}/${k}`, copy);
    });
    const text = (model.get("drawings") as string).replaceAll('"url":"array:', `"url":"${name}/`);
    for (const one of drawn) one.destroy();
    drawn = (JSON.parse(text) as AnyDrawing[]).map((drawing) => mount(host, drawing, { selection }));
  };
  show();
  // What the notebook keeps for when there is no kernel is not needed beside what lives.
  const kept = document.querySelector(`[data-foveate="${String(model.get("mark"))}"]`);
  const beside = kept?.closest<HTMLElement>(".jp-OutputArea-child, .output_area") ?? (kept as HTMLElement | null);
  if (beside) beside.style.display = "none";
  model.on("change:drawings", show);
  model.on("change:selection", hear);
  return () => {
    if (beside) beside.style.display = "";
    watch.disconnect();
    tell();
    model.off("change:drawings", show);
    model.off("change:selection", hear);
    for (const one of drawn) one.destroy();
  };
}

export default { render };
