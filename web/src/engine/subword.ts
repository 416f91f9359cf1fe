// BPE and unigram pieces over bytes, by Hugging Face's tokenizers in JavaScript.
import { Tokenizer } from "@huggingface/tokenizers";

export interface HuggingFaceTree { model: { vocab: Record<string, number> | [string, number][] } }

/** The byte of each printable character that stands for one (Radford et al., 2019). */
export function bytesOfLetters(): Map<string, number> {
  const bytes = Array.from({ length: 256 }, (_, byte) => byte);
  const printable = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  const others = bytes.filter((byte) => !printable(byte));
  return new Map(bytes.map((byte) => [String.fromCodePoint(printable(byte) ? byte : 0x100 + others.indexOf(byte)), byte]));
}

/** As Rust does it: character by character, whatever stands beside one. */
const lower = (text: string) => Array.from(text, (character) => character.toLowerCase()).join("");

export function subword(tree: HuggingFaceTree, lowercase = false): { surfaces: Uint8Array[]; encode(text: string): number[] } {
  const tokenizer = new Tokenizer(tree, {}), letters = bytesOfLetters(), utf8 = new TextEncoder(), { vocab } = tree.model;
  const pieces = Array.isArray(vocab) ? vocab.map(([piece]) => piece) : Object.entries(vocab).sort((a, b) => a[1] - b[1]).map(([piece]) => piece);
  return {
    surfaces: pieces.map((piece, id) => (id < 4 ? utf8.encode(piece) : Uint8Array.from(piece, (letter) => letters.get(letter)!))),
    encode: (text) => (text ? tokenizer.encode(lowercase ? lower(text) : text, { add_special_tokens: false }).ids : []),
  };
}
