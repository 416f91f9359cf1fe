// The models of a page as a source of answers: their files are read when they are first asked.
import { hasSIMD } from "../engine/compiled";
import type { AnyDrawing, Choice } from "../core";
import type { Look as Wanted, Request } from "../engine/answer";
import type { AnswerEvent } from "../studio/answering.svelte";
import type { SilencedHead } from "../studio/api";
import type Cards from "../learn/Cards.svelte";
import type Learn from "../learn/Learn.svelte";
import EngineWorker from "./worker?worker&inline";

/** A model as `foveate publish` describes it. */
export interface Published {
  name: string;
  file: string; // the name of the packed file in the page
  task: "translation" | "prefix_translation" | "language" | "classification";
  notes: string[];
  examples: string[];
  languages: string[]; // into which it translates, where they are several
  beamSize: number;
  temperature: number;
  attends: boolean; // whether it has attention
  subwords: boolean; // whether its tokens may be parts of words
}
/** What a page has besides answers. */
export interface Extras { Learn: typeof Learn; Cards: typeof Cards }
/** What was done to an answer. */
export interface Done { prefix: number[]; places: number[]; silent: SilencedHead[] }
/** Where one looks; rows count the words of the answer, or those of the map. */
export interface Look extends Pick<Choice, "block" | "layer" | "head" | "row" | "column" | "side"> { isSaid: boolean }
/** What came of a card, and the text that it began with. */
export interface Told { note: string; card: string; text: string }
export interface PageData { title: string; models: Published[]; engines: { simd: string; scalar: string } }

export type Asked = { id: number } & (
  | { kind: "engine"; text: string } | { kind: "model"; name: string; text: string }
  | { kind: "answer"; name: string; question: Request }
  | { kind: "look"; name: string; look: Wanted } | { kind: "stop" });
export interface News { id: number; event?: AnswerEvent; drawing?: AnyDrawing; failure?: string }
type Wish = Asked extends infer One ? (One extends Asked ? Omit<One, "id"> : never) : never;

const files: Record<string, string> = ((globalThis as { foveateFiles?: Record<string, string> }).foveateFiles ??= {});

/** The text of a file: it stands in the page, or in a script of its name. */
async function textOf(name: string): Promise<string> {
  const inside = document.getElementById(name)?.textContent;
  if (inside) return inside;
  const script = document.createElement("script");
  script.src = `files/${encodeURIComponent(name)}.js`;
  await new Promise<void>((go, fail) => {
    script.onload = () => go();
    script.onerror = () => fail(new Error(`files/${name}.js is missing beside this page`));
    document.head.append(script);
  });
  return files[name]!;
}

export class Source {
  readonly #worker = new EngineWorker();
  readonly #listeners = new Map<number, (told: News) => void>();
  readonly #loading = new Map<string, Promise<unknown>>();
  #count = 0;

  constructor(readonly data: PageData) {
    this.#worker.onmessage = ({ data: told }: MessageEvent<News>) => this.#listeners.get(told.id)?.(told);
    this.#worker.onerror = ({ message }) => this.#listeners.forEach((tell, id) => tell({ id, failure: message || "the engine does not start in this browser" }));
  }

  #send(wish: Wish, listen: (told: News) => void): number {
    const id = this.#count++;
    this.#listeners.set(id, listen);
    this.#worker.postMessage({ ...wish, id });
    return id;
  }

  #done(wish: Wish): Promise<News> {
    return new Promise((go, fail) => {
      const id = this.#send(wish, (told) => {
        this.#listeners.delete(id);
        if (told.failure === undefined) go(told);
        else fail(new Error(told.failure));
      });
    });
  }

  #once(name: string, load: () => Promise<unknown>): Promise<unknown> {
    if (!this.#loading.has(name)) this.#loading.set(name, load().catch((error) => { this.#loading.delete(name); throw error; }));
    return this.#loading.get(name)!;
  }

  async #load({ name, file }: Published): Promise<void> {
    const { simd, scalar } = this.data.engines;
    await this.#once("engine", async () => this.#done({ kind: "engine", text: await textOf(hasSIMD() ? simd : scalar) }));
    await this.#once(name, async () => this.#done({ kind: "model", name, text: await textOf(file) }));
  }

  /** A drawing of an answer that is there. */
  async look(run: string, look: Wanted): Promise<AnyDrawing> {
    return (await this.#done({ kind: "look", name: run, look })).drawing!;
  }

  /** The events of an answer, as they come. */
  async *events(run: string, question: Request, signal: AbortSignal): AsyncGenerator<AnswerEvent> {
    await this.#load(this.data.models.find(({ name }) => name === run)!);
    const told: News[] = [];
    let wake = () => {};
    const id = this.#send({ kind: "answer", name: run, question }, (next) => { told.push(next); wake(); });
    signal.addEventListener("abort", () => { this.#worker.postMessage({ kind: "stop", id } satisfies Asked); wake(); });
    try {
      while (!signal.aborted) {
        for (const { event, failure } of told.splice(0)) {
          if (failure !== undefined) throw new Error(failure);
          if (!event) return;
          yield event;
        }
        await new Promise<void>((go) => { wake = go; if (told.length) go(); });
      }
    } finally {
      this.#listeners.delete(id);
    }
  }
}
