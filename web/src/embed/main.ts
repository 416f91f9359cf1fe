// One HTML file of drawings: which group of them is shown, light or dark. All else is the core's.
import { mount, Selection, type AnyDrawing, type Mounted } from "../core";
import { formula, h } from "../core/dom";
import { clipped } from "../core/text";
import { pageText, type Group, type Page } from "./text";
import css from "./page.css?inline";

const own = document.currentScript!.textContent!;
const MOST_PLAIN = 4; // drawings of a page without a list of them
const sheet = new CSSStyleSheet();
sheet.replaceSync(css);
document.adoptedStyleSheets.push(sheet);

const read = <T>(element: Element): T => JSON.parse(element.textContent!) as T;
const page = read<Page>(document.getElementById("page")!);
const groups = [...document.querySelectorAll(".group")]; // each is read when it is shown
const policy = document.querySelector<HTMLMetaElement>("meta[http-equiv]")!.content;
const selection = new Selection(), main = h("main");
let drawn: Mounted[] = [], shown = 0;

const isLecture = read<Group>(groups[0]!).command !== undefined;
const part = isLecture ? "step" : "sentence";
const notes = h("footer"), title = h("span", { dir: "auto" });
const chooser = h("select", { "aria-label": isLecture ? "contents" : "sentence", change: () => show(Number(chooser.value)) },
  ...page.groups.map((name, k) => h("option", { value: k }, `${k + 1} · ${name}`)));
const turn = (by: number) => show((shown + by + groups.length) % groups.length);
const turner = (label: string, text: string, by: number) =>
  h("button", { type: "button", "aria-label": label, title: label, hidden: groups.length < 2, click: () => turn(by) }, text);
const theme = h("button", { type: "button", class: "theme", click: () => dress(document.documentElement.dataset.theme === "light") });
chooser.hidden = groups.length < 2;
title.hidden = groups.length > 1;

/** The names of the drawings of a long page; a click goes to the first of a name. */
const contents = (drawings: readonly AnyDrawing[]) => h("nav", { class: "contents", "aria-label": "contents", "data-unsaved": true },
  ...drawings.map(({ title }) => title.split(" · ")[0]!).flatMap((name, k, all) => name && all.indexOf(name) === k
    ? [h("button", { type: "button", dir: "auto", click: () => drawn[k]?.element.scrollIntoView() }, clipped(name, 40))] : []));

/** What stands above the drawings of a step: its title, equation, notes and command. */
const stepOf = ({ title, equation = "", notes, command }: Group) => h("section", { class: "step" }, h("h2", { dir: "auto" }, title),
  h("p", { class: "equation" }, formula(equation)),
  ...notes.map((note) => h("p", { dir: "auto" }, note)), h("code", {}, command));

function show(number: number): void {
  shown = number;
  chooser.value = String(number);
  const group = read<Group>(groups[number]!);
  title.textContent = group.title;
  const saved = (drawing: AnyDrawing) =>
    pageText({ policy, script: own, page: { ...page, groups: [group.title] }, groups: [{ ...group, drawings: [drawing] }] });
  selection.set({ row: undefined, column: undefined, rows: undefined, columns: undefined, side: undefined });
  for (const one of drawn) one.destroy();
  main.replaceChildren();
  if (isLecture) main.append(stepOf(group));
  else if (group.drawings.length > MOST_PLAIN) main.append(contents(group.drawings));
  drawn = group.drawings.map((drawing) => mount(main, drawing, { selection, page: saved }));
  notes.textContent = [...(isLecture ? [] : group.notes), ...page.notes].join(" · ");
  notes.hidden = !notes.textContent;
  if (isLecture) history.replaceState(null, "", `#${number + 1}`);
  else if (self === top) main.querySelector<HTMLElement>(".fv-film-time input")?.focus({ preventScroll: true }); // arrow keys step through a film
}

function dress(dark: boolean): void {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  theme.textContent = dark ? "Light" : "Dark";
}

const wishes = matchMedia("(prefers-color-scheme: dark)");
dress(wishes.matches);
wishes.addEventListener("change", () => dress(wishes.matches));
document.body.prepend(
  h("header", {}, h("h1", { dir: "auto" }, page.title), h("div", {}, title, turner(`previous ${part}`, "‹", -1), chooser, turner(`next ${part}`, "›", 1)), theme),
  main, notes);
const TURNS: Record<string, number> = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented) return;
  const by = isLecture && !event.altKey && !event.ctrlKey && !event.metaKey && !(event.target as Element).closest("input, select") ? TURNS[event.key] : undefined;
  if (by) turn(by);
  if (by || drawn.some((one) => one.key(event))) event.preventDefault();
});
show(Math.min(groups.length, Math.max(1, (isLecture && parseInt(location.hash.slice(1))) || 1)) - 1);
