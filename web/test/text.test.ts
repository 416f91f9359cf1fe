import { expect, test } from "vitest";
import { clipped, figure, logTicks, marked, sameWords, tick, ticks, unbroken } from "../src/core/text";

test("figures have about four digits that count", () => {
  expect([0, 1234567, 0.123456, -2.5, 1e-6, 12345.67, NaN, null, Infinity].map(figure)).toEqual(
    ["0", "1,234,567", "0.1235", "−2.5", "1.00 e−6", "12,345.7", "–", "–", "∞"]);
});

test("marks of one axis are of one kind", () => {
  expect(marked([0, 5000, 10_000, 20_000])).toEqual(["0", "5k", "10k", "20k"]);
  expect(marked([1e8, 1e9, 1e10])).toEqual(["10⁸", "10⁹", "10¹⁰"]);
  expect(marked([0, 2.5e8, 1e9])).toEqual(["0", "0.25·10⁹", "1·10⁹"]);
  expect(marked([1, 10, 1000])).toEqual(["1", "10", "1000"]);
  expect(marked([-0.5, 0, 0.5])).toEqual(["−0.5", "0", "0.5"]);
  for (const most of [3, 70, 900, 12_000, 5e6, 7e9]) {
    const units = new Set(marked(ticks(0, most)).filter((text) => text !== "0").map((text) => text.replace(/^[\d.]+/, "")));
    expect(units.size).toBe(1);
  }
});

test("marks of an axis are round and within it", () => {
  expect(ticks(0, 1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(ticks(3, 97, 4)).toEqual([25, 50, 75]);
  expect(ticks(2, 2)).toEqual([2]);
  expect(logTicks(0.5, 20)).toEqual([0.5, 1, 2, 5, 10, 20]);
  expect(logTicks(1e-6, 1e6).length).toBeLessThan(9);
});

test("figures of an axis are short", () => {
  expect([0, 0.001, 12000, 1.5e6, -3, 1e-7, 2.5e10].map(tick)).toEqual(["0", "0.001", "12k", "1.5M", "−3", "10⁻⁷", "2.5·10¹⁰"]);
});

test("no letter is cut in half", () => {
  expect(clipped("a😀😀😀", 3)).toBe("a😀…");
  expect(clipped("abc", 3)).toBe("abc");
});

test("words are the same where one list only has an end sign more", () => {
  expect(sameWords(["a", "b"], ["a", "b", "</s>"])).toBe(true);
  expect(sameWords(["a", "b"], ["a", "c"])).toBe(false);
  expect(sameWords(["a"], ["a", "b", "c", "d"])).toBe(false);
  expect(sameWords([], ["a"])).toBe(false);
});

test("an equation breaks neither inside a short bracket nor at a hyphen, and has no hole after a dot", () => {
  expect(unbroken("over one word (layer norm); self-attention")).toBe("over one word (layer\u00a0norm); self\u2060-\u2060attention");
  expect(unbroken("q · k_i / √d_k").split(/ {3,}/)).toEqual(["q · k_i / √d_k"]);
  expect(unbroken(`(${"a ".repeat(20)})`)).not.toContain("\u00a0");
});
