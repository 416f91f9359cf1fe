// The catalogue: every text of the studio is in each language, none is left over, and drawings change only what foveate wrote.
import { afterEach, describe, expect, it } from "vitest";
import type { SheetDrawing, TableDrawing } from "../src/core";
import type { Lecture } from "../src/studio/api";
import { langOf, speakWith, t } from "../src/studio/language";
import { inLanguage, LANGUAGES, pattern, phrase, told, written } from "../src/studio/languages";

const CODES = LANGUAGES.slice(1), FOLDER = "../src/studio/";
const texts = import.meta.glob<string>("../src/studio/**/*.{ts,svelte}", { query: "?raw", import: "default", eager: true });
const sources = new Map(Object.entries(texts).map(([path, text]) => [path.slice(FOLDER.length), text]));
const tables = import.meta.glob<Record<string, string>>("../src/studio/languages/*/*.json", { import: "default", eager: true });
const wordsOf = (code: string, name: string) => tables[`${FOLDER}languages/${code}/${name}.json`]!;
const STRING = '"((?:[^"\\\\]|\\\\.)*)"';
/** Texts that reach `t` by a table: where they are, and what stands around them. */
const TABLES: readonly [string, RegExp][] = [
  ["keys.ts", new RegExp(`\\["[^"]+", ${STRING}\\]`, "g")], ["screens/Lecture.svelte", new RegExp(`\\["[^"]+", ${STRING}\\]`, "g")],
  ["tasks.ts", new RegExp(`(?:verb|source|hint|answer): ${STRING}`, "g")], ["meanings.ts", new RegExp(`(?<=\\w: \\[.*)${STRING}`, "g")],
  ["parts/SearchForm.svelte", new RegExp(`(?<=TELLS[^=]*= \\{[^}]*)\\w+: ${STRING}`, "g")], ["parts/Facts.svelte", new RegExp(`\\[${STRING}, (?!")`, "g")],
];

/** The texts that a source passes to `t`: its first argument, or both of a choice between two. */
function used(source: string): string[] {
  const choice = new RegExp(`(?<![\\w.])t\\((?:[^"()]*(?:\\([^()]*\\))?[^"()]*\\? )?${STRING}(?: : ${STRING})?`, "g");
  return [...source.matchAll(choice)].flatMap(([, one, other]) => [one, other]).filter((text) => text !== undefined);
}
const wanted = new Set([...sources.values()].flatMap(used).concat(TABLES.flatMap(([name, around]) => [...sources.get(name)!.matchAll(around)].map(([, text]) => text!))).filter(Boolean));
const named = (text: string) => text.match(/\{\w+\}/g)?.sort() ?? [];

afterEach(() => speakWith("en", {}));

describe.each(CODES)("the words in %s", (code) => {
  const own = wordsOf(code, "studio");
  it("are all there, and none is left over", () => {
    expect(wanted.size).toBeGreaterThan(300);
    expect([...wanted].filter((text) => !own[text])).toEqual([]);
    const all = [...sources.values()].join("\n");
    expect(Object.keys(own).filter((text) => !all.includes(JSON.stringify(text)))).toEqual([]);
  });
  it("name the same values", () => {
    for (const words of [own, wordsOf(code, "drawings")]) for (const [text, other] of Object.entries(words)) expect(named(other), text).toEqual(named(text));
  });
});

describe("a text", () => {
  it("is that of the language, with its values, or else English", () => {
    expect(t("step {n}", { n: 3 })).toBe("step 3");
    speakWith("fr", { "step {n}": "étape {n}" });
    expect([t("step {n}", { n: 3 }), t("stage {n}", { n: 1 })]).toEqual(["étape 3", "stage 1"]);
  });
  it("of a drawing is found whatever its numbers and its quoted words are, as a whole or by its parts", () => {
    speakWith("fr", { "the query of {0} and {1} keys": "la requête de {0} et {1} clés", Framed: "Encadré", "head {0}": "tête {0}", broad: "diffuse", "Of h_1": "De h_1", "as {0}": "comme {0}", reads: "lit" });
    expect(pattern("the query of “a key” and 1,024 keys")).toBe("la requête de “a key” et 1,024 clés");
    expect(phrase("Of h_1. Framed: “old”.")).toBe("De h_1. Encadré\u00a0: “old”.");
    expect(phrase("Framed; as 8e-07.")).toBe("Encadré\u00a0; comme 8e-07.");
    expect(phrase("the query of “old” and 0.5 keys · W_1")).toBe("la requête de “old” et 0.5 clés · W_1");
    expect(written("head 2: broad")).toBe("tête 2\u00a0: diffuse");
    for (const token of ["reads", " reads", "Framed", "She reads. He reads.", "x: reads"]) expect(written(token)).toBe(token); // words of a model
  });
});

describe("a drawing", () => {
  const sheet = (columns: string[]): SheetDrawing => ({ kind: "sheet", title: "Sheet", caption: "", notes: [], values: { shape: [1, 2], codec: "f32", data: "day", url: "" }, rows: ["day"], columns, down: "", across: "key", least: 0, most: 1, told: "", aspect: 1, cells: [["day", ""]], dots: [], outlines: [] });
  it("has other words in the fields that foveate writes, and in axes of which it knows all words", () => {
    expect(inLanguage(sheet(["day"]))).toEqual(sheet(["day"]));
    speakWith("fr", { day: "jour", month: "mois", key: "clé", Sheet: "Feuille" });
    expect(inLanguage(sheet(["day", "month"]))).toEqual({ ...sheet(["jour", "mois"]), title: "Feuille", across: "clé", rows: ["jour"] });
    expect(inLanguage(sheet(["day", "She"])).columns).toEqual(["day", "She"]);
  });
  it("that is a table has other words in its cells", () => {
    speakWith("fr", { none: "rien" });
    const table: TableDrawing = { kind: "table", title: "", caption: "", notes: [], columns: ["none", "x"], rows: [["none", "x"]] } as unknown as TableDrawing;
    expect(inLanguage(table)).toMatchObject({ rows: [["rien", "x"]] });
  });
});

describe("a lecture", () => {
  const step = { title: "A title", equation: "x;   y", command: "foveate demo lookup", caption: "", notes: "\nTwo\nlines.", slip: "" };
  const lecture: Lecture = { name: "one", title: "One", after: "", about: "", steps: [step], own: false };
  it("is told with the words that there are, wherever lines are broken; its commands stay", () => {
    const [first] = told(lecture, "fr", { "Two lines.": "Deux lignes.", "x; y": "x ;   y" }).steps;
    expect(first).toEqual({ ...step, notes: "Deux lignes.", equation: "x ;   y" });
    expect(langOf(told(lecture, "fr", {}).name)).toBe("fr");
    expect(langOf("one")).toBe("en");
  });
});
