// Published tokenizers, in which ids 0 to 3 are ours (`foveate.data.published`).
import { PrecompiledNormalizer, Tokenizer } from "@huggingface/tokenizers";
import { normalizer, replacements } from "./sentencepiece";
import { bytesOfLetters } from "./subword";

interface Tree {
  model: { vocab: Record<string, number> | [piece: string, score: number][]; byte_fallback?: boolean };
  added_tokens?: { content: string; special: boolean }[]; decoder: unknown; pre_tokenizer: unknown;
}
export interface PublishedTree {
  tokenizer: Tree; pieces: string[]; published: number[]; charsmap?: string;
  /** The id before sources without a language; those before outputs; how many of the last ids are languages of outputs. */
  first?: number | null; opening?: number[]; openers?: number;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" }), utf8 = new TextEncoder();

/** Replacements as Hugging Face's library in Rust makes them: of a grapheme of up to five bytes, else of each character. */
function byGraphemes(charsmap: string): (text: string) => string {
  const replacement = replacements(charsmap), of = (letters: string[]) => replacement(letters, 0, true)?.[1];
  return (text) => Array.from(graphemes.segment(text), ({ segment }) => {
    const letters = [...segment];
    return (utf8.encode(segment).length < 6 ? of(letters) : undefined) ?? letters.map((letter) => of([letter]) ?? letter).join("");
  }).join("");
}

PrecompiledNormalizer.prototype.normalize = function (this: PrecompiledNormalizer & { exact?: (text: string) => string }, text) { // the library's own is NFKC, which is nearly the same
  return (this.exact ??= byGraphemes(String(this.charsmap)))(text);
};

export function published({ tokenizer: tree, pieces, published: theirs, openers = 0, charsmap }: PublishedTree): { surfaces: Uint8Array[]; encode(text: string): number[] } {
  const { model, added_tokens: added = [] } = tree, { vocab } = model, special = new Set(added.flatMap((each) => (each.special ? each.content : [])));
  const listed = Array.isArray(vocab) ? vocab.map(([piece, score]) => [special.has(piece) ? `${piece} ` : piece, score]) : vocab; // a space never reaches the model: no text becomes a special piece
  const tokenizer = new Tokenizer({ ...tree, model: { ...model, vocab: listed }, added_tokens: added.filter((each) => !each.special), post_processor: null }, {});
  const normal = charsmap === undefined ? String : normalizer(charsmap), ids = new Map(theirs.map((their, id) => [their, id] as const).reverse()); // of several the first
  const parts = JSON.stringify([tree.decoder, tree.pre_tokenizer]), [isByLetters, isByWords] = ["ByteLevel", "Whitespace"].map((part) => parts.includes(part)), letters = bytesOfLetters();
  const spelled = (piece: string) => {
    const byte = model.byte_fallback && /^<0x([0-9A-F]{2})>$/.exec(piece);
    if (byte) return Uint8Array.of(parseInt(byte[1]!, 16));
    return isByLetters && !added.some(({ content }) => content === piece) ? Uint8Array.from(piece, (letter) => letters.get(letter)!) : utf8.encode(piece.replaceAll("▁", " "));
  };
  const isSilent = (piece: string, id: number) => id < 4 || id >= pieces.length - openers || special.has(piece) || /^<row_\d+>$/.test(piece);
  return {
    surfaces: pieces.map((piece, id) => (isSilent(piece, id) ? new Uint8Array() : spelled(piece))),
    encode: (line) => {
      const text = normal(isByWords ? line.replaceAll("\x85", " ") : line); // white space in Rust, not in JavaScript
      return text ? tokenizer.encode(text, { add_special_tokens: false }).ids.map((their) => ids.get(their) ?? 0) : [];
    },
  };
}
