// What the whole studio shares: where one is, the runs, what is chosen. One object for the page.
import { untrack } from "svelte";
import type { Choice, Mounted } from "../core";
import type { ExampleList, RunDetail, RunInfo, RunList } from "./api";
import { get, said } from "./client";
import { preferred, speak } from "./languages";
import { FREE, read, written, type Page, type Place } from "./place";
import { selection } from "./selection";

const PATIENCE = 200; // milliseconds from a change to the address that says it
const SHARED = ["block", "layer", "head", "row", "column", "side"] as const;
export const THEMES = ["auto", "light", "dark"] as const;
const SHOWING: readonly Page[] = ["lecture", "presenter", "sheets"]; // pages of a lecture
export type Theme = (typeof THEMES)[number];

const choiceOf = (place: Place): Choice => ({
  block: place.block || undefined, layer: place.layer, head: place.head, row: place.row, column: place.column, side: place.side,
});

class Studio {
  place = $state<Place>(read(location.hash));
  runs = $state.raw<RunInfo[]>([]);
  listed = $state(false);
  failure = $state("");
  theme = $state<Theme>(remembered<Theme>("theme") ?? "auto");
  /** The language that was chosen by hand; none: that of the lecture, else the browser's. */
  tongue = $state(remembered<string>("language") ?? "");
  /** Counts the questions that were asked: who answers listens to it. */
  asked = $state(0);
  /** Whether what might have stood in each place stands under it. */
  open = $state(remembered<boolean>("alternatives"));
  /** A picture from the user's disk; it does not fit an address. */
  upload = $state.raw<{ name: string; uri: string } | undefined>();
  csv = $state.raw<{ name: string; text: string } | undefined>();
  helping = $state(false);
  /** A computation step by step was asked for, to which the page scrolls once it is drawn. */
  walked = $state(false);
  private before: Page = "ask"; // the page from which a lecture was begun
  /** What may be stopped with Esc. */
  stop: (() => void) | undefined;
  readonly selection = selection;
  readonly drawings = new Set<Mounted>();
  private details = $state.raw<Record<string, RunDetail>>({});
  private failures = $state.raw<Record<string, string>>({});
  private readonly coming = new Map<string, Promise<RunDetail>>();
  private readonly tried = new Map<string, Promise<ExampleList>>();

  constructor() {
    this.selection.set(choiceOf(this.place));
    this.selection.on((now) => untrack(() => {
      for (const key of SHARED) if (key !== "block") (this.place[key] as unknown) = now[key];
      this.place.block = now.block ?? "";
    }));
    addEventListener("popstate", () => {
      this.place = read(location.hash);
      this.settle();
      this.selection.set(choiceOf(this.place));
      this.asked += 1;
    });
  }

  /** The runs, once; then where one is can be completed. */
  async start(): Promise<void> {
    try {
      this.runs = (await get<RunList>("runs")).runs;
      this.settle();
      this.listed = true;
    } catch (error) {
      this.failure = said(error);
    }
  }

  private settle(): void {
    const known = this.place.runs.filter((id) => this.runs.some((run) => run.id === id));
    this.place.runs = known.length ? known : this.runs.slice(0, 1).map(({ id }) => id);
    if (!this.runs.length && !FREE.includes(this.place.page)) this.place.page = "demos";
  }

  get run(): RunInfo | undefined {
    return this.runs.find(({ id }) => id === this.place.runs[0]);
  }

  /** The code of the language that the page should have. A lecture in another language is called `romac.fr` and the like. */
  get language(): string {
    return this.tongue || (SHOWING.includes(this.place.page) && this.place.lecture.split(".")[1]) || preferred();
  }

  /** Whether a training that can be repeated is repeated here; on paper and beside the slides its film is shown. */
  get learns(): boolean {
    return this.place.page !== "sheets" && this.place.page !== "presenter";
  }

  /** Whether alternatives stand under all words. */
  get opens(): boolean {
    return this.open ?? false;
  }

  info(id: string): RunInfo | undefined {
    return this.runs.find((run) => run.id === id);
  }

  /** All that is known of a run, asked for where it is not here; reading it waits for the answer. */
  detail(id: string | undefined): RunDetail | undefined {
    if (id && !this.details[id] && !this.coming.has(id))
      void this.load(id).catch((error: unknown) => { this.failures = { ...this.failures, [id]: said(error) }; });
    return id ? this.details[id] : undefined;
  }

  /** Why a run cannot be had. */
  trouble(id: string | undefined): string {
    return (id && this.failures[id]) || "";
  }

  load(id: string): Promise<RunDetail> {
    const known = this.coming.get(id);
    if (known) return known;
    const coming = get<RunDetail>(`runs/${encodeURIComponent(id)}`).then((detail) => {
      this.details = { ...this.details, [id]: detail };
      return detail;
    });
    this.coming.set(id, coming);
    return coming;
  }

  examples(id: string): Promise<ExampleList> {
    const known = this.tried.get(id) ?? get<ExampleList>(`runs/${encodeURIComponent(id)}/examples`, { most: 24 });
    this.tried.set(id, known);
    known.catch(() => this.tried.delete(id));
    return known;
  }

  /** A page without a question takes the first example. */
  async takeExample(): Promise<void> {
    const { id, reads } = this.run!, has = () => this.place.text || this.place.picture || this.place.date || this.upload || this.csv;
    if (has()) return;
    const { examples: [first] } = await this.examples(id).catch(() => ({ examples: [] }));
    if (!first || id !== this.run?.id || has()) return;
    Object.assign(this.place, { text: first.text && reads === "text" ? first.text : "", picture: first.picture ?? "", date: first.date ?? "" });
    this.asked += 1;
  }

  /** Go somewhere: a step that the browser's Back undoes. */
  go(change: Partial<Place>): void {
    this.write();
    Object.assign(this.place, change);
    history.pushState(null, "", written(this.place));
  }

  turn(page: Page): void {
    if (page !== this.place.page) this.go({ page });
    scrollTo(0, 0);
  }

  /** Show the lecture that was shown last, or all; or go back to the page before. */
  present(all = false): void {
    const { page, lecture } = this.place;
    if (page === "lecture" && !all) return this.turn(this.before);
    if (page !== "lecture") this.before = page;
    this.go({ page: "lecture", ...(all ? { lecture: "", step: 1 } : lecture ? {} : remembered<{ lecture: string; step: number }>("lecture")) });
  }

  /** Choose the run that is asked; what was chosen in the last one's pictures means nothing in it. */
  choose(id: string): void {
    const others = this.place.runs.slice(1).filter((run) => run !== id);
    const same = this.info(id)?.reads === this.run?.reads;
    this.go({ runs: [id, ...others.filter((one) => this.info(one)?.reads === this.info(id)?.reads)], prefix: [], search: {}, silenced: [], target: "", ...(same ? {} : { text: "", picture: "", date: "", channel: "" }) });
    this.selection.set({ block: undefined, layer: undefined, head: undefined, row: undefined, column: undefined, rows: undefined, columns: undefined, side: undefined });
    if (same && this.place.page !== "train") this.ask();
  }

  /** Ask what is in the place. */
  ask(change: Partial<Place> = {}): void {
    this.go(change);
    this.asked += 1;
  }

  /** The address says where one is. */
  write(): void {
    const hash = written(this.place);
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  /** Keep the address up to date; call what is returned to end it. */
  follow(): () => void {
    return $effect.root(() => {
      $effect(() => {
        written(this.place); // reads all of it
        const timer = setTimeout(() => this.write(), PATIENCE);
        return () => clearTimeout(timer);
      });
      $effect(() => {
        document.documentElement.dataset.theme = this.theme;
        remember("theme", this.theme);
      });
      $effect(() => {
        remember("language", this.tongue);
        void speak(this.language);
      });
      $effect(() => { if (this.open !== undefined) remember("alternatives", this.open); });
    });
  }
}

/** What this browser remembers of the last time; nothing where it may not. */
export function remembered<T>(key: string): T | undefined {
  try {
    return JSON.parse(localStorage.getItem(`foveate.${key}`) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

export function remember(key: string, value: unknown): void {
  try {
    localStorage.setItem(`foveate.${key}`, JSON.stringify(value));
  } catch { /* a browser that keeps nothing */ }
}

export const studio = new Studio();
