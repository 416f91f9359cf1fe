// Invitations of a page of translators: what can be tried, and what of an answer each of them takes.
import { BlockMaps } from "../core/maps";
import { largest, rowOf, type Matrix } from "../core/levels";
import type { AttentionDrawing } from "../core";
import type { Said } from "../studio/answering.svelte";
import type { SilencedHead } from "../studio/api";

export const CARDS = [
  ["silence", "Silence this head", "Set the weights of the sharpest head to 0, and compare."],
  ["force", "Force another word", "Put the runner-up in place of a word; the rest follows."],
  ["adjectives", "Which head reverses adjectives?", "Look for two cells that cross: “red house” → “maison rouge”."],
  ["wrong", "Make it wrong", "Reverse the word order, which training never showed."],
] as const;

/** Every head of the attention from target to source. */
function heads(map: AttentionDrawing): [SilencedHead & { head: number }, Matrix, readonly string[]][] {
  return map.blocks.filter(({ name }) => name.includes("cross") || map.blocks.length === 1).flatMap((block) => {
    const maps = new BlockMaps(block, () => undefined);
    return block.layers.flatMap((_, layer) => Array.from({ length: maps.heads(layer) }, (_, head) =>
      [{ block: block.name, layer, head }, maps.map(layer, head)!, block.rows] as [SilencedHead & { head: number }, Matrix, readonly string[]]));
  });
}
const best = <T>(list: readonly T[], score: (one: T) => number): T | undefined => list.length ? list[largest(list.map(score))] : undefined;

/** The head whose rows have the largest weights. */
export const sharpest = (map: AttentionDrawing): SilencedHead | undefined =>
  best(heads(map), ([, matrix]) => Array.from({ length: matrix.height }, (_, t) => Math.max(...rowOf(matrix, t))).reduce((a, b) => a + b, 0))?.[0];

/** The two rows of a map, one after the other, that cross most clearly: each with most weight on a neighbour of the other's. */
function crossing(matrix: Matrix): { row: number; weight: number } {
  let found = { row: 0, weight: 0 };
  for (let row = 0; row + 1 < matrix.height; row++) {
    const a = rowOf(matrix, row), b = rowOf(matrix, row + 1), at = largest(a);
    if (largest(b) + 1 === at && Math.min(a[at]!, b[at - 1]!) > found.weight) found = { row, weight: Math.min(a[at]!, b[at - 1]!) };
  }
  return found;
}
/** The head that crosses most clearly, and what it crosses; none below a quarter of the weight. */
export function reversing(map: AttentionDrawing): { head: SilencedHead; row: number; words: string } | undefined {
  const found = best(heads(map).map(([head, matrix, rows]) => ({ head, rows, ...crossing(matrix) })), ({ weight }) => weight);
  return found && found.weight >= 0.25 ? { head: found.head, row: found.row, words: `“${found.rows[found.row]}” and “${found.rows[found.row + 1]}”` } : undefined;
}

/** The word of an answer whose runner-up is most probable, and that one. */
export function runnerUp(said: readonly Said[]): [number, number] | undefined {
  const rivals = said.map(({ token }) => token?.special ? undefined : token?.alternatives.find(({ id }) => id !== token.id));
  const place = largest(rivals.map((rival) => rival?.p ?? -1));
  return rivals[place] && [place, rivals[place].id];
}

/** The words of a sentence from the last to the first. */
export const backwards = (text: string): string => text.replace(/[.?!]+$/, "").split(/\s+/).toReversed().join(" ");
