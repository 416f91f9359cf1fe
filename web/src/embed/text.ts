// A page as text. `src/foveate/look/draw/page.py` writes the same form.
import type { AnyDrawing } from "../core";
import { h } from "../core/dom";

/** What is shown at a time; a step of a lecture has its equation and its command. */
export interface Group { title: string; notes: string[]; drawings: AnyDrawing[]; equation?: string; command?: string }
export interface Page { title: string; notes: string[]; groups: string[] }

/** JSON that may stand inside a script element: nothing in it can end the element. */
export const safe = (value: unknown): string =>
  JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

/** A page of these groups, as `src/foveate/look/draw/page.py` makes it; `policy` allows the script. */
export function pageText({ policy, script, page, groups, lang = "en" }: { policy: string; script: string; page: Page; groups: Group[]; lang?: string }): string {
  const made = document.implementation.createHTMLDocument([...new Set([page.title, "foveate"])].join(" · ")); // nothing in it acts
  const data = (value: unknown, name: Record<string, string>) => h("script", { ...name, type: "application/json" }, safe(value));
  made.documentElement.lang = lang;
  made.head.prepend(h("meta", { charset: "utf-8" }), h("meta", { "http-equiv": "Content-Security-Policy", content: policy }),
    h("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }));
  made.body.append(h("noscript", {}, "This page draws with JavaScript, which is switched off here."), data(page, { id: "page" }),
    ...groups.map((group) => data(group, { class: "group" })), h("script", {}, script));
  return `<!doctype html>\n${made.documentElement.outerHTML}\n`;
}
