import { expect, test } from "vitest";
import { Selection } from "../src/core/selection";

const source = ["the", "cat"], target = ["le", "chat", "noir"];

test("who listens hears what changed, once, and nothing after leaving", () => {
  const selection = new Selection({ layer: 1 }), heard: unknown[] = [];
  const leave = selection.on((_, changed) => heard.push(changed));
  selection.set({ layer: 1 });
  selection.set({ layer: 2, head: null });
  leave();
  selection.set({ layer: 3 });
  expect(heard).toEqual([{ layer: 2, head: null }]);
  expect(selection.now.layer).toBe(3);
});

test("a word is found on the side whose words it is of", () => {
  const selection = new Selection({ rows: target, columns: source, row: 2, column: 1, side: "row" });
  expect(selection.placeOf(target)).toBe(2);
  expect(selection.placeOf(source)).toBe(1);
  expect(selection.placeOf(["other"])).toBeUndefined();
  expect(selection.placeOf(["noir", "un", "chat", "noir"])).toBe(3); // of another run: the same word, the nearest
  const self = new Selection({ rows: source, columns: source, row: 0, column: 1, side: "column" });
  expect(self.placeOf(source)).toBe(1);
});

test("to point at a word chooses the row or column that it is elsewhere", () => {
  const selection = new Selection({ rows: target, columns: source, row: 2, column: 1, side: "row" });
  selection.point(source, 0);
  expect(selection.now).toMatchObject({ row: 2, column: 0, side: "column" });
  selection.point(target, 1);
  expect(selection.now).toMatchObject({ row: 1, side: "row" });
  selection.point(["new", "words"], 1);
  expect(selection.now).toMatchObject({ rows: ["new", "words"], row: 1, column: undefined });
});
