// Where one is in the studio, and that as the hash of an address. Pure functions.
import type { SilencedHead } from "./api";

export const PAGES = ["ask", "inspect", "train", "evaluate", "model", "compare", "demos"] as const;
/** Pages without a tab: a lecture, which fills the screen, what its presenter sees, its slides as sheets, and one's own, which is edited. */
const OTHERS = ["lecture", "presenter", "sheets", "edit"] as const;
export type Page = (typeof PAGES)[number] | (typeof OTHERS)[number];
/** Pages that need no run. */
export const FREE: readonly Page[] = ["compare", "demos", ...OTHERS];

/** Values of the fields of a search that were changed; `kind` is one of them. */
export type Settings = Record<string, string | number>;

/** All that an address says. What is empty is not in it. */
export interface Place {
  page: Page;
  /** Runs: the first is asked, the others are compared with it. */
  runs: string[];
  text: string;
  target: string;
  /** The number of a test picture; uploads do not fit an address. */
  picture: string;
  date: string;
  channel: string;
  to: string;
  prefix: number[];
  /** Which places of the prefix were forced: the others are the model's own words before them. */
  forced: number[];
  search: Settings;
  silenced: SilencedHead[];
  views: string[];
  block: string;
  layer: number | undefined;
  head: number | null | undefined;
  row: number | undefined;
  column: number | undefined;
  side: "row" | "column" | undefined;
  split: string;
  sort: string;
  /** What views were asked besides, by their names. */
  options: Record<string, Settings>;
  /** Trainings whose curves are drawn; none: that of the run. */
  trainings: string[];
  across: string;
  /** The demo that is shown (its options are those of `demo`), the comparison, and its chapter. */
  demo: string;
  report: string;
  chapter: string;
  /** The lecture that is shown and its step, from 1; they stand in the path. */
  lecture: string;
  step: number;
}

export const EMPTY: Place = {
  page: "ask", runs: [], text: "", target: "", picture: "", date: "", channel: "", to: "", prefix: [], forced: [], search: {},
  silenced: [], views: [], block: "", layer: undefined, head: undefined, row: undefined, column: undefined,
  side: undefined, split: "", sort: "", options: {}, trainings: [], across: "", demo: "", report: "", chapter: "", lecture: "", step: 1,
};

const TEXTS = ["text", "target", "picture", "date", "channel", "to", "block", "split", "sort", "across", "demo", "report", "chapter"] as const;
const COUNTS = ["layer", "row", "column"] as const;

/** A head as an address writes it: block:layer:head; without a head, all of the layer. */
export const headName = ({ block, layer, head }: SilencedHead): string =>
  `${block}:${layer}${head === null || head === undefined ? "" : `:${head}`}`;

const whole = (text: string | null | undefined): number | undefined => {
  const value = Number(text);
  return text && Number.isInteger(value) ? value : undefined;
};

function headOf(name: string): SilencedHead | undefined {
  const [block, layer, head] = name.split(":"), at = whole(layer);
  return block && at !== undefined ? { block, layer: at, head: whole(head) ?? null } : undefined;
}

/** The hash of a place, with its `#`. Of a lecture it names the step alone. */
export function written(place: Place): string {
  if (OTHERS.some((page) => page === place.page)) return `#/${place.page}${place.lecture ? `/${encodeURIComponent(place.lecture)}/${place.step}` : ""}`;
  const said = new URLSearchParams();
  for (const run of place.runs) said.append("run", run);
  for (const key of TEXTS) if (place[key]) said.set(key, place[key]);
  for (const key of COUNTS) if (place[key] !== undefined) said.set(key, String(place[key]));
  if (place.head !== undefined) said.set("head", place.head === null ? "mean" : String(place.head));
  if (place.side) said.set("side", place.side);
  if (place.prefix.length) said.set("prefix", place.prefix.join("."));
  if (place.prefix.length && place.forced.length) said.set("forced", place.forced.join("."));
  for (const [key, value] of Object.entries(place.search)) said.set(`search.${key}`, String(value));
  for (const head of place.silenced) said.append("silence", headName(head));
  for (const view of place.views) said.append("view", view);
  for (const [view, asked] of Object.entries(place.options))
    for (const [key, value] of Object.entries(asked)) said.set(`${view}.${key}`, String(value));
  for (const one of place.trainings) said.append("training", one);
  const fields = said.toString();
  return `#/${place.page}${fields ? `?${fields}` : ""}`;
}

/** The place of a hash; what is not understood is left out. */
export function read(hash: string): Place {
  const [path = "", fields = ""] = hash.replace(/^#\/?/, "").split("?", 2), said = new URLSearchParams(fields);
  const place: Place = structuredClone(EMPTY);
  place.page = PAGES.find((page) => page === path) ?? "ask";
  const [first, lecture = "", step] = path.split("/"), page = OTHERS.find((page) => page === first);
  if (page) Object.assign(place, { page, lecture: decodeURIComponent(lecture), step: Math.max(1, whole(step) ?? 1) });
  place.runs = said.getAll("run");
  for (const key of TEXTS) place[key] = said.get(key) ?? "";
  for (const key of COUNTS) place[key] = whole(said.get(key));
  const head = said.get("head");
  place.head = head === "mean" ? null : whole(head);
  place.side = said.get("side") === "column" ? "column" : said.get("side") === "row" ? "row" : undefined;
  const numbers = (name: string) => (said.get(name) ?? "").split(".").map(whole).filter((id) => id !== undefined);
  place.prefix = numbers("prefix");
  place.forced = numbers("forced");
  for (const [key, text] of said) {
    const [group = "", name] = key.split(".", 2), value = text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
    if (name) (group === "search" ? place.search : (place.options[group] ??= {}))[name] = value;
  }
  place.silenced = said.getAll("silence").map(headOf).filter((one) => one !== undefined);
  place.views = said.getAll("view");
  place.trainings = said.getAll("training");
  return place;
}
