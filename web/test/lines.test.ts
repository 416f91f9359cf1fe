import { expect, test } from "vitest";
import { along, endsOf } from "../src/core/axes";
import { brief, decimalsOf, halves } from "../src/core/bars";
import { apart, besidePoints, looksOf, nearest, pathOf, pointed } from "../src/core/lines";

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

test("names beside lines stand near their ends, none on another", () => {
  const heights = [17, 17, 32], middles = apart([100, 102, 103], heights, 0, 200);
  const order = [0, 1, 2].sort((a, b) => middles[a]! - middles[b]!);
  expect(order).toEqual([0, 1, 2]);
  for (const [k, next] of [[0, 1], [1, 2]] as const) expect(middles[next]! - middles[k]!).toBeGreaterThanOrEqual((heights[k]! + heights[next]!) / 2 - 1e-9);
  expect(apart([20, 150], [17, 17], 0, 200)).toEqual([20, 150]);
  const low = apart([199, 199], [17, 17], 0, 200);
  expect(Math.max(...low) + 8.5).toBeLessThanOrEqual(200);
});

test("a name of a point is nearer to its point than to another where there is room", () => {
  const points = [[151, 238], [193, 224], [201, 234], [360, 211], [413, 218], [464, 230], [524, 201]] as const, widths = points.map(() => 36);
  besidePoints(points, widths, { left: 70, right: 610, top: 26, bottom: 250 }).forEach(([x, y], k) => {
    const far = points.map(([px, py]) => Math.hypot(Math.max(x - px, 0, px - x - widths[k]!), Math.max(y - 8 - py, 0, py - y - 8)));
    expect(far.indexOf(Math.min(...far))).toBe(k);
  });
});

test("names of points stand in the frame, none on another", () => {
  const points = [[33, 191], [202, 202], [258, 193], [315, 164], [371, 74], [483, 53], [596, 48]] as const; // of `foveate demo growth`
  const widths = [110, 150, 145, 105, 115, 115, 150], frame = { left: 33, right: 596, top: 26, bottom: 220 };
  const boxes = besidePoints(points, widths, frame).map(([x, y], k) => [x, y - 6, x + widths[k]!, y + 6] as const);
  for (const [left, top, right, bottom] of boxes) {
    expect([left >= 33, top >= 26, right <= 596, bottom <= 226]).toEqual([true, true, true, true]);
    expect(boxes.filter(([l, t, r, b]) => l < right && left < r && t < bottom && top < b).length).toBe(1);
  }
});

test("numbers over bars have as many decimals, none where all are whole", () => {
  expect([decimalsOf([114.3, 0.06]), decimalsOf([0.29, 0.004]), decimalsOf([3, 5])]).toEqual([[0, 0], [3, 2], [0]]);
  expect([brief(63.08, 1), brief(-2.04, 0), brief(21_000, 1)]).toEqual(["63.1", "−2", "21k"]);
});

test("a long name is broken in the middle", () => {
  expect([halves("cross-attention"), halves("Will Lucas be curious"), halves("all")]).toEqual([["cross-", "attention"], ["Will Lucas", "be curious"], ["all", ""]]);
});
