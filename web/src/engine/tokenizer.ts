// Tokenizers as Python has them (`foveate.data.tokenizer`): ids of texts, and texts of ids.
import type { TokenizedText } from "./axes";
import { sentencePiece, type SentencePieceTree } from "./sentencepiece";
import { subword, type HuggingFaceTree } from "./subword";

export const UNK = 0, PAD = 1, BOS = 2, EOS = 3, SPECIALS = ["<unk>", "<pad>", "<s>", "</s>"];
export const SILENT = new Set([PAD, BOS, EOS]);
export interface TokenizerTree {
  config: { kind: string; lowercase?: boolean; symbols?: string | null };
  vocabulary: unknown;
  tags?: string[];
}

/** What a kind of tokenizer defines. */
interface Kind {
  surfaces: Uint8Array[]; // what each id adds to a text, in UTF-8
  encode(text: string): number[];
  /** Where the text of each id stands; where absent, as in the text of the ids. */
  spans?(text: string): Span[];
  units: "tokens" | "words"; // what an axis of attention shows
  /** What stands before an id in a text. */
  between?(before: string | undefined, piece: string): string;
  trimsFirst?: boolean; // the first blank of a text is the tokenizer's own
}

export type Span = readonly [from: number, to: number];
const utf8 = new TextEncoder(), WHITE = "\\s\\x1c-\\x1f\\x85", MARK = "\u0301";
const text = (bytes: Uint8Array) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
// `split_words`: \w, \d and \s of Python's re
const LETTER = "[\\p{L}\\p{N}_]", SOLID = `[^${WHITE}]|\\ufeff`;
const CLITIC = `(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=${LETTER})`;
const INSIDE = `(?<=\\p{Nd})[.,:](?=\\p{Nd})|(?<=[\\p{L}\\p{N}_${MARK}])['’‐‑-](?=${LETTER})`;
const WORD = new RegExp(`${CLITIC}|${LETTER}(?:[\\p{L}\\p{N}_${MARK}]|${INSIDE})*|(?:${SOLID})${MARK}*`, "giu");
const SYMBOL = new RegExp(`(?:${SOLID})+`, "gu");

const spansOf = (line: string, unit: RegExp) => Array.from(line.matchAll(unit), ({ 0: found, index }): Span => [index, index + found.length]);

/** Where the words of a text stand, punctuation and elided articles apart. */
export function wordSpans(line: string): Span[] {
  return spansOf(line.replace(/[\p{Mn}\p{Mc}\p{Me}\p{Cf}]/gu, (mark) => MARK.repeat(mark.length)), WORD);
}

const cut = (line: string, spans: readonly Span[]) => spans.map((span) => line.slice(...span));
export const splitWords = (line: string) => cut(line, wordSpans(line));

function listed(spans: (line: string) => Span[], units: Kind["units"], pieces: string[], form = (unit: string) => unit): Kind {
  const ids = new Map(pieces.map((piece, n) => [piece, n + SPECIALS.length]));
  return {
    surfaces: [...SPECIALS, ...pieces].map((piece) => utf8.encode(piece)),
    encode: (line) => cut(line, spans(line)).map((unit) => ids.get(form(unit)) ?? UNK),
    spans, units,
  };
}

const KINDS: Record<string, (tree: TokenizerTree) => Kind> = {
  byte: () => ({
    surfaces: [...SPECIALS.map((piece) => utf8.encode(piece)), ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte))],
    encode: (line) => Array.from(utf8.encode(line), (byte) => byte + SPECIALS.length),
    units: "tokens",
  }),
  character: ({ config, vocabulary }) => {
    const unit = new RegExp(config.symbols ? `(?:${config.symbols})|.` : ".", "gsu");
    return listed((line) => spansOf(line, unit), "tokens", vocabulary as string[]);
  },
  word: ({ config, vocabulary }) => ({
    ...listed(wordSpans, "words", vocabulary as string[], config.lowercase ? (unit) => unit.toLowerCase() : undefined),
    between: (before, piece) => (before && piece && !/^[.,;:!?…%)\]}»”]/.test(piece) && !/[([{«“'’]$/.test(before) ? " " : ""),
  }),
  symbol: ({ vocabulary }) => ({
    ...listed((line) => spansOf(line, SYMBOL), "tokens", vocabulary as string[]),
    between: (before, piece) => (before !== undefined && piece ? " " : ""),
  }),
  bpe: (tree) => ({ ...subword(tree.vocabulary as HuggingFaceTree, tree.config.lowercase), trimsFirst: true, units: "words" }),
  sentencepiece: ({ vocabulary }) => ({ ...sentencePiece(vocabulary as SentencePieceTree), trimsFirst: true, units: "words" }),
  unigram: (tree) => ({ ...subword(tree.vocabulary as HuggingFaceTree, tree.config.lowercase), trimsFirst: true, units: "words" }),
};

export class Tokenizer {
  readonly #kind: Kind;
  readonly #tags: Map<string, number>;
  readonly #surfaces: Uint8Array[];

  constructor(tree: TokenizerTree) {
    const kind = KINDS[tree.config.kind];
    if (!kind) throw new Error(`this page does not support the tokenizer ${tree.config.kind}`);
    this.#kind = kind(tree);
    const tags = tree.tags ?? [];
    this.#tags = new Map(tags.map((tag, n) => [tag, this.#kind.surfaces.length + n]));
    this.#surfaces = [...this.#kind.surfaces, ...tags.map((tag) => utf8.encode(tag))];
  }

  /** The languages that a text may be translated into, where it says so in a tag. */
  get languages(): string[] {
    return [...this.#tags.keys()].map((tag) => tag.slice(2, -1));
  }

  /** What each id adds to a text behind others; start, end and padding nothing. */
  get surfaces(): Uint8Array[] {
    return this.#surfaces.map((surface, id) => (SILENT.has(id) ? new Uint8Array() : surface));
  }

  encode(line: string): number[] {
    if (!line.isWellFormed()) throw new Error("the text contains a lone surrogate (half a character)");
    const tag = [...this.#tags.keys()].find((each) => line.startsWith(each));
    if (!tag) return this.#kind.encode(line);
    return [this.#tags.get(tag)!, ...this.#kind.encode(line.slice(tag.length).replace(/^ /, ""))];
  }

  /** What each id adds to the text of some; invalid UTF-8 becomes U+FFFD. */
  #added(ids: readonly number[]): Uint8Array[] {
    let before: string | undefined;
    const { between, trimsFirst } = this.#kind, first = ids.findIndex((id) => !SILENT.has(id));
    return ids.map((id, n) => {
      const own = SILENT.has(id) ? new Uint8Array() : this.#surfaces[id]!;
      if (trimsFirst && n === first && own[0] === 32) return own.subarray(1);
      if (!between) return own;
      const piece = text(own), whole = between(before, piece) + piece;
      before = piece || before;
      return utf8.encode(whole);
    });
  }

  decode(ids: readonly number[]): string {
    return text(Uint8Array.from(this.#added(ids).flatMap((bytes) => [...bytes])));
  }

  /** The text that each id adds to those before it; of a part of a character none. */
  texts(ids: readonly number[]): string[] {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return this.#added(ids).map((bytes) => decoder.decode(bytes, { stream: true }));
  }

  /** The same of lines. */
  textsOfLines(ids: readonly number[]): string[] {
    const end = ids.lastIndexOf(EOS);
    return end < 0 ? this.texts(ids) : [...this.textsOfLines(ids.slice(0, end)), "\n", ...this.texts(ids.slice(end + 1))];
  }

  /** The ids of a text of any number of lines, an end of line between each two. */
  encodeLines(lines: string): number[] {
    return lines.split("\n").flatMap((line) => [EOS, ...this.encode(line)]).slice(1);
  }

  decodeLines(ids: readonly number[]): string {
    const lines: number[][] = [[]];
    for (const id of ids) id === EOS ? lines.push([]) : lines.at(-1)!.push(id);
    return lines.map((line) => this.decode(line)).join("\n");
  }

  /** The text of lines that some ids add behind others. */
  added(before: readonly number[], ids: readonly number[]): string {
    return this.decodeLines([...before, ...ids]).slice(this.decodeLines(before).length);
  }

  /** A text that a model reads: the first of its ids, or all of them. */
  read(line: string, ids: readonly number[] = this.encode(line)): TokenizedText {
    const tag = [...this.#tags.keys()].find((each) => line.startsWith(each)) ?? "", behind = line.slice(tag.length);
    const rest = tag ? behind.replace(/^ /, "") : line, moved = line.length - rest.length, { spans } = this.#kind;
    const own = tag ? ids.slice(1) : ids, written = spans ? rest : this.decode(own), isSame = spans !== undefined || written.length === rest.length; // letters may have become small ones
    const places = spans ? spans(rest).slice(0, own.length) : this.#spans(own);
    const all: Span[] = tag ? [[0, tag.length], ...places.map(([from, to]): Span => [from + moved, to + moved])] : places;
    return this.#tokenized(isSame ? line : line.slice(0, moved) + written, ids, all);
  }

  /** A text that a model produces. */
  written(ids: readonly number[]): TokenizedText {
    return this.#tokenized(this.decode(ids), ids, this.#spans(ids));
  }

  /** Of each id its characters in the text of all; one that holds a part of a character has the whole. */
  #spans(ids: readonly number[]): Span[] {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true }), bytes: number[] = [];
    let done = 0;
    return this.#added(ids).map((own): Span => {
      const start = done;
      bytes.push(...own);
      done += decoder.decode(own, { stream: true }).length;
      const isBegun = own.length > 0 && own.at(-1)! > 127 && text(Uint8Array.from(bytes)).length > done;
      return [start, done + (isBegun ? 1 : 0)];
    });
  }

  #tokenized(line: string, ids: readonly number[], spans: readonly Span[]): TokenizedText {
    let end = 0;
    const labels = ids.map((id, n) => {
      const [from, to] = spans[n]!, own = SILENT.has(id) ? "" : line.slice(Math.max(from, end), to);
      end = Math.max(end, to);
      return own ? this.#named(own) : this.label(id);
    });
    const placed = ids.map((id, n): Span | null => (SILENT.has(id) ? null : spans[n]![1] ? spans[n]! : [0, 1]));
    return { text: line, spans: placed, labels, units: this.#kind.units };
  }

  #named(own: string): string {
    return this.#kind.trimsFirst ? own.replaceAll(" ", "▁") : own.replace(/^ +| +$/g, "") || "␣".repeat(own.length);
  }

  /** A token by itself: its text with ▁ for a blank, `</s>` of a special one, `<e6>` of a lone byte. */
  label(id: number): string {
    if (id < SPECIALS.length) return SPECIALS[id]!;
    const surface = this.#surfaces[id]!, own = text(surface);
    if (own.includes("\ufffd")) return [...surface].map((byte) => `<${byte.toString(16).padStart(2, "0")}>`).join("");
    return this.#named(own);
  }
}
