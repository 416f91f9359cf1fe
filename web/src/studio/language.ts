// The words of the page in its language: texts by the English of the sources. `languages.ts` brings them.
import { SvelteMap } from "svelte/reactivity";

export const ENGLISH = "en";
export const words = new SvelteMap<string, string>();
const chosen = new SvelteMap([["code", ENGLISH]]);

/** The code of the language of the page. */
export const language = (): string => chosen.get("code")!;

/** Take other words from now on. */
export function speakWith(code: string, own: Readonly<Record<string, string>>): void {
  words.clear();
  for (const [text, other] of Object.entries(own)) words.set(text, other);
  chosen.set("code", code);
}

/** A text in the language of the page, with values at its names: `t("step {n}", { n: 3 })`. */
export const t = (text: string, values: Readonly<Record<string, string | number>> = {}): string =>
  (words.get(text) ?? text).replace(/\{(\w+)\}/g, (name, key: string) => String(values[key] ?? name));

/** The code of the language of a lecture, by its name. */
export const langOf = (lecture: string): string => lecture.split(".")[1] ?? ENGLISH;
