// The rows and columns of attention maps: tokens, or the words that they make (`foveate.look.records`).
import type { AttentionMap } from "./compiled";
import { EOS, wordSpans, type Span, type Tokenizer } from "./tokenizer";

/** What is a row or a column; "auto" chooses by the tokenizer and the script. */
export type Units = "auto" | "tokens" | "words";
/** A text, the characters of each of its tokens (null: a special one), a label for each, and what an axis shows of it. */
export interface TokenizedText { text: string; spans: (Span | null)[]; labels: string[]; units: "tokens" | "words" }
/** The tokens of each row or column, and its label. */
export interface Axis { groups: number[][]; labels: string[] }

export const START = "<s>", END = "</s>", END_OF_LINE = "⏎";
// Scripts that put no blanks between words: Han, kana, Thai, Lao, Khmer, Burmese.
const UNSEGMENTED = /[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\u{20000}-\u{323af}\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff]/u;
const PLACEHOLDER = /<[^<>\s]+>/g;

/** The words of a text as axes show them; a placeholder is one word. */
function wordsOf(text: string): Span[] {
  const whole = [...text.matchAll(PLACEHOLDER)].map(({ 0: found, index }): Span => [index, index + found.length]);
  const others = wordSpans(text).filter(([from, to]) => !whole.some(([a, b]) => a <= from && to <= b));
  return [...others, ...whole].sort((a, b) => a[0] - b[0]);
}

/** The word with which a piece shares most characters, the first of equals; else the next. */
function owner([from, to]: Span, words: readonly Span[]): number | null {
  if (!words.length) return null;
  const first = words.findIndex(([, end]) => end > from), begin = first < 0 ? words.length : first;
  let best = Math.min(begin, words.length - 1), most = 0;
  for (let place = begin; place < words.length && words[place]![0] < to; place++) {
    const shared = Math.min(to, words[place]![1]) - Math.max(from, words[place]![0]);
    if (shared > most) [best, most] = [place, shared];
  }
  return best;
}

/** Which pieces make which word (null: a special token), in the order of the text (`foveate.data.words.group_pieces`). */
function grouped(spans: readonly (Span | null)[], words: readonly Span[]): { pieces: number[]; word: number | null }[] {
  const owners = spans.map((span) => (span && (span[0] || span[1]) ? owner(span, words) : null)), last = owners.findLastIndex((word) => word !== null);
  const groups = words.map((_, word) => ({ place: word, after: 1, pieces: [] as number[], word: word as number | null })), special: typeof groups = [];
  let begun = 0; // words before the piece
  owners.forEach((word, piece) => {
    if (word === null) special.push({ place: piece > last ? words.length : begun, after: 0, pieces: [piece], word });
    else {
      begun = Math.max(begun, word + 1);
      groups[word]!.pieces.push(piece);
    }
  });
  return [...groups, ...special].sort((a, b) => a.place - b.place || a.after - b.after);
}

/** The axis of a text, with special tokens around it. */
export function axisOf({ text, spans, labels, units: own }: TokenizedText, units: Units, before: readonly string[] = [], after: readonly string[] = []): Axis {
  const tokens = [...before, ...labels, ...after];
  if (units === "tokens" || (units === "auto" && own === "tokens")) return { groups: tokens.map((_, n) => [n]), labels: tokens };
  const words = wordsOf(text), axis: Axis = { groups: [], labels: [] };
  for (const { pieces, word } of grouped([...before.map(() => null), ...spans, ...after.map(() => null)], words)) {
    const label = word === null ? tokens[pieces[0]!]! : text.slice(...words[word]!);
    const apart = units === "auto" && word !== null && UNSEGMENTED.test(label);
    axis.groups.push(...(apart ? pieces.map((piece) => [piece]) : [pieces]));
    axis.labels.push(...(apart ? pieces.map((piece) => tokens[piece]!) : [label]));
  }
  return axis;
}

/** Axes one behind the other. */
export const joined = (...axes: readonly Axis[]): Axis =>
  axes.reduce((all, { groups, labels }) => {
    const count = all.groups.flat().length;
    return { groups: [...all.groups, ...groups.map((pieces) => pieces.map((piece) => count + piece))], labels: [...all.labels, ...labels] };
  });

/** The axis of some tokens that are not part of a text. */
export const single = (...labels: string[]): Axis => ({ groups: labels.map((_, n) => [n]), labels });

/** The axis of lines, their ends by themselves. */
export function linesAxis(tokenizer: Tokenizer, ids: readonly number[], units: Units): Axis {
  const axes: Axis[] = [single()];
  for (let start = 0, place = 0; place <= ids.length; place++) {
    if (place < ids.length && ids[place] !== EOS) continue;
    if (place > start) axes.push(axisOf(tokenizer.written(ids.slice(start, place)), units));
    if (place < ids.length) axes.push(single(END_OF_LINE));
    start = place + 1;
  }
  return joined(...axes);
}

/** A map with the mean of the rows of each group, and the sum of the columns. */
export function merged(map: AttentionMap, rows: Axis, columns: Axis): AttentionMap {
  const [height, width] = [rows.groups.length, columns.groups.length];
  if (height === map.rows && width === map.columns) return map; // of one token each
  const values = new Float32Array(map.heads * height * width);
  for (let head = 0; head < map.heads; head++)
    rows.groups.forEach((row, i) => columns.groups.forEach((column, j) => {
      let sum = 0;
      for (const t of row) for (const s of column) sum += map.values[(head * map.rows + t) * map.columns + s]!;
      values[(head * height + i) * width + j] = sum / Math.max(1, row.length);
    }));
  return { ...map, rows: height, columns: width, values };
}
