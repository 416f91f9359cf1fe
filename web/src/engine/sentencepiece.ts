// A published SentencePiece model, as `foveate.data.sentencepiece` reads it.
import { bytesOf } from "../core/numbers";

export interface SentencePieceTree {
  pieces: string[]; model: [text: string, score: number, type: number][]; ids: number[]; charsmap: string;
}

const NORMAL = 1, SPACE = "▁", PENALTY = 10; // an unknown character costs so much more than any piece
const utf8 = new TextEncoder();

/** What a normalizer makes of the letters from one on: where they end, and the text in their place; nothing where none is replaced. */
type Replacement = (letters: readonly string[], at: number, isShortest?: boolean) => readonly [end: number, text: string] | undefined;

/** The replacements of a normalizer, the longest that matches or the shortest (a trie, as `foveate.data.sentencepiece.Charsmap`). */
export function replacements(charsmap: string): Replacement {
  const blob = bytesOf(charsmap), size = new Uint32Array(blob.buffer, 0, 1)[0]!, units = new Uint32Array(blob.buffer, 4, size / 4);
  const below = (node: number) => node ^ ((units[node]! >>> 10) << ((units[node]! & 0x200) >>> 6));
  return (letters, at, isShortest = false) => {
    let node = below(0), longest: readonly [number, string] | undefined;
    while (at < letters.length) {
      let last = 0;
      for (const byte of utf8.encode(letters[at++])) {
        last = node ^ byte;
        if ((units[last]! & 0x800000ff) !== byte) return longest;
        node = below(last);
      }
      if (!(units[last]! & 0x100)) continue;
      const begin = 4 + size + (units[node]! & 0x7fffffff);
      longest = [at, new TextDecoder().decode(blob.subarray(begin, blob.indexOf(0, begin)))];
      if (isShortest) break;
    }
    return longest;
  };
}

/** The text after a normalizer's replacements, at each character the longest that matches, with a space before the first word. */
export function normalizer(charsmap: string): (text: string) => string {
  const replacement = replacements(charsmap);
  return (text) => {
    const letters = [...text];
    let out = "";
    for (let at = 0, next = 1; at < letters.length; at = next++) {
      let replaced = letters[at]!;
      [next, replaced] = replacement(letters, at) ?? [next, replaced];
      out += replaced;
    }
    return (out = out.replace(/^ +|[ ▁]+$|(?<= ) +/g, "")) && ` ${out}`;
  };
}

export function sentencePiece({ pieces, model, ids, charsmap }: SentencePieceTree): { surfaces: Uint8Array[]; encode(text: string): number[] } {
  const normal = normalizer(charsmap), known = new Map<string, readonly [score: number, id: number]>();
  let longest = 0, least = 0;
  model.forEach(([text, score, type], n) => {
    if (type === NORMAL) known.set(text, [score, ids[n]!]);
    if (text.length > longest) longest = text.length;
    if (score < least) least = score;
  });
  return {
    surfaces: pieces.map((piece, id) => utf8.encode(id ? piece.replaceAll(SPACE, " ") : "")),
    /** The split of the highest sum of scores; unknown characters in a row are one piece. */
    encode(line) {
      const letters = [...normal(line).replaceAll(" ", SPACE)];
      const best = [[0, 0, 0]]; // up to each letter: score, id of the last piece, where that begins
      letters.forEach((letter, from) => {
        const [before] = best[from]!;
        for (let to = from + 1, text = letter; to <= letters.length && text.length <= longest; text += letters[to++]) {
          const piece = known.get(text) ?? (to === from + 1 && [least - PENALTY, -1]);
          if (piece && !(before! + piece[0]! <= best[to]?.[0]!)) best[to] = [before! + piece[0]!, piece[1]!, from];
        }
      });
      const found: number[] = [];
      for (let at = letters.length; at; at = best[at]![2]!) if (best[at]![1]! >= 0 || found[0] !== -1) found.unshift(best[at]![1]!);
      return found.map((id) => id < 0 ? 0 : id);
    },
  };
}
