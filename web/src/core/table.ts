// Rows of figures and texts that can be put in order by any column.
import { h } from "./dom";
import type { Draw } from "./stage";
import { figure } from "./text";
import type { TableDrawing } from "./types";

const FIRST = 200; // rows that are shown at once

type Value = string | number | null;

/** Numbers by size, texts by the alphabet, blanks last whichever way. */
export function compared(a: Value, b: Value, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

export const table: Draw<TableDrawing> = ({ body, memory }, drawing) => {
  const { columns } = drawing;
  let [by, sign] = (memory.get("order") as [number, number] | undefined) ?? [-1, 1], shown = FIRST;
  const numeric = columns.map((_, k) => drawing.rows.every((row) => typeof row[k] !== "string"));
  const head = h("tr"), lines = h("tbody"), more = h("button", { type: "button", "data-unsaved": true, click: () => { shown *= 4; draw(); } });
  body.append(h("div", { class: "fv-scroll", tabindex: 0, role: "region", "aria-label": drawing.title || "table" },
    h("table", {}, h("thead", {}, head), lines)), more);
  function draw(): void {
    memory.set("order", [by, sign]);
    const rows = by < 0 ? drawing.rows : [...drawing.rows].sort((a, b) => compared(a[by] ?? null, b[by] ?? null, sign));
    head.replaceChildren(...columns.map((name, k) => {
      const press = () => { [by, sign] = [k, by === k ? -sign : numeric[k] ? -1 : 1]; draw(); (head.children[k]!.firstElementChild as HTMLElement).focus(); };
      const order = by !== k ? "none" : sign > 0 ? "ascending" : "descending";
      return h("th", { scope: "col", "aria-sort": order, class: numeric[k] ? "fv-number" : "fv-words" },
        h("button", { type: "button", click: press }, name, h("span", { "aria-hidden": "true" }, order === "none" ? "" : sign > 0 ? " ▲" : " ▼")));
    }));
    lines.replaceChildren(...rows.slice(0, shown).map((row) => h("tr", {}, ...columns.map((_, k) => {
      const value = row[k] ?? null;
      return typeof value === "string" ? h("td", { class: "fv-words", dir: "auto" }, ...value.split(/(?<=\])|(?=\[)/).map((part) => (part[0] === "[" ? h("mark", {}, part.slice(1, -1)) : part))) : h("td", { class: "fv-number" }, figure(value));
    }))));
    more.hidden = rows.length <= shown;
    more.textContent = `show more (${rows.length - shown} left)`;
  }
  draw();
  return { twin: () => ({ caption: drawing.title, columns, rows: drawing.rows }) };
};
