// Cells of colour with words at their sides: what matrices, sheets and the loupe are drawn with.
import { fitted, h, put, s, tallOf, widthOf, zoomOf } from "./dom";
import { colourOf, isLight, pixels, pooled, type Colours } from "./levels";
import { every } from "./text";

export interface Cells {
  height: number;
  width: number;
  levels: Float64Array; // -1 is blank
  colours: Colours;
  rows: readonly string[]; // words at the sides; none where empty
  columns: readonly string[];
  aspect?: number; // height of a cell by its width
  high?: number; // pixels of a row, whatever its cells' width; they fill the room there is
  whole?: boolean; // all columns stand in the room there is, however narrow
  texts?: readonly (readonly string[])[]; // in the cells
  dots?: readonly (readonly [number, number])[]; // row, column
  outlines?: readonly (readonly [number, number, number, number])[]; // top, left, height, width, in cells
  down?: string; // what rows and columns are
  across?: string;
}

const SHORT = 64; // words along a side that are all written, if need be by scrolling
const LOUPE = 9; // pixels of a cell below which a loupe helps
export const WRITTEN = 36, LABELS = 90; // pixels of a number in a cell, where all columns have to fit; of words beside them
const LOWEST = 8.5; // pixels of a cell below which only every k-th word is written, and a dot for each of the others
const ROOMY = 52, TIGHT = 18, LINE = 14; // pixels of a text in a cell, else; of a row of texts at least; of a word beside cells
const MOST = 64, LARGEST = 64, NAMED = 110, BRIEF = 22; // pixels of a cell, with and without a number in it; with texts, so that the word over it stands upright; of a sign

/** Every how many words beside cells so high one is written. */
export const everyWord = (cell: number): number => every(cell, LOWEST);

/** Whether words beside cells are marks of an axis: blanks stand between them. */
const isSparse = (words: readonly string[]): boolean => words.includes("");

/** A number with the sign for minus. */
const signed = (text: string) => text.replace(/^-(?=[\d.])/, "−");

/** Pixels that a cell with the longest of these texts is wide at least. */
export const roomOf = (texts: readonly (readonly string[])[]): number => {
  const widest = Math.max(...texts.flat().map((text) => widthOf(text, 12)));
  return widest <= BRIEF ? BRIEF + 2 : Math.max(WRITTEN, Math.min(ROOMY, widest + 12));
};

/** Where things lie, in pixels. */
interface Place { left: number; top: number; across: number; down: number; turn: number; limit: number; width: number; height: number; foot?: number }

/** Lay cells out in so much room: `across` and `down` are the sides of one cell. Pure but for text widths. */
export function place(cells: Cells, room: number, tall: number): Place {
  const told = cells.texts?.length ? cells.texts.flat() : undefined, short = Math.max(cells.rows.length, cells.columns.length) <= SHORT;
  const most = told ? Math.max(MOST, ...told.map((text) => widthOf(text, 12) + 10), ...cells.columns.map((word) => Math.min(NAMED, widthOf(word) + 8))) : LARGEST;
  const least = told ? (cells.whole ? Math.max(roomOf(cells.texts!) < WRITTEN ? BRIEF + 2 : WRITTEN, ...told.map((text) => Math.min(ROOMY, widthOf(signed(text), 12) + 5))) : roomOf(cells.texts!)) : cells.rows.length && short && !cells.whole && !isSparse(cells.rows) ? 12 : 0;
  const limit = Math.min(told ? 220 : 150, Math.max(room * (cells.whole ? 0.38 : 0.3), told ? room - cells.width * least - 16 : cells.down ? Math.min(room * 0.45, widthOf(cells.down, 12)) : 0)); // of words
  const widths = (words: readonly string[]) => words.map((word) => Math.min(limit, widthOf(word)));
  const isTight = told && cells.whole && widthOf(cells.down ?? "", 12) + 14 + cells.width * least > room; // numbers come before the name
  const ruled = isSparse(cells.columns), named = cells.down && cells.rows.length && !isTight && !isSparse(cells.rows) ? Math.min(limit, widthOf(cells.down, 12)) : 0; // in the corner, over its words
  const left = cells.rows.length ? Math.max(named, ...widths(cells.rows)) + (cells.down && isSparse(cells.rows) ? 28 : 8) : cells.down ? 20 : 2;
  const aspect = cells.aspect ?? 1, bound = told || cells.high ? most : Math.min(most, Math.max(4 / Math.max(1, aspect), tall / cells.height / aspect));
  const flat = ruled || cells.columns.every((word) => widthOf(word) < Math.min((room - left) / cells.width, bound) - 6);
  const turn = flat ? 0 : room - left < (cells.whole ? 34 : 20) * cells.width ? -90 : room < 30 * cells.width ? -75 : -55; // upright where the lines would touch
  const along = Math.cos((turn * Math.PI) / 180), upward = -Math.sin((turn * Math.PI) / 180);
  const right = flat ? 2 : Math.max(2, ...widths(cells.columns).map((w, k) => w * along + 8 - (cells.width - k - 0.5) * least));
  const wide = (room - left - right) / cells.width;
  const fit = cells.high && !told ? wide : Math.min(wide, told ? most : Math.max(least || 4 / Math.max(1, aspect), tall / cells.height / aspect), most);
  const across = least ? Math.max(cells.whole ? Math.min(least, Math.floor(wide)) : least, Math.floor(fit)) : Math.max(fit, 0.2);
  const top = !cells.columns.length || ruled ? (named ? 22 : 5) : flat ? 22 : Math.max(...widths(cells.columns)) * upward + 16;
  const down = cells.high ?? (told ? Math.max(TIGHT, Math.min(Math.max(24, Math.min(across, cells.whole && cells.width > 4 ? 44 : 30)), tall / (cells.height + 1))) : least ? Math.max(1, Math.round(across * aspect))
    : Math.max(across * aspect, cells.whole && cells.rows.length && !isSparse(cells.rows) ? Math.min(LINE, tall / cells.height) : 0)); // high enough for its word
  return {
    left, top, across, down, turn, limit, ...(ruled ? { foot: top + down * cells.height + 15 } : {}),
    width: Math.max(left + across * cells.width + right, left + (across * cells.width + widthOf(cells.across ?? "", 12)) / 2), height: top + down * cells.height + (cells.across ? 22 : 2) + (ruled ? 16 : 0),
  };
}

export class Grid {
  readonly element: HTMLElement;
  readonly canvas = h("canvas");
  private readonly over = s("svg", { "aria-hidden": "true" });
  readonly loupe: Grid | undefined; // the cells around the chosen one, where cells are small
  private cells: Cells | undefined;
  private lies: Place | undefined;
  private chosen: [number, number] = [0, 0];
  private labels: { side: 0 | 1; index: number; node: SVGElement }[] = [];
  private marks: SVGElement[] = [];
  private current: SVGTextElement[] = [];

  /** `onpoint` hears of the cell that is pointed at; without it the grid is a picture only. */
  constructor(private readonly onpoint?: (row: number, column: number) => void, roledescription = "matrix") {
    const box = h("div", { class: "fv-cells" }, this.canvas, this.over);
    this.element = h("div", { class: "fv-grid" }, h("div", { class: "fv-scroll" }, box));
    if (!onpoint) return;
    const role = { tabindex: "0", role: "application", "aria-roledescription": roledescription };
    put(box, role);
    box.addEventListener("pointermove", (event) => event.pointerType === "mouse" && this.pointed(event));
    box.addEventListener("click", (event) => this.pointed(event));
    this.loupe = new Grid();
    this.loupe.element.classList.add("fv-loupe");
    this.element.append(this.loupe.element);
  }

  get box(): HTMLElement {
    return this.over.parentElement!;
  }

  private pointed(event: MouseEvent): void {
    const { cells, lies } = this;
    if (!cells || !lies) return;
    const box = this.box.getBoundingClientRect(), zoom = zoomOf(this.box);
    const column = Math.floor(((event.clientX - box.x) / zoom - lies.left) / lies.across);
    const row = Math.floor(((event.clientY - box.y) / zoom - lies.top) / lies.down);
    if (row >= 0 && column >= 0 && row < cells.height && column < cells.width) this.onpoint?.(row, column);
  }

  /** Where an arrow key goes from the chosen cell, if it is one. */
  step(key: string): [number, number] | undefined {
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9],
    };
    const move = moves[key];
    if (!move || !this.cells) return undefined;
    const within = (value: number, count: number) => Math.max(0, Math.min(count - 1, value));
    return [within(this.chosen[0] + move[0], this.cells.height), within(this.chosen[1] + move[1], this.cells.width)];
  }

  show(cells: Cells): void {
    this.cells = cells;
    this.layout();
  }

  /** Draw anew for the width there is. */
  layout(room = this.element.clientWidth, tall = tallOf(this.element)): void {
    const { cells } = this;
    if (!cells || room <= 0) return;
    const lies = (this.lies = place(cells, room - 6, tall)), { left, top, across, down } = lies;
    const box = this.box, wide = across * cells.width, high = down * cells.height;
    Object.assign(box.style, { width: `${lies.width}px`, height: `${lies.height}px` });
    Object.assign(box.dataset, { left, top, across, down }); // for who points by measure
    Object.assign(this.canvas.style, { left: `${left}px`, top: `${top}px`, width: `${wide}px`, height: `${high}px` });
    const tile = Math.max(1, Math.floor(1 / (Math.min(across, down) * (devicePixelRatio || 1))));
    const { levels, height, width } = pooled(cells.levels, cells.height, cells.width, tile);
    Object.assign(this.canvas, { width, height });
    if (width * height) this.canvas.getContext("2d")!.putImageData(new ImageData(pixels(levels, cells.colours), width, height), 0, 0);
    put(this.over, { width: lies.width, height: lies.height });
    this.marks = ["fv-band", "fv-band", "fv-edge", "fv-cell"].map((name) => s("rect", { class: name }));
    this.current = [0, 1].map(() => s("text", { class: "fv-chosen" }));
    this.over.replaceChildren(...this.rule(lies, cells), ...this.write(lies, cells), ...this.marks, ...this.inside(lies, cells), ...this.current); // a frame is over the chosen cell
    if (this.loupe) this.loupe.element.hidden = Math.min(across, down) >= LOUPE || isSparse(cells.rows);
    this.select(...this.chosen);
  }

  /** Thin lines between cells that are large enough to be told apart. */
  private rule({ left, top, across, down }: Place, { height, width }: Cells): SVGElement[] {
    if (Math.min(across, down) < 8) return [];
    const parts = [];
    for (let k = 1; k < width; k++) parts.push(`M${left + k * across} ${top}v${down * height}`);
    for (let k = 1; k < height; k++) parts.push(`M${left} ${top + k * down}h${across * width}`);
    return [s("path", { class: "fv-rule", d: parts.join("") })];
  }

  /** The words at the sides; beside low cells every k-th, and a dot for each that is left out. */
  private write(lies: Place, { rows, columns, down, across, height, width, outlines = [] }: Cells): SVGElement[] {
    this.labels = [];
    const sides = [[rows, lies.down], [columns, lies.across]] as const;
    sides.forEach(([words, cell], side) => words.forEach((word, index) => {
      const node = s("text", { ...this.at(lies, side as 0 | 1, index), class: isSparse(words) ? "fv-quiet fv-tick" : outlines.length ? (outlines.some((frame) => frame[side]! <= index && index < frame[side]! + frame[side + 2]!) ? "fv-framed" : "fv-quiet") : "" }, !isSparse(words) && index % everyWord(cell) ? "·" : fitted(word, lies.limit));
      this.labels.push({ side: side as 0 | 1, index, node });
    }));
    const names = [];
    const middle = lies.top + (lies.down * height) / 2;
    if (down && rows.length && !isSparse(rows) && Math.min(lies.limit, widthOf(down, 12)) <= lies.left - 7) names.push(s("text", { class: "fv-quiet", x: lies.left - 6, y: lies.top - 7, "text-anchor": "end" }, fitted(down, lies.limit, 12)));
    else if (down && (!rows.length || isSparse(rows))) names.push(s("text", { class: "fv-quiet", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, down));
    if (across) names.push(s("text", { class: "fv-quiet", x: lies.left + (lies.across * width) / 2, y: lies.height - 5, "text-anchor": "middle" }, across));
    return [...this.labels.map(({ node }) => node), ...names];
  }

  private at(lies: Place, side: 0 | 1, index: number): Record<string, string | number> {
    if (side === 0) return { x: lies.left - 6, y: lies.top + (index + 0.5) * lies.down + 4, "text-anchor": "end" };
    const x = lies.left + (index + 0.5) * lies.across;
    return lies.foot ? { x, y: lies.foot, "text-anchor": "middle" } : lies.turn === 0 || !this.cells!.columns[index]![1]
      ? { x, y: lies.top - 7, "text-anchor": "middle" }
      : { transform: `translate(${x} ${lies.top - 7}) rotate(${lies.turn})`, y: 4 };
  }

  /** True links as dots, and texts where cells have room for them. */
  private inside({ left, top, across, down }: Place, { texts, dots = [], outlines = [], levels, width, colours }: Cells): SVGElement[] {
    const middle = (row: number, column: number) => ({ x: left + (column + 0.5) * across, y: top + (row + 0.5) * down });
    const made: SVGElement[] = dots.map(([row, column]) => {
      const { x, y } = middle(row, column);
      return s("circle", { class: "fv-dot", cx: x, cy: y, r: Math.max(1.5, Math.min(5, across / 5)) });
    });
    made.push(...outlines.map(([y, x, high, wide]) => s("rect", { class: "fv-outline", x: left + x * across, y: top + y * down, width: wide * across, height: high * down })));
    if (!texts?.length || down < 13) return made;
    texts.forEach((line, row) => line.forEach((text, column) => {
      const { x, y } = middle(row, column), level = levels[row * width + column]!;
      const ink = level < 0 ? "" : isLight(level, colours) ? "fv-on-light" : "fv-on-dark";
      made.push(s("text", { x, y: y + 4, "text-anchor": "middle", class: `fv-text ${ink}` }, fitted(signed(text), text.length < 3 ? across : across - 4, 12)));
    }));
    return made;
  }

  /** Frame a cell and its row and column. */
  select(row: number, column: number): void {
    this.chosen = [row, column];
    const { cells, lies } = this;
    if (!cells || !lies || !this.onpoint) return;
    const { left, top, across, down } = lies, x = left + column * across, y = top + row * down;
    const cell = { x, y, width: across, height: down }, boxes = [{ ...cell, x: left, width: across * cells.width }, { ...cell, y: top, height: down * cells.height }, cell, cell];
    this.marks.forEach((mark, k) => put(mark, boxes[k]!));
    for (const { side, index, node } of this.labels) {
      const chosen = this.chosen[side]!, cell = side === 0 ? down : across;
      node.toggleAttribute("hidden", !isSparse(side ? cells.columns : cells.rows) && Math.abs(index - chosen) < everyWord(cell));
    }
    [cells.rows, cells.columns].forEach((words, side) => {
      const index = this.chosen[side]!, node = this.current[side]!;
      node.textContent = words.length && !isSparse(words) ? fitted(words[index] ?? "", lies.limit) : "";
      for (const name of ["transform", "x", "text-anchor"]) node.removeAttribute(name);
      put(node, this.at(lies, side as 0 | 1, index));
    });
    if (this.loupe && !this.loupe.element.hidden) this.magnify(row, column);
  }

  /** The cells around the chosen one, large and with all their words. */
  private magnify(row: number, column: number): void {
    const { cells, loupe } = this;
    if (!cells || !loupe) return;
    const span = (middle: number, count: number): [number, number] => {
      const from = Math.max(0, Math.min(middle - 7, count - 15));
      return [from, Math.min(count, from + 15)];
    };
    const [top, bottom] = span(row, cells.height), [left, right] = span(column, cells.width), width = right - left;
    const levels = new Float64Array((bottom - top) * width);
    for (let t = top; t < bottom; t++) levels.set(cells.levels.subarray(t * cells.width + left, t * cells.width + right), (t - top) * width);
    loupe.cells = {
      height: bottom - top, width, levels, colours: cells.colours,
      rows: cells.rows.slice(top, bottom), columns: cells.columns.slice(left, right),
      dots: [[row - top, column - left]],
    };
    loupe.layout(loupe.element.clientWidth - 10, 300); // its padding is 16, and `layout` leaves 6 itself
  }

  /** `rgb(…)` of a cell, for legends and readings. */
  colour(row: number, column: number): string {
    const { cells } = this;
    return cells ? colourOf(cells.levels[row * cells.width + column]!, cells.colours) : "";
  }
}
