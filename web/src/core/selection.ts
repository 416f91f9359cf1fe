// What is chosen, once for all drawings that stand together: point at a word and it lights in each.
import type { Cells } from "./cells";
import { likeWord, sameWords } from "./text";

/** What is chosen. What is undefined has not been chosen yet: a drawing shows what it begins with. */
export interface Choice {
  block?: string | undefined;
  layer?: number | undefined;
  head?: number | null | undefined; // null is the mean of all heads
  row?: number | undefined;
  column?: number | undefined;
  side?: "row" | "column" | undefined; // of which the chosen word is
  rows?: readonly string[] | undefined; // the words that rows and columns count
  columns?: readonly string[] | undefined;
  walk?: Walk | undefined;
  framed?: Readonly<Record<string, Cells["outlines"]>> | undefined; // cells of a block, in all its heads
}

/** The row whose computation is shown, and why that of its head. */
export interface Walk { row: number; why: string }

type Listener = (choice: Readonly<Choice>, changed: Choice) => void;

export class Selection {
  private chosen: Choice;
  private readonly listeners = new Set<Listener>();

  constructor(start: Choice = {}) {
    this.chosen = { ...start };
  }

  get now(): Readonly<Choice> {
    return this.chosen;
  }

  /** Choose; those who listen are told, unless nothing changes. */
  set(change: Choice): void {
    const keys = (Object.keys(change) as (keyof Choice)[]).filter((key) => change[key] !== this.chosen[key]);
    if (!keys.length) return;
    const changed: Choice = Object.fromEntries(keys.map((key) => [key, change[key]]));
    this.chosen = { ...this.chosen, ...changed };
    for (const listener of [...this.listeners]) listener(this.chosen, changed);
  }

  /** Be told of each change; call what is returned to hear no more. */
  on(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Which of these words is chosen: as a row or a column of the same words. */
  placeOf(words: readonly string[]): number | undefined {
    const { side, row, column, rows, columns } = this.chosen;
    const isRow = rows !== undefined && sameWords(rows, words), isColumn = columns !== undefined && sameWords(columns, words);
    const place = isRow && !(isColumn && side === "column") ? row : isColumn ? column : undefined;
    if (place !== undefined) return place < words.length ? place : undefined;
    return side === "row" && !isColumn ? likeWord(rows, row, words) : undefined;
  }

  /** Choose one of these words: as the row or column that it is elsewhere, else as a row. */
  point(words: readonly string[], place: number): void {
    const { rows, columns } = this.chosen;
    if (columns && sameWords(columns, words) && !(rows && sameWords(rows, words))) this.set({ column: place, side: "column" });
    else if (rows && sameWords(rows, words)) this.set({ row: place, side: "row" });
    else this.set({ rows: words, row: place, side: "row", columns: undefined, column: undefined });
  }
}
