// A packed model with everything that it needs to answer (`foveate.engine.packed.PackedModel`).
import { axisOf, END, joined, linesAxis, merged, single, START, type Axis, type Units } from "./axes";
import { tokenStates } from "./characters";
import { CompiledModel, CompiledSearch, STAGES, type AttentionMap, type Engine, type Output, type Partial, type Settings, type Source, type Stage } from "./compiled";
import { read, STOPS, type Header, type Packed, type SearchTree } from "./packed";
import { silenced } from "./silence";
import { inside } from "./steps";
import { BOS, EOS, PAD, splitWords, Tokenizer, UNK } from "./tokenizer";
import type { SceneDrawing } from "../core/types";
import type { Token } from "../studio/api";

export interface Choices { beamSize?: number; lengthPenalty?: number; count?: number; to?: string; prefix?: readonly number[] }
export interface Drawn extends Choices { seed?: number; temperature?: number; topK?: number; topP?: number }
/** A head of an attention by its name; null: all of them. */
export interface Silence { name: string; head: number | null }
export interface Translation { text: string; score: number; ids: number[] }
export interface Continuation { text: string; logP: number }
/** Rows of a decoder are what is produced, columns what it reads. */
export interface LabelledMap extends AttentionMap { rowLabels: string[]; columnLabels: string[] }

/** A computation whose attentions are observed. */
interface Pass { read: number; written: number; compute(search: CompiledSearch): unknown; axes(name: string): readonly [rows: Axis, columns: Axis] }

const NEAR = 8; // tokens before another on which its text depends

/** The places of the highest values, best first. */
function highest(values: Float32Array, count: number): number[] {
  const best: number[] = [];
  values.forEach((value, place) => {
    if (best.length === count && value <= values[best.at(-1)!]!) return;
    best.splice(best.findLastIndex((other) => values[other]! >= value) + 1, 0, place);
    if (best.length > count) best.pop();
  });
  return best;
}

export class PackedModel {
  readonly header: Header;
  readonly #packed: Packed;
  #model: CompiledModel;
  #silent: readonly Silence[] = [];
  readonly #reads: Tokenizer;
  readonly #writes: Tokenizer;
  #characters: Uint8Array | false | undefined; // behind each token that is written; false where each is valid by itself

  /** Throws an error that says why this page cannot run a file. */
  constructor(engine: Engine, file: ArrayBuffer) {
    const packed = read(file), { header, weights } = packed, { source, target, text } = header.tokenizers;
    if (header.format) throw new Error("this page does not read raw lines");
    if (!(target ?? text)) throw new Error("the file lacks a tokenizer");
    this.header = header;
    this.#packed = packed;
    this.#writes = new Tokenizer((target ?? text)!);
    this.#reads = source ? new Tokenizer(source) : this.#writes;
    this.#model = new CompiledModel(engine, header.program, weights);
  }

  get languages(): string[] {
    return this.#reads.languages;
  }

  get #continues(): boolean {
    return this.header.task === "language";
  }

  #settings(search: SearchTree, best: number, end: number): Settings {
    const { sampling, top_k, top_p, min_p, temperature, repetition_penalty, seed } = search;
    const characters = search.whole_characters && (this.#characters ??= tokenStates(this.#writes.surfaces) ?? false);
    return {
      ...this.#plain, end, width: search.beam_size, best, lengthPenalty: search.length_penalty, lengthOffset: search.length_offset ?? 5, stop: STOPS.indexOf(search.stop ?? "count"), forcedEnd: search.forced_end,
      minLength: search.min_length, noRepeat: search.no_repeat, reach: this.header.reach ?? 0,
      never: this.#never, certain: this.#writes.certain,
      ...(sampling && { sampling: { temperature, topK: top_k ?? 0, topP: top_p ?? 1, minP: min_p ?? 0, repetitionPenalty: repetition_penalty, seed } }),
      ...(characters && { characters }),
    };
  }

  /** Let these heads add nothing from now on, and all others again. */
  silence(heads: readonly Silence[]): void {
    if (JSON.stringify(heads) === JSON.stringify(this.#silent)) return;
    const counts = new Map(this.maps("a").map(({ name, heads: count }) => [name, count]));
    const weights = heads.reduce((all, { name, head }) => silenced({ ...this.#packed, weights: all }, name, head, counts.get(name) ?? 0), this.#packed.weights);
    const model = new CompiledModel(this.#model.engine, this.header.program, weights);
    this.#model.free();
    this.#model = model;
    this.#silent = heads;
  }

  get #never(): number[] {
    return this.#continues || this.header.task === "prefix_translation" ? [PAD, BOS] : [];
  }

  /** A search that computes what is given: nothing is left out of its sums. */
  get #plain(): Settings {
    return { start: this.#continues ? EOS : BOS, end: EOS, width: 1, best: 1, lengthPenalty: 0, lengthOffset: 5, stop: 0, minLength: 0, noRepeat: 0, reach: 0, never: [] };
  }

  #use<Result>(settings: Settings, use: (search: CompiledSearch) => Result): Result {
    const search = new CompiledSearch(this.#model, settings);
    try {
      return use(search);
    } finally {
      search.free();
    }
  }

  /** What the log p of so many tokens is divided by (`foveate.decode.beam.Beam.penalty`). */
  penalty(choices: Choices): (length: number) => number {
    const { length_penalty, length_offset = 5 } = this.#chosen(choices);
    return (length) => ((length_offset + length) / (length_offset + 1)) ** (this.#continues ? 0 : length_penalty);
  }

  /** As `foveate.decode.engine.chosen` and `widened`: the model's own search, or a beam of the given choices. */
  #chosen({ beamSize, lengthPenalty, count = 1 }: Choices): SearchTree {
    let search = this.header.search;
    const isBeam = search.method ? search.method === "beam" : !search.sampling && (search.beam_size > 1 || search.length_penalty > 0);
    let isGreedy = !isBeam && !search.sampling;
    if (beamSize === 1 && lengthPenalty === undefined && !search.sampling) {
      search = { ...search, beam_size: 1, length_penalty: 0 };
      isGreedy = true;
    } else if (beamSize !== undefined) {
      search = { ...search, sampling: false, beam_size: beamSize, length_penalty: lengthPenalty ?? (isBeam ? search.length_penalty : 0.6) };
      isGreedy = false;
    } else if (lengthPenalty !== undefined) search = { ...search, length_penalty: lengthPenalty };
    return search.beam_size >= count ? search : { ...search, beam_size: count, length_penalty: isGreedy ? 0.6 : search.length_penalty };
  }

  /** The ids that an output of a source may hold. */
  #likely(ids: readonly number[]): number[] {
    const [often, likely] = this.#packed.shortlist!, width = likely.shape[1]!;
    const rows = ids.flatMap((id) => [...likely.values.subarray(id * width, (id + 1) * width)]);
    return [...new Set([...often.values, ...rows])].sort((a, b) => a - b);
  }

  /** The outputs of a source, best first; on the way the hypotheses after each step. */
  *#searching(settings: Settings, source: Source): Generator<Partial[], Output[]> {
    const search = new CompiledSearch(this.#model, settings);
    try {
      const steps = search.outputs([source], true);
      for (;;) {
        const { done, value } = steps.next();
        if (done) return value[0]!;
        yield value.get(0) ?? [];
      }
    } finally {
      search.free();
    }
  }

  /** The translations of a line, best first; on the way the hypotheses after each step. */
  translating(line: string, choices: Choices = {}): Generator<Partial[], Output[]> {
    const search = this.#chosen(choices), ids = this.sourceIds(line, choices.to), given = choices.prefix ?? [], opening = this.#opening(line, choices.to);
    const prefix = opening.every((id, n) => id === given[n]) ? given : [...opening, ...given];
    const limit = Math.max(Math.trunc(search.max_ratio * (ids.length - 1)), prefix.length) + search.max_extra;
    const shortens = this.header.task === "translation" && search.shortlist && this.#packed.shortlist && !prefix.length;
    return this.#searching(this.#settings(search, choices.count ?? 1, EOS), { ids, limit, prefix, vocabulary: shortens ? this.#likely(ids) : [] });
  }

  translate(line: string, choices: Choices = {}): Translation[] {
    if (!line.trim()) return [{ text: "", score: 0, ids: [] }];
    const steps = this.translating(line, choices);
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value.map(({ ids, score }) => ({ text: this.#writes.decode(ids), score, ids }));
    }
  }

  /** The ids that are read of a line, with its end; what is longer than the model allows is cut. */
  sourceIds(line: string, to?: string): number[] {
    const known = this.languages;
    if (to !== undefined && !known.includes(to)) throw new Error(`cannot translate to ${to}; the languages are: ${known.join(", ") || "none"}`);
    const ids = this.#reads.encode(to === undefined || !line.trim() ? line : `<2${to}> ${line}`);
    return [...ids.slice(0, this.header.max_length), EOS];
  }

  /** The ids with which the outputs of a line begin. */
  #opening(line: string, to?: string): number[] {
    return this.#writes.opening(to === undefined ? line : `<2${to}> ${line}`);
  }

  /** Log p of each token of a target, its end included. */
  score(line: string, target: string): number[] {
    const opening = this.#opening(line), source = this.sourceIds(line), written = [...opening, ...this.#writes.encode(target), EOS];
    return this.#use(this.#plain, (search) => Array.from(search.logProbabilities(source, written), (logP, n) => (n < opening.length ? 0 : logP)));
  }

  #sampled({ beamSize, seed, temperature, topK, topP }: Drawn): Settings {
    const own = this.header.search, wide = own.sampling ? own.beam_size : 1;
    const how = beamSize === undefined ? { sampling: true, beam_size: wide } : { sampling: false, beam_size: beamSize, length_penalty: 0 };
    const drawn = { seed: seed ?? own.seed, temperature: temperature ?? own.temperature, top_k: topK ?? own.top_k, top_p: topP ?? own.top_p };
    return this.#settings({ ...own, ...drawn, ...how } as SearchTree, 1, PAD);
  }

  /** A continuation of a prompt; on the way the hypotheses after each step. */
  continuing(prompt: string, length: number, drawn: Drawn = {}): Generator<Partial[], Output[]> {
    const { prefix = [] } = drawn;
    return this.#searching(this.#sampled(drawn), { ids: this.#writes.encodeLines(prompt), limit: Math.max(length, prefix.length + 1), prefix });
  }

  /** A continuation of a prompt, or several. */
  generate(prompt: string, length = 200, drawn: Drawn = {}): Continuation[] {
    const ids = this.#writes.encodeLines(prompt), sources = Array.from({ length: drawn.count ?? 1 }, () => ({ ids, limit: length }));
    return this.#use(this.#sampled(drawn), (search) => {
      const { value } = search.outputs(sources).next() as IteratorReturnResult<Output[][]>;
      return value.map(([first]) => ({ text: this.#writes.added(ids, first!.ids), logP: first!.logP }));
    });
  }

  /** The ids of a text that is classified; what is longer than the model allows is cut. */
  #labelledIds(line: string): number[] {
    return [BOS, ...this.#writes.encode(line).slice(0, this.header.max_length), EOS];
  }

  /** The probabilities of all labels of some ids. */
  #probabilities(ids: readonly number[]): number[] {
    const scores = this.#use(this.#plain, (search) => search.labelScores(ids, this.header.labels!.length));
    const most = Math.max(...scores), powers = Array.from(scores, (score) => Math.exp(score - most)), sum = powers.reduce((a, b) => a + b);
    return powers.map((power) => power / sum);
  }

  /** The probabilities of all labels of a text. */
  classify(line: string): Record<string, number> {
    if (!line.trim()) return {};
    const each = this.#probabilities(this.#labelledIds(line));
    return Object.fromEntries(this.header.labels!.map((name, n) => [name, each[n]!]));
  }

  /** What log p of a label loses where each token of a text is left out. */
  losses(line: string, label: string): { text: string; loss: number }[] {
    const ids = this.#labelledIds(line), logP = (own: readonly number[]) => Math.log(this.#probabilities(own)[this.header.labels!.indexOf(label)]!);
    const whole = logP(ids);
    return ids.slice(1, -1).map((id, i) => ({ text: this.#writes.label(id), loss: whole - logP(ids.toSpliced(i + 1, 1)) }));
  }

  /** The words of a text with parts that the tokenizer does not know. */
  unknown(text: string): string[] {
    return [...new Set(splitWords(text))].filter((word) => this.#reads.encode(word).includes(UNK));
  }

  /** How many tokens a text has. */
  length(text: string): number {
    return this.#reads.encode(text).length;
  }

  /** The ids that stand before an output in its text. */
  promptIds(text: string): number[] {
    return this.#continues ? this.#writes.encodeLines(text) : [];
  }

  #texts(ids: readonly number[]): string[] {
    return this.#continues ? this.#writes.textsOfLines(ids) : this.#writes.texts(ids);
  }

  /** Whether an id has no text: in lines the end is their break. */
  #isSilent(id: number): boolean {
    return !this.#writes.surfaces[id]!.length && !(this.#continues && id === EOS);
  }

  /** The text that an id adds to those before it; the name of one without text. */
  textOf(before: readonly number[], id: number): string {
    return (!this.#isSilent(id) && this.#texts([...before.slice(-NEAR), id]).at(-1)) || this.#writes.label(id);
  }

  /** The tokens of an output of a source and of its end, whose log p are known, and the `most` likely ones in the place of each. */
  tokens(text: string, { ids, ended }: Pick<Output, "ids" | "ended">, known: readonly number[], most: number, to?: string): Token[] {
    const prompt = this.promptIds(text), written = ended ? [...ids, EOS] : ids, { reach } = this.header;
    const source = this.#continues ? prompt : this.sourceIds(text, to), texts = this.#texts([...prompt, ...ids]).slice(prompt.length);
    const fits = !reach || prompt.length + ids.length < reach; // a language model that has read more began anew
    const all = fits ? this.#use({ ...this.#plain, never: this.#never }, (search) => search.distributions(source, written)) : [];
    return written.map((id, i): Token => {
      const logP = all[i] ?? new Float32Array(), before = [...prompt, ...written.slice(0, i)];
      return {
        event: "token", i, id, text: texts[i] ?? "", piece: this.#writes.label(id), special: this.#isSilent(id), logP: known[i]!,
        entropy: logP.reduce((sum, each) => (each > -Infinity ? sum - Math.exp(each) * each : sum), 0),
        alternatives: highest(logP, most).map((other) => ({ id: other, text: this.textOf(before, other), p: Math.exp(logP[other]!) })),
      };
    });
  }

  /** What is computed as a target is produced from a line, a text is read, or a line classified; how many positions are read and produced; the axes of an attention. */
  #pass(line: string, target: readonly number[], to: string | undefined, units: Units): Pass {
    const { task, labels, reach } = this.header;
    if (task === "classification") {
      const ids = this.#labelledIds(line), odds = this.#probabilities(ids), count = labels!.length;
      const read = axisOf(this.#writes.read(line, ids.slice(1, -1)), units, [START], [END]), produced = single(labels![odds.indexOf(Math.max(...odds))]!);
      return { read: ids.length, written: 0, compute: (search) => search.labelScores(ids, count), axes: (name) => [name.startsWith("encoder") ? read : produced, read] };
    }
    if (this.#continues) {
      const ids = [...this.#writes.encodeLines(line), ...target].slice(0, reach ? reach - 1 : undefined), written = [...ids, EOS];
      const axes = [linesAxis(this.#writes, written, units), linesAxis(this.#writes, [EOS, ...ids], units)] as const;
      return { read: 0, written: written.length, compute: (search) => search.logProbabilities([], written), axes: () => axes };
    }
    const source = this.sourceIds(line, to), written = [...target, EOS], addressed = to === undefined ? line : `<2${to}> ${line}`;
    const reads = this.#reads.read(addressed, source.slice(0, -1)), writes = this.#writes.written(target), read = axisOf(reads, units, [], [END]);
    const compute = (search: CompiledSearch) => search.logProbabilities(source, written);
    if (task === "prefix_translation") {
      const text = joined(read, axisOf(writes, units)), axes = [joined(text, single(END)), joined(single(START), text)] as const;
      return { read: source.length, written: source.length + written.length, compute, axes: () => axes };
    }
    const produced = axisOf(writes, units, [], [END]), before = axisOf(writes, units, [START]);
    return { read: source.length, written: written.length, compute, axes: (name) => (name.startsWith("encoder") ? [read, read] : [produced, name.endsWith("self_attention") ? before : read]) };
  }

  /** The maps of every attention as a target is produced from a line, a text is read, or a line classified. */
  maps(line: string, target: readonly number[] = [], to?: string, units: Units = "tokens"): LabelledMap[] {
    const { read, written, compute, axes } = this.#pass(line, target, to, units);
    return this.#use(this.#plain, (search) => search.maps(this.header.attentions, () => compute(search), read, written)).map((map) => {
      const [rows, columns] = axes(map.name);
      return { ...merged(map, rows, columns), rowLabels: rows.labels, columnLabels: columns.labels };
    });
  }

  /** The inside of an attention and a head of it, in the same computation. */
  inside(name: string, head: number, line: string, target: readonly number[] = [], to?: string): SceneDrawing {
    const number = this.header.attentions.indexOf(name), { compute, axes } = this.#pass(line, target, to, "tokens"), [{ labels: maps }, { labels: columns }] = axes(name), before = axes(name.replace("cross", "self"))[1].labels, rows = before.length === maps.length ? before : maps; // inputs
    if (number < 0) throw new Error(`no attention ${name}`);
    const all = this.#use(this.#plain, (search) => search.stages(STAGES.map((stage) => [number, stage] as const), () => compute(search)));
    const flat = Object.fromEntries(STAGES.map((stage, n) => [stage, all[n]!])) as Record<Stage, Float32Array>;
    return inside({ name, flat, rows, columns, writes: rows.join() === maps.join() ? [] : maps, equations: this.header.equations?.[number] ?? {} }, head);
  }
}
