// A published SentencePiece model, as `foveate.data.sentencepiece` reads it.
import { bytesOf } from "../core/numbers";

export interface SentencePieceTree {
  pieces: string[]; model: [text: string, score: number, type: number][]; ids: number[]; charsmap: string;
}

const NORMAL = 1, SPACE = "▁", PENALTY = 10; // an unknown character costs so much more than any piece
const utf8 = new TextEncoder();

/** The text after a normalizer's replacements: at each character the longest that matches. */
function normalizer(charsmap: string): (text: string) => string {
  const blob = bytesOf(charsmap), [size = 0] = new Uint32Array(blob.buffer, 0, blob.length && 1), units = new Uint32Array(blob.buffer, 4 * +!!size, size / 4);
  const below = (node: number) => node ^ ((units[node]! >>> 10) << ((units[node]! & 0x200) >>> 6));
  return (text) => {
    const letters = Array.from(text), out: string[] = [];
    for (let at = 0; at < letters.length;) {
      let node = size ? below(0) : 0, taken = 0, replaced = letters[at]!;
      search: for (let end = at; size && end < letters.length; end++) {
        let last = 0;
        for (const byte of utf8.encode(letters[end]!)) {
          last = node ^ byte;
          if ((units[last]! & 0x800000ff) !== byte) break search;
          node = below(last);
        }
        if (!(units[last]! & 0x100)) continue;
        const begin = 4 + size + (units[node]! & 0x7fffffff);
        [taken, replaced] = [end + 1 - at, new TextDecoder().decode(blob.subarray(begin, blob.indexOf(0, begin)))];
      }
      out.push(replaced);
      at += taken || 1;
    }
    return out.join("").replace(/^ +|[ ▁]+$/g, "").replace(/ {2,}/g, " ");
  };
}

export function sentencePiece({ pieces, model, ids, charsmap }: SentencePieceTree): { surfaces: Uint8Array[]; encode(text: string): number[] } {
  const normal = normalizer(charsmap), known = new Map<string, number>();
  let longest = 0, least = 0;
  model.forEach(([text, score, type], n) => {
    if (type === NORMAL) known.set(text, n);
    [longest, least] = [Math.max(longest, text.length), Math.min(least, score - PENALTY)];
  });
  return {
    surfaces: pieces.map((piece, id) => utf8.encode(id ? piece.replaceAll(SPACE, " ") : "")),
    /** The split of the highest sum of scores; unknown characters in a row are one piece. */
    encode(line) {
      const text = normal(line), letters = text ? Array.from((" " + text).replaceAll(" ", SPACE)) : [];
      const best = [{ score: 0, piece: -1, from: 0 }];
      const reach = (from: number, to: number, piece: number, score = best[from]!.score + (model[piece]?.[1] ?? least)) => {
        if (!(score <= best[to]?.score!)) best[to] = { score, piece, from };
      };
      letters.forEach((letter, from) => {
        for (let to = from, piece = ""; to < letters.length && piece.length < longest; to++) {
          const id = known.get(piece += letters[to]);
          if (id !== undefined) reach(from, to + 1, id);
        }
        if (!known.has(letter)) reach(from, from + 1, -1);
      });
      const found: number[] = [];
      for (let at = letters.length; at; at = best[at]!.from) if (best[at]!.piece >= 0 || found[0] !== -1) found.unshift(best[at]!.piece);
      return found.map((piece) => piece < 0 ? 0 : ids[piece]!);
    },
  };
}
