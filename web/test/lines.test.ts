import { expect, test } from "vitest";
import { along, endsOf } from "../src/core/axes";
import { brief } from "../src/core/bars";
import { besidePoints, looksOf, nearest, pathOf, pointed } from "../src/core/lines";

const same = (value: number) => value;

test("a blank breaks a line", () => {
  expect(pathOf([0, 1, 2, 3], [1, null, 3, 4], same, same, 100)).toBe("M0.0 1.0M2.0 3.0L3.0 4.0");
});

test("of many points each pixel keeps its least and most, in their order", () => {
  const xs = Array.from({ length: 10_000 }, (_, k) => k / 100), ys = xs.map((_, k) => (k === 4321 ? 99 : k === 4377 ? -99 : 0));
  const path = pathOf(xs, ys, same, same, 100);
  expect(path).toContain("43.2 99.0L43.8 -99.0");
  expect(path.split(/[ML]/).length).toBeLessThan(420);
});

test("a value that no line reaches has a point, of many others none has", () => {
  const many = Array.from({ length: 100 }, (_, k) => (k === 49 || k === 51 ? null : k));
  expect(many.flatMap((_, k) => (pointed(many, k) ? [k] : []))).toEqual([50]);
  expect([1, null, 3, 4].map((_, k) => pointed([1, null, 3, 4], k))).toEqual([true, false, true, true]);
});

test("a run has one colour, and dashes tell its curves apart", () => {
  const curve = (hue: number | null, faint = false) => ({ name: "", y: [], low: [], high: [], hue, faint });
  expect(looksOf([curve(null), curve(null)])).toEqual([[0, 0], [1, 1]]);
  expect(looksOf([curve(0), curve(0), curve(1), curve(1)])).toEqual([[0, 0], [0, 1], [1, 0], [1, 1]]);
  expect(looksOf([curve(0, true), curve(0), curve(1, true), curve(1)])).toEqual([[0, 0], [0, 0], [1, 0], [1, 1]]);
});

test("the nearest place is found", () => {
  expect(nearest([0, 10, 100], 40)).toBe(1);
});

test("axes hold what they are given, a log axis only what is above 0", () => {
  const axis = endsOf([1, null, NaN, 3], false);
  expect(axis.least).toBeLessThan(1);
  expect(axis.most).toBeGreaterThan(3);
  const log = endsOf([-1, 0, 0.1, 10], true, 0);
  expect([log.least, log.most]).toEqual([0.1, 10]);
  expect(along(log, 0, 100)(1)).toBeCloseTo(50);
  expect(endsOf([], false, 0)).toMatchObject({ least: 0, most: 1 });
  expect(endsOf([5], false).least).toBeLessThan(5);
});

test("names of points stand in the frame, none on another", () => {
  const points = [[20, 180], [90, 190], [120, 180], [150, 150], [180, 40], [380, 20]] as const, frame = { left: 20, right: 390, top: 10, bottom: 200 };
  const boxes = besidePoints(points, points.map(() => 90), frame).map(([x, y]) => [x, y - 6, x + 90, y + 6] as const);
  for (const [left, top, right, bottom] of boxes) {
    expect([left >= 20, top >= 10, right <= 390, bottom <= 206]).toEqual([true, true, true, true]);
    expect(boxes.filter(([l, t, r, b]) => l < right && left < r && t < bottom && top < b).length).toBe(1);
  }
});

test("a number over a bar has few digits, none of those before the point less", () => {
  expect([114.3, 63.08, 0.004357, -2].map((value) => brief(value, 2))).toEqual(["114", "63", "0.0044", "−2"]);
});
