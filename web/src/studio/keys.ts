// Keys that work on every page. What a drawing knows (arrows, layers, heads) is handed to it.
import { PAGES } from "./place";
import { studio } from "./studio.svelte";

export const KEYS: readonly (readonly [string, string])[] = [
  ["/", "Go to the source text"], ["Enter", "Ask (Shift + Enter: new line)"], ["Esc", "Stop, close or leave a field"],
  ["← →", "Previous or next word, or cell of a picture"], ["↑ ↓", "Previous or next alternative, or cell of a picture"],
  ["[ ]", "Layer"], [", .", "Head"], ["a", "Alternatives under each word"], ["s", "Silence the chosen head"],
  ["e", "Go to the buttons that save a picture"], ["1 – 7", "Pages"],
  ["p", "Lecture: one drawing fills the screen; press again to return"], ["← → n i", "In a lecture: previous step, next step, speaker's notes, run and command"],
  ["s w c", "In a lecture: print or save slides, presenter's window, copy the step into your own lecture"], ["?", "This list"],
];

const isField = (target: EventTarget | null) =>
  target instanceof HTMLElement && target.closest("input:not([type=radio]):not([type=checkbox]), select, textarea, [contenteditable]") !== null;

/** A bare key while no dialog lies over the page. `open` tells it at once; the event `close` comes a little later. */
const isBare = (event: KeyboardEvent) =>
  !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]");

/** A bare key that is not being typed into a field. */
export const isShortcut = (event: KeyboardEvent) => isBare(event) && !isField(event.target);

const TURNS: Record<string, number> = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 };
/** How many slides a bare key goes on; the space of a button is its own. */
export const turnOf = (event: KeyboardEvent): number | undefined =>
  isShortcut(event) && !(event.key === " " && event.target instanceof HTMLButtonElement) ? TURNS[event.key] : undefined;

function escape(event: KeyboardEvent): void {
  if (studio.stop) studio.stop();
  else if (isField(event.target)) (event.target as HTMLElement).blur();
  else if (studio.place.page === "lecture") studio.present();
}

/** Focus the buttons that save the drawing in which the focus is, or the first that is seen. */
function toSaving(): void {
  const drawings = [...document.querySelectorAll<HTMLElement>(".fv")];
  const wanted = document.activeElement?.closest<HTMLElement>(".fv") ?? drawings.find((one) => one.getBoundingClientRect().bottom > 80);
  wanted?.querySelector<HTMLElement>(".fv-save button")?.focus();
}

const ACTS: Record<string, () => void> = {
  "/": () => document.querySelector<HTMLElement>("[data-source]")?.focus(),
  "?": () => { studio.helping = true; },
  a: () => { studio.open = !studio.opens; },
  e: toSaving,
  p: () => studio.present(),
};

export function keyed(event: KeyboardEvent): void {
  if (studio.place.page === "presenter") return; // its keys move the slides
  if (event.key === "Escape" && isBare(event)) return escape(event);
  if (!isShortcut(event)) return;
  const page = PAGES[Number(event.key) - 1];
  if (page) studio.turn(page);
  else if (ACTS[event.key]) ACTS[event.key]!();
  else if ((studio.place.page === "lecture" && /^Arrow(Left|Right)$/.test(event.key)) || ![...studio.drawings].some((one) => one.key(event))) return;
  event.preventDefault();
}
