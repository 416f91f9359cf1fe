// Which cell of an attention drawing is chosen, from what is chosen on the whole page. Pure.
import { columnOf, largest, rowOf, type Matrix } from "./levels";
import type { Choice } from "./selection";
import { likeWord, sameWords } from "./text";
import type { AttentionDrawing, Block } from "./types";

export const MOST_WORDS = 64; // beyond, no line would be told from another
export type Side = "row" | "column";

export interface Looking { row: number; column: number; side: Side }

const within = (value: number, count: number) => Math.max(0, Math.min(count - 1, value));

/** The layer and head that are shown: what was chosen, where the block has it. */
export function layerAndHead(choice: Readonly<Choice>, drawing: AttentionDrawing, block: Block): { layer: number; head: number | null } {
  const count = block.layers.length, wished = choice.layer ?? drawing.layer;
  const layer = within(wished < 0 ? count + wished : wished, count);
  const heads = block.layers[layer]?.shape[0] ?? 1, head = choice.head === undefined ? drawing.head : choice.head;
  return { layer, head: head === null || heads < 2 ? null : within(head, heads) };
}

const isWord = (text: string) => /\p{L}/u.test(text) && !/^<.*>$/.test(text);

/** The cell that is told of first: the largest weight between two words that is not on the diagonal; else the first. */
function telling({ rows, columns }: Block, map: Matrix): number {
  const weights = Array.from(map.values, (weight, k) => {
    const row = Math.floor(k / map.width), column = k % map.width;
    return row !== column && rows[row] !== columns[column] && isWord(rows[row]!) && isWord(columns[column]!) ? weight : 0;
  });
  return largest(weights);
}

/** The cell: of the chosen word, where the block has it on one of its sides; else the one that tells most. */
export function cellOf(choice: Readonly<Choice>, block: Block, map: Matrix): Looking {
  const { rows, columns } = block;
  const on = (words: readonly string[] | undefined, place: number | undefined, own: readonly string[]) =>
    words && place !== undefined && sameWords(words, own) && place < own.length ? place : undefined;
  let row = on(choice.rows, choice.row, rows), column = on(choice.columns, choice.column, columns);
  if (row === undefined && column === undefined) { // the words of another block or drawing
    row = on(choice.columns, choice.column, rows);
    if (row === undefined) column = on(choice.rows, choice.row, columns);
    if (row === undefined && column === undefined && choice.side === "row") row = likeWord(choice.rows, choice.row, rows); // of another run
  }
  const side: Side = row === undefined && column !== undefined ? "column" : choice.side === "column" && column !== undefined ? "column" : "row";
  if (side === "column") return { side, column: column!, row: row ?? largest(columnOf(map, column!)) };
  if (row === undefined && choice.row === undefined && choice.column === undefined) {
    const place = telling(block, map);
    [row, column] = [Math.floor(place / map.width), place % map.width];
  }
  row ??= 0;
  return { side, row, column: column ?? largest(rowOf(map, row)) };
}

/** Weights of the chosen word: its row, or its column. */
export const weightsOf = (map: Matrix, { side, row, column }: Looking): Float64Array =>
  side === "row" ? rowOf(map, row) : columnOf(map, column);

/** Heads in a ring, with the mean between the last and the first. */
export function nextHead(head: number | null, by: number, heads: number): number | null {
  if (heads < 2) return null;
  const next = ((head === null ? 0 : head + 1) + by + heads + 1) % (heads + 1);
  return next === 0 ? null : next - 1;
}
