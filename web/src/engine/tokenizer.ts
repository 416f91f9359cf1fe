// Tokenizers as Python has them (`foveate.data.tokenizer`): ids of texts, and texts of ids.
import type { TokenizedText } from "./axes";
import { published, type PublishedTree } from "./published";
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
  names?: string[]; // of all ids, tags among them
  /** Of published translators: the id before sources without a language, ids before outputs, languages among the ids of outputs. */
  first?: number | null; opening?: number[]; openers?: number;
}

export type Span = readonly [from: number, to: number];
const utf8 = new TextEncoder(), WHITE = "\\s\\x1c-\\x1f\\x85", MARK = "\u0301";
const utf8Reader = () => new TextDecoder("utf-8", { ignoreBOM: true }), text = (bytes: Uint8Array) => utf8Reader().decode(bytes);
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

function ofOthers({ vocabulary }: TokenizerTree): Kind {
  const tree = vocabulary as PublishedTree, { pieces: names, first, opening, openers } = tree;
  return { ...published(tree), trimsFirst: true, units: "words", names, first, opening, openers };
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
  published: ofOthers,
  sentencepiece_bpe: ofOthers,
  unigram: (tree) => ({ ...subword(tree.vocabulary as HuggingFaceTree, tree.config.lowercase), trimsFirst: true, units: "words" }),
};

export class Tokenizer {
  readonly #kind: Kind;
  readonly #tags: Map<string, number>;
  /** What each id adds to a text behind others; start, end, padding and languages nothing. */
  readonly surfaces: readonly Uint8Array[];

  constructor(tree: TokenizerTree) {
    const kind = KINDS[tree.config.kind];
    if (!kind) throw new Error(`this page does not support the tokenizer ${tree.config.kind}`);
    this.#kind = kind(tree);
    const tags = tree.tags ?? [], { surfaces, names } = this.#kind;
    this.#tags = new Map(tags.map((tag, n) => [tag, names ? names.indexOf(tag) : surfaces.length + n]));
    this.surfaces = [...surfaces, ...(names ? [] : tags.map((tag) => utf8.encode(tag)))].map((surface, id) => (SILENT.has(id) ? new Uint8Array() : surface));
  }

  /** The languages that a text names before its words, as <2fr>, or <2de:fr> where a source has its own. */
  #tagOf(line: string): string[] {
    const { first, openers = 0 } = this.#kind, languages = /^<2([^<>\s]+)>/.exec(line)?.[1]!.split(":") ?? [];
    return languages.length <= (first != null || openers > 0 ? 2 : 1) && languages.every((name) => this.#tags.has(`<2${name}>`)) ? languages : [];
  }

  /** What stands before the words of a text: ids, the tag that names its language, and where the words begin. */
  #begun(line: string): { ids: number[]; tag: string; from: number } {
    const { first, openers } = this.#kind, languages = openers ? [] : this.#tagOf(line), tag = languages.length ? `<2${languages.join(":")}>` : "";
    const named = languages.map((name) => this.#tags.get(`<2${name}>`)!), ids = first == null ? named : [named.length > 1 ? named[0]! : first];
    return { ids, tag, from: tag.length + Number(tag !== "" && line[tag.length] === " ") };
  }

  /** The ids with which the outputs of a source begin. */
  opening(source: string): number[] {
    const { opening = [], openers = 0 } = this.#kind, language = openers ? this.#tagOf(source).at(-1) : undefined;
    return language === undefined ? opening : [this.#tags.get(`<2${language}>`)!];
  }

  /** The first of the ids with which outputs must begin; 0: none. */
  get certain(): number {
    return this.#kind.openers ? this.surfaces.length - this.#kind.openers : 0;
  }

  /** The languages that a text may be translated into, where it says so in a tag. */
  get languages(): string[] {
    return Array.from(this.#tags.keys(), (tag) => tag.slice(2, -1));
  }

  encode(line: string): number[] {
    if (!line.isWellFormed()) throw new Error("the text contains a lone surrogate (half a character)");
    const { ids, from } = this.#begun(line);
    return [...ids, ...this.#kind.encode(line.slice(from))];
  }

  /** What each id adds to the text of some; invalid UTF-8 becomes U+FFFD. */
  #added(ids: readonly number[]): Uint8Array[] {
    let before: string | undefined;
    const { between, trimsFirst } = this.#kind, first = ids.findIndex((id) => this.surfaces[id]!.length);
    return ids.map((id, n) => {
      const own = this.surfaces[id]!;
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
    const decoder = utf8Reader();
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
    const end = ids.lastIndexOf(EOS);
    return end < 0 ? this.decode(ids) : `${this.decodeLines(ids.slice(0, end))}\n${this.decode(ids.slice(end + 1))}`;
  }

  /** The text of lines that some ids add behind others. */
  added(before: readonly number[], ids: readonly number[]): string {
    return this.decodeLines([...before, ...ids]).slice(this.decodeLines(before).length);
  }

  /** A text that a model reads: the first of its ids, or all of them. */
  read(line: string, ids: readonly number[] = this.encode(line)): TokenizedText {
    const { ids: begun, tag, from: moved } = this.#begun(line), rest = line.slice(moved), { spans } = this.#kind;
    const own = ids.slice(begun.length), written = spans ? rest : this.decode(own), isSame = spans !== undefined || written.length === rest.length; // letters may have become small ones
    const places = spans ? spans(rest).slice(0, own.length) : this.#spans(own);
    const all: Span[] = begun.length ? [[0, tag.length], ...places.map(([from, to]): Span => [from + moved, to + moved])] : places;
    return this.#tokenized(isSame ? line : line.slice(0, moved) + written, ids, all);
  }

  /** A text that a model produces. */
  written(ids: readonly number[]): TokenizedText {
    return this.#tokenized(this.decode(ids), ids, this.#spans(ids));
  }

  /** Of each id its characters in the text of all; one that holds a part of a character has the whole. */
  #spans(ids: readonly number[]): Span[] {
    const decoder = utf8Reader(), bytes: number[] = [];
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
    const surface = this.surfaces[id]!;
    if (!surface.length) return this.#kind.names?.[id] ?? "";
    const own = text(surface);
    if (own.includes("\ufffd")) return [...surface].map((byte) => `<${byte.toString(16).padStart(2, "0")}>`).join("");
    return this.#named(own);
  }
}
