// From numbers to levels 0 … 1 to pixels. Pure functions; what is blank has level -1.
import { palette } from "./palette";

/** A matrix (height × width), row after row. */
export interface Matrix {
  readonly height: number;
  readonly width: number;
  readonly values: Float64Array;
}

export type Scale = "row" | "absolute";
export type Colours = Uint8Array; // 256 × red, green, blue

/** Colours whose reds, then greens, then blues are written as letters, for the difference from the one before. */
function summed(letters: string): Colours {
  const made = new Uint8Array(letters.length);
  for (let k = 0; k < 256; k++) for (let c = 0; c < 3; c++) made[3 * k + c] = (made[3 * k + c - 3] ?? 0) + letters.charCodeAt(256 * c + k) - 107;
  return made;
}
export const sequential = summed(palette.sequential), diverging = summed(palette.diverging);

/** A row of a matrix; no copy. */
export const rowOf = (map: Matrix, row: number): Float64Array =>
  map.values.subarray(row * map.width, (row + 1) * map.width);

export const columnOf = (map: Matrix, column: number): Float64Array =>
  Float64Array.from({ length: map.height }, (_, row) => map.values[row * map.width + column]!);

export function largest(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

/** The places of the largest weight and of those that equal it; none without weights. */
export function equals(weights: ArrayLike<number>): number[] {
  const top = weights[largest(weights)] ?? 0;
  return Array.from(weights, (_, i) => i).filter((i) => top > 0 && weights[i]! >= 0.999 * top);
}

/** The places of the largest values, the largest first, none below `least`. */
export function strongest(values: ArrayLike<number>, count: number, least = 0): number[] {
  return Array.from(values, (_, i) => i)
    .filter((i) => values[i]! >= least)
    .sort((a, b) => values[b]! - values[a]!)
    .slice(0, count);
}

/** Levels of weights: against the largest of the row, by the root; or as they are. 0 is masked. */
export function levelsOf(map: Matrix, scale: Scale): Float64Array {
  const { values } = map, levels = new Float64Array(values.length);
  for (let row = 0; row < map.height; row++) {
    const from = row * map.width, to = from + map.width;
    let top = 0;
    for (let i = from; i < to; i++) if (values[i]! > top) top = values[i]!;
    for (let i = from; i < to; i++) {
      const weight = values[i]!;
      levels[i] = !(weight > 0) ? -1 : scale === "row" ? Math.sqrt(weight / top) : Math.min(weight, 1);
    }
  }
  return levels;
}

/** Levels of any numbers between two ends; NaN is blank. */
export function levelsBetween(values: ArrayLike<number>, least: number, most: number): Float64Array {
  const levels = new Float64Array(values.length), span = most - least || 1;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    levels[i] = Number.isFinite(value) ? Math.min(1, Math.max(0, (value - least) / span)) : -1;
  }
  return levels;
}

/** Which colours numbers between these ends have, and the ends with 0 in the middle if it lies between. */
export function ends(least: number, most: number): { least: number; most: number; colours: Colours } {
  if (!(least < 0 && most > 0)) return { least, most, colours: sequential };
  const far = Math.max(most, -least);
  return { least: -far, most: far, colours: diverging };
}

/** One level for each tile × tile, the largest: a mean would wash thin diagonals away. */
export function pooled(levels: Float64Array, height: number, width: number, tile: number) {
  if (tile <= 1) return { levels, height, width };
  const down = Math.ceil(height / tile), across = Math.ceil(width / tile);
  const made = new Float64Array(down * across).fill(-1), tileOf = Uint32Array.from({ length: width }, (_, k) => k / tile);
  for (let row = 0; row < height; row++) {
    const to = Math.floor(row / tile) * across, from = row * width;
    for (let column = 0; column < width; column++) {
      const at = to + tileOf[column]!, level = levels[from + column]!;
      if (level > made[at]!) made[at] = level;
    }
  }
  return { levels: made, height: down, width: across };
}

/** `levelsOf` a map and `pooled`, in one pass over its numbers as they came: for the many small pictures. */
export function smallLevels(
  raw: Float64Array | Uint16Array | Float32Array, from: number,
  { height, width, tile, scale, unit }: { height: number; width: number; tile: number; scale: Scale; unit: number },
) {
  const down = Math.ceil(height / tile), across = Math.ceil(width / tile), levels = new Float64Array(down * across).fill(-1);
  const tileOf = Uint32Array.from({ length: width }, (_, k) => k / tile);
  for (let row = 0; row < height; row++) {
    const start = from + row * width, to = Math.floor(row / tile) * across;
    let top = 0;
    if (scale === "row") for (let i = start; i < start + width; i++) if (raw[i]! > top) top = raw[i]!;
    const by = scale === "row" ? 1 / (top || 1) : unit;
    for (let column = 0; column < width; column++) {
      const weight = raw[start + column]! * by, at = to + tileOf[column]!;
      if (weight > 0 && weight > levels[at]!) levels[at] = weight;
    }
  }
  for (let i = 0; i < levels.length; i++) if (levels[i]! > 0) levels[i] = scale === "row" ? Math.sqrt(levels[i]!) : Math.min(1, levels[i]!);
  return { levels, height: down, width: across };
}

/** Red, green, blue, alpha of each level; blank cells stay clear. */
export function pixels(levels: ArrayLike<number>, colours: Colours): Uint8ClampedArray<ArrayBuffer> {
  const made = new Uint8ClampedArray(4 * levels.length);
  for (let i = 0; i < levels.length; i++) {
    if (levels[i]! < 0) continue;
    const at = 3 * Math.round(255 * levels[i]!);
    made[4 * i] = colours[at]!;
    made[4 * i + 1] = colours[at + 1]!;
    made[4 * i + 2] = colours[at + 2]!;
    made[4 * i + 3] = 255;
  }
  return made;
}

export interface Box { x: number; y: number; width: number; height: number }

/** Put a small picture into a part of a large one, each cell as a field of its colour. */
export function enlarged(small: Uint32Array, height: number, width: number, whole: Uint32Array, across: number, box: Box): void {
  const columns = Uint32Array.from({ length: box.width }, (_, x) => (x * width) / box.width);
  for (let y = 0; y < box.height; y++) {
    const from = Math.floor((y * height) / box.height) * width, to = (box.y + y) * across + box.x;
    for (let x = 0; x < box.width; x++) whole[to + x] = small[from + columns[x]!]!;
  }
}

/** `rgb(…)` of a level. */
export function colourOf(level: number, colours: Colours): string {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, level)));
  return `rgb(${colours[at]}, ${colours[at + 1]}, ${colours[at + 2]})`;
}

/** Whether black is easier to read on this level's colour than white (WCAG contrast). */
export function isLight(level: number, colours: Colours): boolean {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, level)));
  const linear = (c: number) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * linear(colours[at]! / 255) + 0.7152 * linear(colours[at + 1]! / 255)
    + 0.0722 * linear(colours[at + 2]! / 255);
  return light > 0.179;
}

/** How much of the marker's yellow a word gets: with a gap where neither ink nor paper could be read on it. */
export const glow = (level: number): number => (level < 0.5 ? 0.7 * level : 0.5 + 0.5 * level);
