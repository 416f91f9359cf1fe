// Invitations of a page of translators: what can be tried, and what of an answer each of them takes.
import { BlockMaps } from "../core/maps";
import { largest, rowOf, type Matrix } from "../core/levels";
import type { AttentionDrawing } from "../core";
import type { Said } from "../studio/answering.svelte";
import type { SilencedHead } from "../studio/api";

export const CARDS = [
  ["silence", "Silence a head", "Set its weights to 0: who misses it?"],
  ["force", "Force another word", "Put in another; which words follow?"],
  ["adjectives", "Which head reverses adjectives?", "For example “honest cousin” → “cousin honnête”."],
  ["wrong", "Make it wrong", "Reverse the order of your words."],
] as const;

/** Every head, or those of the attention from target to source. */
function heads(map: AttentionDrawing, all = false): [SilencedHead & { head: number }, Matrix, readonly string[]][] {
  return map.blocks.filter(({ name }) => all || name.includes("cross") || map.blocks.length === 1).flatMap((block) => {
    const maps = new BlockMaps(block, () => undefined);
    return block.layers.flatMap((_, layer) => Array.from({ length: maps.heads(layer) }, (_, head) =>
      [{ block: block.name, layer, head }, maps.map(layer, head)!, block.rows] as [SilencedHead & { head: number }, Matrix, readonly string[]]));
  });
}
const best = <T>(list: readonly T[], score: (one: T) => number): T | undefined => list.length ? list[largest(list.map(score))] : undefined;

/** The heads of all blocks, first that whose rows have the largest weights. */
export const bySharpness = (map: AttentionDrawing): SilencedHead[] => {
  const sharp = ([, matrix]: ReturnType<typeof heads>[number]) => Array.from({ length: matrix.height }, (_, t) => Math.max(...rowOf(matrix, t))).reduce((a, b) => a + b, 0) / matrix.height;
  return heads(map, true).sort((a, b) => sharp(b) - sharp(a)).map(([head]) => head);
};

/** Whether two rows cross: the first has most weight on the word after that of the second. */
const crosses = ({ values, height, width }: Matrix, row: number) => row + 1 < height
  && largest(values.subarray(row * width, (row + 1) * width)) === largest(values.subarray((row + 1) * width, (row + 2) * width)) + 1;

/** Of two words, no short ones such as “ne”, that cross in the mean of all heads the head that crosses them most clearly; none where nothing crosses. */
export function reversing(map: AttentionDrawing): { head: SilencedHead; row: number; column: number; rows: readonly string[]; words: string; share: string } | undefined {
  const all = heads(map), words = all[0]?.[2] ?? [], isLong = (row: number) => Math.min(words[row]?.length ?? 0, words[row + 1]?.length ?? 0) > 3, [, { height, width }] = all[0] ?? [, { height: 0, width: 0 }];
  const values = new Float64Array(height * width);
  for (const [, matrix] of all) matrix.values.forEach((value, i) => { values[i]! += value / all.length; });
  const weight = (matrix: Matrix, row: number) => (isLong(row) && crosses(matrix, row) ? Math.min(Math.max(...rowOf(matrix, row)), Math.max(...rowOf(matrix, row + 1))) : 0);
  const mean = { values, height, width }, row = best(Array.from({ length: height }, (_, t) => t), (t) => weight(mean, t));
  if (row === undefined || !weight(mean, row)) return undefined;
  const found = best(all, ([, matrix]) => weight(matrix, row))!;
  return { head: found[0], row, column: largest(rowOf(found[1], row)), rows: found[2], words: `“${found[2][row]}” and “${found[2][row + 1]}”`, share: `${all.filter(([, matrix]) => crosses(matrix, row)).length} of ${all.length}` };
}

const begins = (text: string) => /^\s*\p{Lu}/u.test(text);
/** Other words in place of each of an answer, two for each: the most probable first. */
export const rivals = (said: readonly Said[]) => said.flatMap(({ token }, place) => (token?.alternatives ?? [])
  .filter(({ id, text }) => id !== token!.id && /^\s*\p{L}/u.test(text) && begins(text) === begins(token!.text)).slice(0, 2).map((rival) => [place, rival] as const)).sort(([, a], [, b]) => b.p - a.p);

export const CROSSING = "Our honest cousin returned to this old library."; // notre cousin honnête

/** The words of a sentence from the last to the first; its end mark stays at the end. */
export const backwards = (text: string): string => {
  const [, words = "", end = ""] = /^(.*?)([.?!]*)\s*$/su.exec(text)!;
  return words.split(/\s+/).toReversed().join(" ") + end;
};
