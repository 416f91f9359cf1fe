import { palette } from "../src/core/palette";
import { LINE, WORDS } from "../src/core/style";
import { expect, test } from "vitest";
import { colourOf, diverging, ends, enlarged, equals, glow, isLight, levelsBetween, levelsOf, pixels, pooled, sequential, smallLevels, strongest } from "../src/core/levels";

const matrix = (height: number, width: number, ...values: number[]) => ({ height, width, values: Float64Array.from(values) });

test("by row a level is the root of the share of the row's largest; 0 is blank", () => {
  expect([...levelsOf(matrix(2, 2, 0.4, 0.1, 0, 0.05), "row")]).toEqual([1, 0.5, -1, 1]);
  expect([...levelsOf(matrix(1, 3, 0.4, 0, 1), "absolute")]).toEqual([0.4, -1, 1]);
});

test("equal weights are all the strongest, and a silenced row has none", () => {
  expect(equals([0.25, 0.25, 0.25, 0.25])).toEqual([0, 1, 2, 3]);
  expect(equals([0.1, 0.7, 0.2])).toEqual([1]);
  expect(equals([0, 0, 0])).toEqual([]);
});

test("numbers lie between their ends, blanks are blank", () => {
  expect([...levelsBetween([-1, 0, 1, 5, NaN], -1, 1)]).toEqual([0, 0.5, 1, 1, -1]);
});

test("ends of both signs diverge around 0", () => {
  expect(ends(-1, 3)).toEqual({ least: -3, most: 3, colours: diverging });
  expect(ends(0, 3).colours).toBe(sequential);
});

test("a tile keeps its largest, at a ragged edge too", () => {
  const made = pooled(Float64Array.from({ length: 25 }, (_, i) => i / 25), 5, 5, 2);
  expect([made.height, made.width]).toEqual([3, 3]);
  expect([...made.levels].map((v) => Math.round(v * 25))).toEqual([6, 8, 9, 16, 18, 19, 21, 23, 24]);
  expect(pooled(Float64Array.of(-1, -1, -1, -1), 2, 2, 2).levels[0]).toBe(-1);
});

test("a small picture is the large one pooled", () => {
  const steps = Uint16Array.from({ length: 35 }, (_, i) => (i % 7 === 3 ? 0 : (i * 7919) % 65535)), unit = 1 / 65535;
  const whole = matrix(5, 7, ...Array.from(steps, (step) => step * unit));
  for (const scale of ["row", "absolute"] as const) for (const tile of [1, 2, 3]) {
    const wanted = pooled(levelsOf(whole, scale), 5, 7, tile), made = smallLevels(steps, 0, { height: 5, width: 7, tile, scale, unit });
    expect([made.height, made.width]).toEqual([wanted.height, wanted.width]);
    made.levels.forEach((level, i) => expect(level).toBeCloseTo(wanted.levels[i]!, 12));
  }
});

test("pixels are the colours of the table; a blank is clear", () => {
  const made = pixels([0, 1, -1], sequential);
  expect([...made.subarray(0, 4)]).toEqual([...sequential.subarray(0, 3), 255]);
  expect([...sequential.subarray(0, 6), ...sequential.subarray(765)]).toEqual([0, 34, 77, 0, 35, 79, 253, 231, 55]); // cividis
  expect([...made.subarray(4, 8)]).toEqual([...sequential.subarray(765, 768), 255]);
  expect(made[11]).toBe(0);
  expect(colourOf(2, sequential)).toBe(`rgb(${sequential.slice(765).join(", ")})`);
});

test("black is written on light colours, white on dark ones", () => {
  expect(isLight(0, sequential)).toBe(false);
  expect(isLight(1, sequential)).toBe(true);
  expect(isLight(0.5, diverging)).toBe(true);
});

test("words glow more the more they weigh, and never where no ink could be read", () => {
  const made = Array.from({ length: 101 }, (_, i) => glow(i / 100));
  expect(made).toEqual([...made].sort((a, b) => a - b));
  expect([made[0], made[100]]).toEqual([0, 1]);
  expect(made.some((alpha) => alpha > 0.36 && alpha < 0.74)).toBe(false);
});

test("a small picture fills its box and nothing else", () => {
  const whole = new Uint32Array(16);
  enlarged(Uint32Array.of(1, 2), 1, 2, whole, 4, { x: 0, y: 1, width: 4, height: 2 });
  expect([...whole]).toEqual([0, 0, 0, 0, 1, 1, 2, 2, 1, 1, 2, 2, 0, 0, 0, 0]);
});

test("the strongest come first, none below the least", () => {
  expect(strongest([0.1, 0.5, 0.02, 0.3], 3, 0.05)).toEqual([1, 3, 0]);
});

const channels = (hue: string) => [1, 3, 5].map((k) => parseInt(hue.slice(k, k + 2), 16) / 255);
const mixed = (hue: string, share: number, end: number) => channels(hue).map((c) => (c * share + end * (100 - share)) / 100);
const light = (all: number[]) => all.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, k) => sum + [0.2126, 0.7152, 0.0722][k]! * c, 0);
const contrast = (a: number[], b: number[]) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);

test.each(palette.lines.filter((hue) => hue !== "#000000"))("words of %s have a contrast of 4.5 (WCAG 2.2, 1.4.3) on both papers, its lines in the dark", (hue) => {
  expect(contrast(mixed(hue, WORDS[0], 0), channels("#ffffff"))).toBeGreaterThan(4.5);
  for (const [, share] of [WORDS, LINE]) expect(contrast(mixed(hue, share, 1), channels("#14161b"))).toBeGreaterThan(4.5);
});
