// The words of the studio: English in the sources, another language text by English text in the folder `languages/CODE`:
// `studio.json`, `drawings.json`, and for the lecture NAME `NAME.json`. A text that has no translation stays English.
import type { AnyDrawing } from "../core";
import { language as drawn } from "../core/dom";
import type { Lecture, Origin } from "./api";
import { ENGLISH, language, speakWith, t, words } from "./language";

type Words = Readonly<Record<string, string>>;
const FILES = import.meta.glob<Words>("./languages/*/*.json", { import: "default" });
const fileOf = (code: string, name: string) => FILES[`./languages/${code}/${name}.json`];

/** The codes of all languages, English first. */
export const LANGUAGES: readonly string[] = [ENGLISH, ...new Set(Object.keys(FILES).map((path) => path.split("/")[2]!))];

/** The name of a language, in itself (français) or in another. */
export const nameOf = (code: string, told = code): string => new Intl.DisplayNames([told], { type: "language" }).of(code) ?? code;

/** What was imported, and from where: Marian, English → French, opened from FOLDER. */
export const openedFrom = ({ family, languages, folder }: Origin): string =>
  t("{model}, opened from {folder}", { model: [family, languages.map((code) => nameOf(code, language())).join(" → ")].filter(Boolean).join(", "), folder });

/** The first language of the browser's reader that there is. */
export const preferred = (): string => navigator.languages.map((one) => one.split("-")[0]!).find((one) => LANGUAGES.includes(one)) ?? ENGLISH;

let wanted = ENGLISH; // the language that was asked for last

/** Show the page in a language, once its words are here; in English where there is none of this code. */
export async function speak(asked: string): Promise<void> {
  const code = (wanted = LANGUAGES.includes(asked) ? asked : ENGLISH);
  const files = await Promise.all(["studio", "drawings"].map((name) => fileOf(code, name)?.()));
  if (code !== wanted) return;
  drawn.of = code === ENGLISH ? (shown) => shown : other;
  speakWith(code, Object.assign({}, ...files) as Words);
  document.documentElement.lang = code;
}

const VALUE = /“[^”]*”|(?<![\p{L}\p{N}_^{.])[−-]?\d(?:[\d,.]*\d)?(?:e[−-]?\d+)?/gu; // quoted words, and numbers that are no indices
const LONGEST = 400; // letters of a text of a drawing

/** A text whose quoted words and numbers are {0}, {1}, … in the catalogue. A bare word may be the model's own: it stays. */
export function pattern(text: string): string {
  const values: string[] = [], plain = text.trim(), key = plain.replace(VALUE, (value) => `{${values.push(value) - 1}}`);
  return /\S[\s:-]|^\(/.test(text) && words.has(key) ? text.replace(plain, () => t(key, values as never)) : text;
}

/** What a drawing writes itself: as a whole, or before a colon: "head 0: The ← woman". */
export function written(text: string): string {
  if (text.length > LONGEST) return text;
  const whole = pattern(text);
  return whole !== text ? whole : text.split(" · ").map((part) => {
    const made = pattern(part), [head, ...rest] = part.split(": ") as [string, ...string[]], tail = rest.join(": ");
    return made === part && pattern(head) !== head ? `${pattern(head)}\u00a0: ${words.get(tail) ?? tail}` : made;
  }).join(" · ");
}

const JOINTS = [/ · /, /(?<=\.) /, /\.$/, /: /, /; /, / → /, /, /];

/** A text of foveate in a drawing: as a whole, or else its parts. */
export function phrase(text: string): string {
  const made = words.get(text) ?? pattern(text), joint = JOINTS.map((each) => each.exec(text)).find((found) => found);
  if (made !== text || !joint) return made;
  const parts = [text.slice(0, joint.index), text.slice(joint.index + joint[0].length)], [head, tail] = parts.map(phrase);
  return head === parts[0] && tail === parts[1] ? text : head + joint[0].replace(/^[:;]/, "\u00a0$&") + tail;
}

const OURS = new Set(["title", "caption", "notes", "across", "down", "up", "told", "label", "detail", "scored", "note"]); // fields of drawings that foveate writes
const AXES = new Set(["rows", "columns", "labels"]); // words of foveate where it knows all of them, else the model's
const isNamed = (part: object) => "y" in part || "values" in part || "caption" in part; // curves, bars and stops; other names are keys

/** A drawing in the language of the page. */
export function inLanguage<D extends AnyDrawing>(drawing: D): D {
  if (language() === ENGLISH) return drawing;
  const visit = (value: unknown, key: string): unknown => {
    if (typeof value === "string") return OURS.has(key) || (drawing.kind === "table" && AXES.has(key)) ? phrase(value) : value;
    if (Array.isArray(value)) return value.map((part) => visit(part, AXES.has(key) && value.every((word) => typeof word === "string" && (words.has(word) || phrase(word) !== word)) ? "label" : key));
    if (value === null || typeof value !== "object" || "codec" in value) return value;
    const isWord = "form" in value && value.form === "word"; // of the sentence
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, isWord ? part : visit(part, name === "name" && isNamed(value) ? "label" : name)]));
  };
  return visit(drawing, "") as D;
}

/** A text or a drawing that is shown, in the language of the page. */
const other = <T>(shown: T): T => (typeof shown === "string" ? written(shown) : shown !== null && typeof shown === "object" && "kind" in shown ? inLanguage(shown as unknown as AnyDrawing) : shown) as T;

/** A lecture in the languages in which it is told besides English, called `romac.fr` and the like. */
export async function translations(lecture: Lecture): Promise<Lecture[]> {
  const codes = LANGUAGES.filter((code) => fileOf(code, lecture.name));
  return Promise.all(codes.map(async (code) => told(lecture, code, await fileOf(code, lecture.name)!())));
}

/** A lecture in a language; what its words lack stays English. */
export function told(lecture: Lecture, code: string, own: Words): Lecture {
  const to = (text = "") => own[text.trim().replace(/\s+/g, " ")] ?? text; // wherever its lines are broken
  const steps = lecture.steps.map((step) => ({ ...step, title: to(step.title), equation: to(step.equation), caption: to(step.caption), notes: to(step.notes), slip: to(step.slip) }));
  return { ...lecture, name: `${lecture.name}.${code}`, title: to(lecture.title), after: to(lecture.after), about: to(lecture.about), steps };
}
