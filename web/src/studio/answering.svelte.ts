// An answer as it comes: its tokens, its beam, what came of it. Pages ask and read.
import type { AnswerHypothesis, AnswerRequest, AnswerStart, BeamStep, DrawnDone, LabelDone, TextDone, Token } from "./api";
import type { Node } from "../core";
import { isAborted, said, streamed } from "./client";

export type Done = TextDone | LabelDone | DrawnDone;
export type Status = "idle" | "working" | "done" | "stopped" | "failed";
export type AnswerEvent = AnswerStart | Token | BeamStep | Done;
/** Where answers come from: their events, as a run computes them. */
export type AnswerSource = (run: string, question: Partial<AnswerRequest>, signal: AbortSignal) => AsyncIterable<AnswerEvent>;
const fromServer: AnswerSource = (run, question, signal) => streamed<AnswerEvent>(`runs/${encodeURIComponent(run)}/answer`, question, signal);

/** A token as it is shown; `token` is there once the server has told all of it. */
export interface Said {
  text: string;
  p: number;
  special: boolean;
  forced: boolean;
  token?: Token;
}

const PAUSE = 40; // milliseconds between two looks at what has come: a fast run says more than can be drawn

const shown = new WeakMap<Token, Said>(); // the same token is the same object: what has not changed is not drawn again

export function ofToken(token: Token, forced: boolean): Said {
  const known = shown.get(token);
  if (known?.forced === forced) return known;
  const made = told(token, forced);
  shown.set(token, made);
  return made;
}

const told = (token: Token, forced: boolean): Said =>
  ({ text: token.special ? token.piece : token.text, p: Math.exp(token.logP), special: token.special, forced, token });

/** The tokens as words, by which drawings know them. */
export const wordsOf = (said: readonly Said[]): string[] => said.map(({ text, special }) => (special ? text : text.trim() || text));

/** The path to a node of a beam, from its first. */
export function pathOf(nodes: ReadonlyMap<number, Node>, id: number): Node[] {
  const path: Node[] = [];
  for (let node = nodes.get(id); node; node = node.parent === null ? undefined : nodes.get(node.parent)) path.unshift(node);
  return path;
}

export class Answering {
  status = $state<Status>("idle");
  failure = $state("");
  start = $state.raw<AnswerStart | undefined>();
  done = $state.raw<Done | undefined>();
  beam = $state.raw<BeamStep[]>([]);
  /** Which of several outputs is shown. */
  chosen = $state(0);
  private tokens = $state.raw<Token[]>([]);
  private prefix = $state(0); // tokens that were given
  private forced = $state.raw<readonly number[]>([]); // those of them that a user put there
  private known: Token[] = [];
  private stopper: AbortController | undefined;
  private waiting: AnswerEvent[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private pause = PAUSE; // longer where drawing takes long, so that keys and clicks come through

  constructor(private readonly events: AnswerSource = fromServer) {}

  /** Ask a run; an answer that is still on its way is given up. True where it came whole. */
  async ask(run: string, question: Partial<AnswerRequest>, forced: readonly number[] = []): Promise<boolean> {
    this.stopper?.abort();
    const stopper = (this.stopper = new AbortController());
    this.known = this.hypothesis?.tokens ?? [];
    this.waiting = [];
    Object.assign(this, { status: "working", failure: "", beam: [], tokens: [], chosen: 0, prefix: question.prefix?.length ?? 0, forced });
    try {
      for await (const event of this.events(run, question, stopper.signal)) {
        if (stopper.signal.aborted) return false;
        this.waiting.push(event);
        this.timer ??= setTimeout(() => this.hear(), this.pause);
      }
      this.hear();
      if (this.status === "working") Object.assign(this, { status: "failed", failure: "the answer was cut off" });
      return this.status === "done";
    } catch (error) {
      if (stopper !== this.stopper) return false; // another question has been asked
      if (isAborted(error)) this.status = "stopped";
      else Object.assign(this, { status: "failed", failure: said(error) });
      return false;
    }
  }

  stop(): void {
    this.stopper?.abort();
    this.hear();
    if (this.status === "working") this.status = "stopped";
  }

  clear(): void {
    this.stop();
    Object.assign(this, { status: "idle", failure: "", beam: [], tokens: [], start: undefined, done: undefined });
  }

  /** Take in what has come. */
  private hear(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const began = performance.now();
    setTimeout(() => (this.pause = Math.min(25 * PAUSE, Math.max(PAUSE, 4 * (performance.now() - began))))); // once it is drawn
    const events = this.waiting.splice(0), of = <E extends AnswerEvent>(name: E["event"]) => events.filter((event): event is E => event.event === name);
    const [start] = of<AnswerStart>("start"), [done] = of<Done>("done"), tokens = of<Token>("token"), beam = of<BeamStep>("beam");
    if (start) Object.assign(this, { start, done: undefined });
    if (tokens.length) this.tokens = [...this.tokens, ...tokens];
    if (beam.length) {
      const steps = [...this.beam];
      for (const each of beam) steps[each.step] = each; // a step may come again, once it is known what was cut off
      this.beam = steps;
    }
    if (done) Object.assign(this, { done, status: "done" });
  }

  get hypotheses(): AnswerHypothesis[] {
    return this.done?.kind === "text" ? this.done.hypotheses : [];
  }

  get hypothesis(): AnswerHypothesis | undefined {
    return this.hypotheses[this.chosen];
  }

  get nodes(): Map<number, Node> {
    return new Map(this.beam.flatMap(({ nodes }) => nodes).map((node) => [node.id, node]));
  }

  /** What is to be read so far. */
  get said(): Said[] {
    const own = this.hypothesis?.tokens;
    const isForced = (i: number) => i < this.prefix && (i === this.prefix - 1 || this.forced.includes(i));
    if (own) return own.map((token, i) => ofToken(this.remembering(token, i, own), isForced(i)));
    const best = this.beam.at(-1)?.best;
    if (best === undefined) return this.tokens.map((token, i) => ofToken(token, isForced(i)));
    let before = 0;
    return pathOf(this.nodes, best).map(({ text, logP }, i) => {
      const p = Math.exp(logP - before);
      before = logP;
      return { text, p, special: /^<\/?\w+>$/.test(text), forced: isForced(i) };
    });
  }

  /** A forced token has no rivals of its own: those of the answer in which it was forced still hold. */
  private remembering(token: Token, i: number, own: Token[]): Token {
    const before = this.known[i];
    if (i >= this.prefix || token.alternatives.length > 1 || !before) return token;
    const same = own.slice(0, i).every(({ id }, k) => this.known[k]?.id === id);
    return same ? Object.assign(token, { alternatives: before.alternatives, entropy: before.entropy }) : token;
  }

  /** The ids of an output up to a place, and another one there. */
  forcing(place: number, id: number): number[] {
    return [...(this.hypothesis?.tokens ?? this.tokens).slice(0, place).map((token) => token.id), id];
  }
}
