// The table beside each picture: the same in words and figures, made when it is opened.
import { h } from "./dom";
import type { Twin } from "./stage";
import { figure } from "./text";

const MOST_ROWS = 2000;

/** A table of a twin, its names as headers. */
export function tableOf({ caption, columns, rows }: Twin, most = MOST_ROWS): HTMLTableElement {
  const cell = (value: string | number | null) =>
    typeof value === "string" ? h("td", { dir: "auto" }, value) : h("td", { class: "fv-number" }, figure(value));
  const body = rows.slice(0, most).map(([name, ...rest]) =>
    h("tr", {}, h("th", { scope: "row", dir: "auto" }, typeof name === "string" ? name : figure(name)), ...rest.map(cell)));
  const left = rows.length - body.length;
  return h("table", {}, h("caption", {}, left > 0 ? `${caption} (${left} more rows are not listed)` : caption),
    h("thead", {}, h("tr", {}, ...columns.map((name) => (name ? h("th", { scope: "col", dir: "auto" }, name) : h("td"))))),
    h("tbody", {}, ...body));
}

interface Named { name: string; values: readonly (number | null)[]; low: readonly (number | null)[]; high: readonly (number | null)[] }

/** The twin of series over places: a row for each place, and for each series its value and the ends of its interval. */
export function seriesTwin(drawing: { title: string; up: string; across: string }, places: readonly string[], series: readonly Named[]): Twin {
  return {
    caption: [drawing.title, drawing.up].filter(Boolean).join(": "),
    columns: [drawing.across, ...series.flatMap(({ name, low }) => (low.length ? [name, `${name}, low`, `${name}, high`] : [name]))],
    rows: places.map((place, k) => [place, ...series.flatMap(({ values, low, high }) =>
      (low.length ? [values, low, high] : [values]).map((each) => each[k] ?? null))]),
  };
}

export function twinOf(make: () => Twin | undefined): { element: HTMLElement; refresh(): void } {
  const place = h("div", { class: "fv-scroll", tabindex: 0, role: "region", "aria-label": "table of numbers" });
  const fill = () => {
    const twin = element.open ? make() : undefined;
    if (twin) place.replaceChildren(tableOf(twin));
  };
  const element = h("details", { class: "fv-twin", toggle: fill }, h("summary", {}, "Table"), place);
  return { element, refresh: fill };
}
