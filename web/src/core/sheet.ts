// A sheet of numbers as colours, with a reading of the cell that is pointed at.
import { Grid } from "./cells";
import { fill, h, tallOf } from "./dom";
import { legend } from "./legend";
import { ends, levelsBetween } from "./levels";
import { decode, floats, type Values } from "./numbers";
import type { Draw, Twin } from "./stage";
import { figure, tick, ticks } from "./text";
import type { SheetDrawing } from "./types";

const LEAST_SCALE = 90; // pixels of the colours below a map
const MOST_LISTED = 20_000; // cells in the table

/** Words beside cells; without any, the numbers of some positions, where the axis has a name. */
const numbered = (words: readonly string[], name: string, count: number): readonly string[] =>
  (words.length || !name || count < 3 ? words : Array.from({ length: count }, (_, k) => (ticks(0, count - 1, 4).includes(k) ? String(k) : "")));

export const sheet: Draw<SheetDrawing> = (stage, drawing) => {
  const { body, selection } = stage, { rows, columns } = drawing;
  const [height = 0, width = 0] = drawing.values.shape, how = ends(drawing.least, drawing.most);
  let values: Float64Array | undefined, cell: [number, number] = [0, 0];
  const reading = h("output", { class: "fv-reading fv-small", "aria-live": "polite" });
  const point = (row: number, column: number) => {
    cell = [row, column];
    if (rows.length || columns.length) selection.set({
      ...(rows.length ? { rows, row, side: "row" as const } : {}), ...(columns.length ? { columns, column } : {}),
    });
    read();
  };
  const grid = new Grid(point, "sheet of numbers"), along = numbered(rows, drawing.down, height), aloft = numbered(columns, drawing.across, width);
  const name = (words: readonly string[], what: string, place: number) =>
    words.length ? h("bdi", {}, words[place]!) : `${what || "position"} ${place}`;
  const read = () => {
    if (!values) return;
    const [row, column] = cell, text = drawing.cells[row]?.[column];
    grid.select(row, column);
    fill(reading, name(rows, drawing.down || "row", row), " · ", name(columns, drawing.across || "column", column), ": ",
      ...(text && !Number.isFinite(Number(text.replace("−", "-"))) ? [h("bdi", {}, text), " "] : []), h("b", {}, figure(values[row * width + column])));
    grid.box.setAttribute("aria-label", `${drawing.title}: ${reading.textContent}`);
  };
  const middle = how.least < 0 && how.most > 0 ? [[0.5, "0"] as const] : [];
  const [low, high] = [how.least, how.most].map((end) => tick(Number(end.toPrecision(2)))) as [string, string];
  const marks = [[0, low] as const, ...middle, [1, high] as const];
  const scale = legend(how.colours, marks, drawing.told);
  body.append(reading, grid.element, scale);
  const fitted = () => { // as wide as its map, and below it
    const { left = "0", across = "0" } = grid.box.dataset;
    scale.style.setProperty("--left", `${left}px`);
    scale.style.setProperty("--wide", `${Math.max(LEAST_SCALE, Number(across) * width)}px`);
  };
  const paint = (made: Values) => {
    if (!values && !rows.length && !columns.length) cell = [height >> 1, height === width ? width >> 1 : Math.min(10, width >> 1)]; // without words: inside, not at an edge where nothing changes
    else if (!values && !selection.placeOf(rows)) { // the last of the largest numbers is told of first
      const best = floats(made).reduce((top, value, k, all) => (value >= (all[top] ?? NaN) || Number.isNaN(all[top]) ? k : top), 0);
      cell = [Math.floor(best / width), best % width];
    }
    values = floats(made);
    grid.show({
      height, width, levels: levelsBetween(values, how.least, how.most), colours: how.colours, rows: along, columns: aloft,
      aspect: drawing.aspect, whole: Number.isFinite(tallOf(body, Infinity)), texts: drawing.cells, dots: drawing.dots, outlines: drawing.outlines, down: drawing.down, across: drawing.across,
    });
    fitted();
    scale.classList.toggle("fv-plain", values.every((value) => !(value < drawing.most))); // filled or empty: no scale
    read();
    stage.changed();
  };
  const coming = decode(drawing.values);
  if (coming instanceof Promise) coming.then(paint, (error: unknown) => { reading.textContent = `The numbers could not be loaded: ${String(error)}`; });
  else paint(coming);
  const quiet = selection.on(() => {
    const row = rows.length ? selection.placeOf(rows) : undefined, column = columns.length ? selection.placeOf(columns) : undefined;
    if (row === undefined && column === undefined) return;
    cell = [row ?? cell[0], column ?? cell[1]];
    read();
  });
  const twin = (): Twin => {
    const many = height * width > MOST_LISTED, shown = many ? Math.max(1, Math.floor(MOST_LISTED / width)) : height;
    const line = (t: number) => Array.from({ length: width }, (_, k) => (values ? values[t * width + k]! : null));
    return {
      caption: `${drawing.title}${many ? ` (the first ${shown} of ${height} rows)` : ""}`,
      columns: ["", ...(columns.length ? columns : Array.from({ length: width }, (_, k) => String(k)))],
      rows: Array.from({ length: Math.min(shown, height) }, (_, t) => [rows[t] ?? String(t), ...line(t)]),
    };
  };
  return {
    twin,
    json: () => values && ({ title: drawing.title, rows, columns, values: Array.from({ length: height }, (_, t) =>
      Array.from(values!.subarray(t * width, (t + 1) * width), (v) => (Number.isFinite(v) ? v : null))) }),
    key: (event) => {
      const step = event.target === grid.box ? grid.step(event.key) : undefined;
      if (step) point(...step);
      return step !== undefined;
    },
    resize: () => { grid.layout(); fitted(); },
    destroy: quiet,
  };
};
