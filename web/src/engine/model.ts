// A packed model with everything that it needs to answer (`foveate.engine.packed.PackedModel`).
import { tokenStates } from "./characters";
import { CompiledModel, CompiledSearch, type AttentionMap, type Engine, type Output, type Settings } from "./compiled";
import { read, type Header, type Packed, type SearchTree } from "./packed";
import { BOS, EOS, PAD, Tokenizer } from "./tokenizer";

export interface Choices { beamSize?: number; lengthPenalty?: number; count?: number; to?: string }
export interface Drawn { beamSize?: number; count?: number; seed?: number; temperature?: number; topK?: number; topP?: number }
export interface Translation { text: string; score: number; ids: number[] }
export interface Continuation { text: string; logP: number }
/** Rows of a decoder are what is produced, columns what it reads. */
export interface LabelledMap extends AttentionMap { rowLabels: string[]; columnLabels: string[] }

export class PackedModel {
  readonly header: Header;
  readonly #model: CompiledModel;
  readonly #shortlist: Packed["shortlist"];
  readonly #reads: Tokenizer;
  readonly #writes: Tokenizer;
  #characters: Uint8Array | false | undefined; // behind each token that is written; false where each is valid by itself

  /** Throws an error that says why this page cannot run a file. */
  constructor(engine: Engine, file: ArrayBuffer) {
    const { header, weights, shortlist } = read(file), { source, target, text } = header.tokenizers;
    if (header.format) throw new Error("this page does not know the layout of the data's raw lines");
    if (!(target ?? text)) throw new Error("the file lacks a tokenizer");
    this.header = header;
    this.#shortlist = shortlist;
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
      ...this.#plain, end, width: search.beam_size, best, lengthPenalty: search.length_penalty,
      minLength: search.min_length, noRepeat: search.no_repeat, reach: this.header.reach ?? 0,
      never: this.header.task === "language" || this.header.task === "prefix_translation" ? [PAD, BOS] : [],
      ...(sampling && { sampling: { temperature, topK: top_k ?? 0, topP: top_p ?? 1, minP: min_p ?? 0, repetitionPenalty: repetition_penalty, seed } }),
      ...(characters && { characters }),
    };
  }

  /** A search that computes what is given: nothing is left out of its sums. */
  get #plain(): Settings {
    return { start: this.#continues ? EOS : BOS, end: EOS, width: 1, best: 1, lengthPenalty: 0, minLength: 0, noRepeat: 0, reach: 0, never: [] };
  }

  #use<Result>(settings: Settings, use: (search: CompiledSearch) => Result): Result {
    const search = new CompiledSearch(this.#model, settings);
    try {
      return use(search);
    } finally {
      search.free();
    }
  }

  /** The model's own search, or a beam of the given choices, wide enough for the outputs that are wanted. */
  #chosen({ beamSize, lengthPenalty, count = 1 }: Choices): SearchTree {
    let search = this.header.search;
    const isBeam = !search.sampling && (search.beam_size > 1 || search.length_penalty > 0);
    if (beamSize !== undefined) {
      const penalty = lengthPenalty ?? (beamSize === 1 ? 0 : isBeam ? search.length_penalty : 0.6);
      search = { ...search, sampling: false, beam_size: beamSize, length_penalty: penalty };
    } else if (lengthPenalty !== undefined) search = { ...search, length_penalty: lengthPenalty };
    return search.beam_size >= count ? search : { ...search, beam_size: count, length_penalty: search.length_penalty || 0.6 };
  }

  /** The ids that an output of a source may hold. */
  #likely(ids: readonly number[]): number[] {
    const [often, likely] = this.#shortlist!, width = likely.shape[1]!;
    const rows = ids.flatMap((id) => [...likely.values.subarray(id * width, (id + 1) * width)]);
    return [...new Set([...often.values, ...rows])].sort((a, b) => a - b);
  }

  /** The translations of a line, best first; on the way the texts of the beam after each step. */
  *translating(line: string, choices: Choices = {}): Generator<string[], Translation[]> {
    const search = this.#chosen(choices), ids = this.sourceIds(line, choices.to);
    if (!line.trim()) return [{ text: "", score: 0, ids: [] }];
    const limit = Math.trunc(search.max_ratio * (ids.length - 1)) + search.max_extra;
    const vocabulary = this.header.task === "translation" && search.shortlist && this.#shortlist ? this.#likely(ids) : [];
    const compiled = new CompiledSearch(this.#model, this.#settings(search, choices.count ?? 1, EOS));
    try {
      const steps = compiled.outputs([{ ids, limit, vocabulary }], true);
      for (;;) {
        const { done, value } = steps.next();
        if (done) return value[0]!.map((output) => ({ text: this.#writes.decode(output.ids), score: output.score, ids: output.ids }));
        yield value.get(0)?.map((each) => this.#writes.decode(each.ids)) ?? [];
      }
    } finally {
      compiled.free();
    }
  }

  translate(line: string, choices: Choices = {}): Translation[] {
    const steps = this.translating(line, choices);
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
    }
  }

  /** The ids that are read of a line, with its end; what is longer than the model allows is cut. */
  sourceIds(line: string, to?: string): number[] {
    const known = this.languages;
    if (to !== undefined && !known.includes(to)) throw new Error(`no language ${to} to translate to; there are: ${known.join(", ") || "none"}`);
    const ids = this.#reads.encode(to === undefined || !line.trim() ? line : `<2${to}> ${line}`);
    return [...ids.slice(0, this.header.max_length), EOS];
  }

  /** Log p of each token of a target, its end included. */
  score(line: string, target: string): number[] {
    const source = this.sourceIds(line), written = [...this.#writes.encode(target), EOS];
    return [...this.#use(this.#plain, (search) => search.logProbabilities(source, written))];
  }

  /** A continuation of a prompt, or several. */
  generate(prompt: string, length = 200, { beamSize, count = 1, seed, temperature, topK, topP }: Drawn = {}): Continuation[] {
    const own = this.header.search, wide = own.sampling ? own.beam_size : 1;
    const how = beamSize === undefined ? { sampling: true, beam_size: wide } : { sampling: false, beam_size: beamSize, length_penalty: 0 };
    const drawn = { seed: seed ?? own.seed, temperature: temperature ?? own.temperature, top_k: topK ?? own.top_k, top_p: topP ?? own.top_p };
    const ids = this.#writes.encodeLines(prompt), sources = Array.from({ length: count }, () => ({ ids, limit: length }));
    return this.#use(this.#settings({ ...own, ...drawn, ...how } as SearchTree, 1, PAD), (search) => {
      const { value } = search.outputs(sources).next() as IteratorReturnResult<Output[][]>;
      return value.map(([first]) => ({ text: this.#writes.added(ids, first!.ids), logP: first!.logP }));
    });
  }

  /** The probabilities of all labels of a text. */
  classify(line: string): Record<string, number> {
    const names = this.header.labels ?? [];
    if (!line.trim()) return {};
    const ids = [BOS, ...this.#writes.encode(line).slice(0, this.header.max_length), EOS];
    const scores = this.#use(this.#plain, (search) => search.labelScores(ids, names.length));
    const most = Math.max(...scores), powers = Array.from(scores, (score) => Math.exp(score - most)), sum = powers.reduce((a, b) => a + b);
    return Object.fromEntries(names.map((name, n) => [name, powers[n]! / sum]));
  }

  /** The maps of every attention as a target is produced from a line, a text is read, or a line classified. */
  maps(line: string, target: readonly number[] = [], to?: string): LabelledMap[] {
    const names = this.header.attentions ?? [], { task, labels, reach } = this.header;
    const texts = (tokenizer: Tokenizer, ids: readonly number[]) => ids.map((id) => tokenizer.label(id));
    return this.#use(this.#plain, (search) => {
      if (task === "classification") {
        const ids = [BOS, ...this.#writes.encode(line).slice(0, this.header.max_length), EOS], read = texts(this.#writes, ids);
        const scores = search.labelScores(ids, labels!.length), produced = [labels![scores.indexOf(Math.max(...scores))]!];
        return search.maps(names, () => search.labelScores(ids, labels!.length), ids.length, 0)
          .map((map) => ({ ...map, rowLabels: map.name.startsWith("encoder") ? read : produced, columnLabels: read }));
      }
      const source = this.#continues ? [] : this.sourceIds(line, to), joined = task === "prefix_translation" ? source : [];
      const output = this.#continues ? this.#writes.encodeLines(line).slice(0, reach ? reach - 1 : undefined) : target, written = [...output, EOS];
      const read = texts(this.#reads, source), produced = [...texts(this.#reads, joined), ...texts(this.#writes, written)];
      const before = [this.#writes.label(this.#plain.start), ...produced.slice(0, -1)];
      return search.maps(names, () => search.logProbabilities(source, written), source.length, produced.length).map((map) => {
        const encodes = map.name.startsWith("encoder"), own = map.name.endsWith("self_attention");
        return { ...map, rowLabels: encodes ? read : produced, columnLabels: own && !encodes ? before : read };
      });
    });
  }
}
