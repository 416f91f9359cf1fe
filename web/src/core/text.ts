// Numbers and names as they are written; places of marks on an axis. Pure functions.

/** A number with about four digits that count; grouped where it is large and whole. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text: string;
  if (Number.isInteger(value) && size < 1e15) text = size.toLocaleString("en-US");
  else if (size >= 1e6 || size < 1e-4) text = size.toExponential(2).replace("e", " e").replace("e+", "e").replace("e-", "e−");
  else if (size >= 1000) text = size.toLocaleString("en-US", { maximumFractionDigits: 1 });
  else text = String(Number(size.toPrecision(4)));
  return (value < 0 ? "−" : "") + text;
}

/** A number with two digits after the point, as it is written into a cell. */
export const written = (value: number): string => (value === -Infinity ? "−∞" : (+value.toFixed(2) || 0).toFixed(2).replace("-", "−"));

/** `decoder.cross_attention` as people say it. */
export const spoken = (name: string): string => name.replaceAll("_", "-").replaceAll(".", " ");

/** At most `count` letters (whole characters, no halves of an emoji). */
export function clipped(text: string, count: number): string {
  const letters = Array.from(text);
  return letters.length <= count ? text : letters.slice(0, count - 1).join("") + "…";
}

/** About `count` round numbers from least to most. */
export function ticks(least: number, most: number, count = 5): number[] {
  if (!(most > least)) return [least];
  const rough = (most - least) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 2.5, 5, 10].find((n) => n * unit >= rough && n * unit !== 2.5) ?? 10);
  const made = [];
  for (let k = Math.ceil(least / step - 1e-9); k * step <= most + step * 1e-9; k++) made.push(Number((k * step).toPrecision(12)));
  return made.length > 1 || count > 8 ? made : ticks(least, most, count + 1);
}

/** Powers of ten from least to most, 1 among them, with 2 and 5 between where there are few; ends above 0. */
export function logTicks(least: number, most: number): number[] {
  const made: number[] = [], from = Math.floor(Math.log10(least)), to = Math.ceil(Math.log10(most));
  const every = Math.max(1, Math.ceil((to - from) / 7)), between = most / least <= 100 ? [1, 2, 5] : [1];
  for (let power = every * Math.floor(from / every); power <= to; power += every)
    for (const n of between) {
      const value = Number((n * 10 ** power).toPrecision(12));
      if (value >= least * 0.999 && value <= most * 1.001) made.push(value);
    }
  return made.length > 1 ? made : ticks(least, most);
}

const raised = (power: number): string => `10${[...String(power)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`;

/** A short figure for an axis: 12k, 1.5M, 0.001, 1e−7. */
export function tick(value: number): string {
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size === 0) return "0";
  const short = (number: number) => String(Number(number.toPrecision(4)));
  if (size >= 1e9 || size < 1e-4) {
    const power = Math.floor(Math.log10(size) + 1e-9), digits = short(size / 10 ** power);
    return `${sign}${digits === "1" ? "" : digits + "·"}${raised(power)}`;
  }
  if (size >= 1e6) return `${sign}${short(size / 1e6)}M`;
  if (size >= 1e4) return `${sign}${short(size / 1e3)}k`;
  return sign + short(size);
}

/** Short figures for the marks of one axis, all of one kind: none in thousands beside one in ones, no power of ten beside a figure. */
export function marked(values: readonly number[]): string[] {
  const sizes = values.map(Math.abs).filter((size) => size > 0), most = Math.max(...sizes), least = Math.min(...sizes);
  const isPower = (size: number) => Math.abs(Math.log10(size) - Math.round(Math.log10(size))) < 1e-9;
  if (sizes.every(isPower) && (most >= 1e5 || least <= 1e-4 || most / least > 1e5)) return values.map((value) => (value === 0 ? "0" : Math.abs(value) === 1 ? tick(value) : `${value < 0 ? "−" : ""}${raised(Math.round(Math.log10(Math.abs(value))))}`));
  const [unit, name] = most < 1e4 || most >= 1e12 ? [1, ""] : most >= 1e9 ? [1e9, "·10⁹"] : most >= 1e6 ? [1e6, "M"] : [1e3, "k"];
  return values.map((value) => (unit === 1 || value === 0 ? tick(value) : `${value < 0 ? "−" : ""}${Number((Math.abs(value) / unit).toPrecision(4))}${name}`));
}

/** Every how many labels one is written, so that none covers the next. */
export const every = (cell: number, room = 14): number => Math.max(1, Math.ceil(room / cell));

/** The place of the same word in another list, as of two outputs for one source: the nearest, of equals; undefined without. */
export function likeWord(words: readonly string[] | undefined, place: number | undefined, others: readonly string[]): number | undefined {
  const word = place === undefined ? undefined : words?.[place];
  const far = (k: number) => Math.abs(k - place!);
  return others.map((_, k) => k).filter((k) => word !== undefined && others[k] === word).sort((a, b) => far(a) - far(b))[0];
}

/** Whether two lists name the same words: one may have a few more at its end (an end sign). */
export function sameWords(a: readonly string[], b: readonly string[]): boolean {
  const shared = Math.min(a.length, b.length);
  if (shared === 0 || Math.max(a.length, b.length) - shared > 2) return false;
  for (let k = 0; k < shared; k++) if (a[k] !== b[k]) return false;
  return true;
}

/** A text cut at its variables, which papers set in italics: single letters (an article is none), also with a hat or transposed; in an index up to two. Pure. */
export function variables(text: string, isIndex = false): { text: string; isVariable: boolean }[] {
  const letter = isIndex ? /(?<![\p{L}\p{M}])(\p{L}\p{M}*\p{L}?)(?![\p{L}\p{M}])/u : /(?<![\p{L}\p{M}'’])(?!a \p{Ll}{2}|[A-Z]\d|e[-−]?\d)([A-Za-zα-ω]\p{M}*)(?!(?!ᵀ)[\p{L}\p{M}])/u;
  return text.normalize("NFD").split(letter).map((part, k) => ({ text: part, isVariable: k % 2 === 1 })).filter((part) => part.text);
}

const WHOLE = 24; // letters of a remark in brackets that stays on its line

/** An equation that breaks its line neither inside a short bracket nor at the hyphen of a word. Pure. */
export const unbroken = (text: string): string =>
  text.replace(/\([^()]*\)/g, (part) => (part.length > WHOLE ? part : part.replaceAll(" ", "\u00a0"))).replace(/(?<=\p{L})-(?=\p{L})/gu, "\u2060-\u2060");

export interface Indexed { text: string; tag: "span" | "sub" | "sup" }

/** An equation as written in plain text, cut at its indices and exponents: x_t, h_{t−1}, W^Q, d^−0.5, 10^(2i/d). */
export function indexed(equation: string): Indexed[] {
  const parts = equation.split(/([_^])(\{[^}]*\}|\([^)]*\)|[−<]?[A-Za-zα-ω0-9]+(?:\.\d+)?)/u);
  return parts.flatMap((text, k): Indexed[] => {
    if (k % 3 === 0) return text ? [{ text, tag: "span" }] : [];
    return k % 3 === 1 ? [] : [{ text: text.replace(/^\{(.*)\}$|^\((.*)\)$/, "$1$2"), tag: parts[k - 1] === "_" ? "sub" : "sup" }];
  });
}
