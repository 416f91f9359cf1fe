import { expect, test } from "vitest";
import { cellOf, layerAndHead, nextHead, weightsOf } from "../src/core/looking";
import type { AttentionDrawing, Block } from "../src/core/types";
import { telling } from "../src/core/words";

const numbers = (heads: number) => ({ shape: [heads, 2, 2], codec: "u16" as const, data: "", url: "" });
const block: Block = { name: "cross", rowMeans: "producing", rows: ["le", "chat"], columns: ["the", "cat"], layers: [numbers(2), numbers(1)], hasHeads: true, kinds: [] };
const drawing: AttentionDrawing = { kind: "attention", title: "", caption: "", notes: [], blocks: [block], form: "matrix", block: "", layer: -1, head: null, scale: "row" };
const map = { height: 2, width: 2, values: Float64Array.of(0.9, 0.1, 0.3, 0.7) };

test("what is shown first is the drawing's, then what was chosen, where it exists", () => {
  expect(layerAndHead({}, drawing, block)).toEqual({ layer: 1, head: null });
  expect(layerAndHead({ layer: 0, head: 5 }, drawing, block)).toEqual({ layer: 0, head: 1 });
  expect(layerAndHead({ layer: 9, head: 1 }, drawing, block)).toEqual({ layer: 1, head: null });
  expect(layerAndHead({}, { ...drawing, layer: 0, head: 1 }, block)).toEqual({ layer: 0, head: 1 });
});

test("a chosen word is met by what it looks at most", () => {
  expect(cellOf({}, block, map)).toEqual({ side: "row", row: 1, column: 0 }); // what is not on the diagonal tells more
  expect(cellOf({ rows: ["le", "chat"], row: 1, side: "row" }, block, map)).toEqual({ side: "row", row: 1, column: 1 });
  expect(cellOf({ columns: ["the", "cat"], column: 0, side: "column" }, block, map)).toEqual({ side: "column", row: 0, column: 0 });
});

test("where nothing is chosen, marks and equal words tell nothing", () => {
  const marks = { ...block, rows: ["<s>", "chat", "."], columns: ["le", "chat", "</s>"] };
  expect(cellOf({}, marks, { height: 3, width: 3, values: Float64Array.of(0.1, 0.8, 0.1, 0.2, 0.7, 0.1, 0.9, 0.1, 0) })).toEqual({ side: "row", row: 1, column: 0 });
});

test("a text is opened at a word with words before it, about as likely as not", () => {
  const word = (value: number, others = 1) => ({ text: "w", value, space: true, note: "", alternatives: Array(others).fill({ text: "v", p: 0.1 }) });
  expect(telling([word(0.5), word(0.04), word(0.54), word(0.97)])).toBe(2);
  expect(telling([word(0.5), word(0.5, 0)])).toBe(0);
  expect(telling([word(0.5, 0)])).toBeUndefined();
});

test("the words of another drawing are found on whichever side they are", () => {
  expect(cellOf({ rows: ["the", "cat"], row: 1, side: "row" }, block, map)).toEqual({ side: "column", row: 1, column: 1 });
  expect(cellOf({ rows: ["un", "petit", "chat"], row: 2, side: "row" }, block, map)).toEqual({ side: "row", row: 1, column: 1 }); // of another run
  expect(cellOf({ rows: ["an", "other"], row: 1, side: "row" }, block, map)).toEqual({ side: "row", row: 0, column: 0 });
});

test("weights are those of the chosen word's row or column", () => {
  expect([...weightsOf(map, { side: "row", row: 1, column: 0 })]).toEqual([0.3, 0.7]);
  expect([...weightsOf(map, { side: "column", row: 1, column: 0 })]).toEqual([0.9, 0.3]);
});

test("heads go round, with the mean between the last and the first", () => {
  expect([nextHead(null, 1, 3), nextHead(2, 1, 3), nextHead(null, -1, 3), nextHead(0, -1, 3)]).toEqual([0, null, 2, null]);
  expect(nextHead(null, 1, 1)).toBe(null);
});
