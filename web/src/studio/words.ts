// Words of two texts against each other, and names of things as people say them. Pure functions.

export interface Piece { text: string; same: boolean }

/** Where two lists of words are the same, in order (the longest common subsequence): places in both. */
function common(a: readonly string[], b: readonly string[]): [number, number][] {
  const wide = b.length + 1, table = new Uint16Array((a.length + 1) * wide), pairs: [number, number][] = [];
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--)
    table[i * wide + j] = a[i] === b[j] ? 1 + table[(i + 1) * wide + j + 1]! : Math.max(table[(i + 1) * wide + j]!, table[i * wide + j + 1]!);
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (table[(i + 1) * wide + j]! >= table[i * wide + j + 1]!) i++;
    else j++;
  }
  return pairs;
}
const wordsOf = (text: string): string[] => text.split(/\s+/).filter(Boolean);

/** The words of a text; those that the other has in the same order are the same. */
export function against(text: string, other: string): Piece[] {
  const words = wordsOf(text), same = new Set(common(words, wordsOf(other)).map(([i]) => i));
  return words.map((word, i) => ({ text: word, same: same.has(i) }));
}

export interface Change { text: string; kind: "same" | "new" | "lost" }

/** The words of a text, and those of another that are missing in it with nothing in their place. */
export function changes(text: string, other: string): Change[] {
  const a = wordsOf(text), b = wordsOf(other), made: Change[] = [];
  let from = 0, before = 0;
  for (const [i, j] of [...common(a, b), [a.length, b.length] as const]) {
    const added = a.slice(from, i), lost = b.slice(before, j);
    made.push(...(added.length ? added : lost).map((word) => ({ text: word, kind: added.length ? "new" as const : "lost" as const })));
    if (i < a.length) made.push({ text: a[i]!, kind: "same" });
    [from, before] = [i + 1, j + 1];
  }
  return made;
}

/** A number with so many digits after the point, and a minus that is as long as a plus. */
export const fixed = (value: number, digits: number): string => value.toFixed(digits).replace("-", "−");

export const spoken = (name: string): string => name.replace("encoder_decoder", "encoder-decoder").replaceAll("_", " ");

/** A token that can be seen and pressed: a blank and the end of a line have signs. */
export const seen = (text: string): string => text.trim() || (text.includes("\n") ? "⏎" : "␣");

/** A token as it is read: a hyphen stands before what goes on with the word before it. */
export const pieced = (text: string, isFirst: boolean): string => (isFirst || /^\s|^<.*>$|^[^\p{L}\p{N}]/u.test(text) || !text ? seen(text) : `‑${seen(text)}`);

/** Figures by the names that the field knows. */
export const FIGURES: Readonly<Record<string, string>> = {
  bleu: "BLEU", chrf: "chrF", ter: "TER", mse: "MSE", mae: "MAE", mase: "MASE",
};
export const figureName = (name: string): string => FIGURES[name] ?? spoken(name);

/** A p as people read it: 97 %, 0.3 %. */
export function percent(p: number): string {
  const value = 100 * p;
  return `${value >= 9.95 ? value.toFixed(0) : value >= 0.095 ? value.toFixed(1) : value > 0 ? value.toPrecision(1).replace(/e-(\d+)/, "e−$1") : "0"} %`;
}

export const seconds = (milliseconds: number): string =>
  milliseconds < 950 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(milliseconds < 9500 ? 1 : 0)} s`;

/** Parameters, tokens: 1.84 M, 205 k. */
export const short = (count: number): string =>
  count >= 1e9 ? `${(count / 1e9).toPrecision(3)} G` : count >= 1e6 ? `${(count / 1e6).toPrecision(3)} M` : count >= 1e3 ? `${(count / 1e3).toPrecision(3)} k` : String(count);
