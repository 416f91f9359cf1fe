// Tasks that are learnt in seconds: their examples by chance, their tokens, and which source token each target token comes from.

export type TaskName = "reverse" | "dates" | "adjectives";
/** An example: words or letters, and links from target to source positions; where a target has several, any of them is right. */
export interface Example { source: string[]; target: string[]; links: [number, number][] }
export interface Task {
  label: string; of: string; // what is done, and what one right link leads to
  about: string; hint: string; first: string; // of an own text
  joint: string; // between tokens
  tokens: readonly string[];
  draw(random: () => number): Example;
  /** The example of a text; what is wrong with it, in a sentence, if it is none. */
  read(text: string): Example | string;
}

export const START = 1, END = 2, FIRST = 3; // ids; 0 is padding
const LETTERS = [..."abcdefghijklmnopqrstuvwxyz"], DIGITS = [..."0123456789"];
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/** Numbers from 0 to 1 by chance, the same for the same seed (mulberry32). */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
}

const from = (random: () => number, least: number, most: number) => least + Math.floor(random() * (most - least + 1));
const one = <T>(random: () => number, list: readonly T[]): T => list[Math.floor(random() * list.length)]!;

function reversed(letters: string[]): Example {
  return { source: letters, target: [...letters].reverse(), links: letters.map((_, t) => [t, letters.length - 1 - t]) };
}

/** "7 March 2024" and 2024-03-07: digits have links, both digits of a month to all its letters: one of them alone does not tell it. */
function dated(day: number, month: number, year: number): Example {
  const source = [...`${day} ${MONTHS[month]} ${year}`], at = String(day).length + 1, end = source.length - 4, letters = [...MONTHS[month]!];
  const days: [number, number][] = day > 9 ? [[8, 0], [9, 1]] : [[9, 0]];
  return {
    source, target: [...`${year}-${String(month + 1).padStart(2, "0")}-${String(day).padStart(2, "0")}`],
    links: [...[0, 1, 2, 3].map((k): [number, number] => [k, end + k]), ...[5, 6].flatMap((k) => letters.map((_, s): [number, number] => [k, at + s])), ...days],
  };
}

// A grammar in which French adjectives agree, and stand behind the noun but for those in front of it.
const NOUNS: Record<string, string> = { dog: "chien", cat: "chat", book: "livre", house: "maison f", door: "porte f", apple: "pomme f", car: "voiture f", bread: "pain" };
const BEFORE: Record<string, [string, string]> = { small: ["petit", "petite"], big: ["grand", "grande"], old: ["vieux", "vieille"], good: ["bon", "bonne"] };
const BEHIND: Record<string, [string, string]> = { red: ["rouge", "rouge"], green: ["vert", "verte"], black: ["noir", "noire"], white: ["blanc", "blanche"] };
const VERBS: Record<string, string> = { sees: "voit", likes: "aime", wants: "veut", finds: "trouve" }, PLACES: Record<string, string> = { here: "ici", there: "là", today: "aujourd'hui" };
const ARTICLES: Record<string, [string, string]> = { the: ["le", "la"], a: ["un", "une"] };

function translated(source: string[]): Example | string {
  const target: string[] = [], links: [number, number][] = [];
  const put = (word: string, at: number) => { links.push([target.length, at]); target.push(word); };
  for (let k = 0; k < source.length;) {
    const word = source[k]!;
    if (!(word in ARTICLES)) {
      if (!(word in VERBS || word in PLACES)) return `“${word}” is not a noun phrase, a verb or a place: write for example “${TASKS.adjectives.first}”`;
      put((VERBS[word] ?? PLACES[word])!, k++);
      continue;
    }
    let end = k + 1;
    while (source[end]! in BEFORE || source[end]! in BEHIND) end++;
    const [noun, isFeminine] = (NOUNS[source[end] ?? ""] ?? "").split(" ");
    if (!noun) return `“${source.slice(k, end + 1).join(" ")}” has no noun that this task knows: ${Object.keys(NOUNS).join(", ")}`;
    const form = isFeminine ? 1 : 0, among = Array.from({ length: end - k - 1 }, (_, i) => k + 1 + i);
    put(ARTICLES[word]![form], k);
    for (const at of among) if (source[at]! in BEFORE) put(BEFORE[source[at]!]![form], at);
    put(noun, end);
    for (const at of among) if (source[at]! in BEHIND) put(BEHIND[source[at]!]![form], at);
    k = end + 1;
  }
  return { source, target, links };
}

const phrase = (random: () => number): string[] => {
  const before = random() < 0.45 ? [one(random, Object.keys(BEFORE))] : [], behind = random() < 0.6 ? [one(random, Object.keys(BEHIND))] : [];
  return [one(random, ["the", "a"]), ...before, ...behind, one(random, Object.keys(NOUNS))];
};

export const TASKS: Record<TaskName, Task> = {
  reverse: {
    label: "Reverse a word", of: "letter", about: "At each step the model sees 32 random words, to be written backwards.", hint: "a word of 2 to 12 letters", first: "learning", joint: "", tokens: LETTERS,
    draw: (random) => reversed(Array.from({ length: from(random, 3, 9) }, () => one(random, LETTERS))),
    read: (text) => /^[a-z]{2,12}$/.test(text.trim().toLowerCase()) ? reversed([...text.trim().toLowerCase()]) : "Write a word of 2 to 12 letters from a to z.",
  },
  dates: {
    label: "Rewrite a date", of: "digit or month", about: "At each step the model sees 32 random dates, to be written as year-month-day.", hint: "a date", first: "14 July 1989", joint: "",
    tokens: [...new Set([...DIGITS, "-", " ", ...MONTHS.join("")])],
    draw: (random) => dated(from(random, 1, 28), from(random, 0, 11), from(random, 1900, 2099)),
    read: (text) => {
      const [, day, name, year] = /^\s*(\d{1,2}) ([a-z]+) (\d{4})\s*$/i.exec(text) ?? [], month = MONTHS.findIndex((each) => each.toLowerCase() === name?.toLowerCase());
      return month < 0 || Number(day) < 1 || Number(day) > 31 ? "Write a day, a month in English and a year: 14 July 1989." : dated(Number(day), month, Number(year));
    },
  },
  adjectives: {
    label: "Translate into French", of: "word", about: "At each step the model sees 32 random sentences of 54 words: adjectives agree, most follow the noun.", hint: "a sentence", first: "the small cat sees a red house", joint: " ",
    tokens: [...new Set([ARTICLES, NOUNS, BEFORE, BEHIND, VERBS, PLACES].flatMap((table) => [...Object.keys(table), ...Object.values(table).flatMap((own) => typeof own === "string" ? own.replace(" f", "") : own)]))],
    draw: (random) => translated([...phrase(random), one(random, Object.keys(VERBS)), ...phrase(random), ...(random() < 0.3 ? [one(random, Object.keys(PLACES))] : [])]) as Example,
    read: (text) => {
      const words = text.trim().toLowerCase().replace(/\.$/, "").split(/\s+/);
      return words.length > 14 ? "Write at most 14 words." : translated(words);
    },
  },
};

/** A batch as the model reads it, position by position (T, B): sources, inputs and targets. */
export function batchOf({ tokens }: Task, examples: readonly Example[]): { source: Int32Array; input: Int32Array; target: Int32Array; S: number; T: number } {
  const ids = new Map(tokens.map((token, k) => [token, FIRST + k])), B = examples.length;
  const S = 1 + Math.max(...examples.map(({ source }) => source.length)), T = 1 + Math.max(...examples.map(({ target }) => target.length));
  const source = new Int32Array(S * B), input = new Int32Array(T * B), target = new Int32Array(T * B);
  examples.forEach((example, b) => {
    input[b] = START;
    example.source.forEach((token, t) => { source[t * B + b] = ids.get(token)!; });
    example.target.forEach((token, t) => { target[t * B + b] = input[(t + 1) * B + b] = ids.get(token)!; });
    source[example.source.length * B + b] = target[example.target.length * B + b] = END;
  });
  return { source, input, target, S, T };
}
