// The events of an answer, as the server of the studio sends them, from a packed model.
import { base64Of } from "../core/numbers";
import type { AttentionDrawing, Block, Node, SceneDrawing, WordsDrawing } from "../core/types";
import type { AnswerRequest, AnswerStart, BeamStep, LabelDone, TextDone, Token } from "../studio/api";
import type { Units } from "./axes";
import type { Output, Partial as Hypothesis } from "./compiled";
import type { LabelledMap, PackedModel, Silence } from "./model";
import { EOS } from "./tokenizer";

const LENGTH = 200, SHORT = 20, OTHERS = 8, MOST_MAPPED = 400; // tokens of a continuation, of a short one, those in the place of each, those of an input and output that have a map
const MOST_CHARACTERS = 100_000, MOST_READ = 2000; // of an input, and tokens of a beginning: more would take minutes, or all memory
export type Request = Partial<AnswerRequest> & { units?: Units };
/** What is looked at in an answer: the maps between units, or the stages of a head. */
export type Look = Request & { ids?: readonly number[] } & ({ view: "attention" } | { view: "scene"; block: string; layer: number; head: number });
type Done = TextDone | LabelDone;

/** The name of a block of `decoder.layers.1.cross_attention`. */
const blockOf = (name: string) => name.split(".").filter((part) => part !== "layers" && !/^\d+$/.test(part)).join(".");

/** The attention of each block, layer by layer; weights of silenced heads are 0. */
export function attention(maps: readonly LabelledMap[], silent: readonly Silence[]): AttentionDrawing {
  const blocks = new Map<string, Block>();
  for (const { name, heads, rows, columns, values, rowLabels, columnLabels } of maps) {
    const weights = values.slice(), own = blockOf(name);
    silent.forEach((each) => each.name === name && weights.fill(0, ...(each.head === null ? [] : [each.head * rows * columns, (each.head + 1) * rows * columns])));
    if (!blocks.has(own))
      blocks.set(own, { name: own, rowMeans: own.startsWith("encoder") ? "at" : "producing", rows: rowLabels, columns: columnLabels, layers: [], hasHeads: true, kinds: [] });
    blocks.get(own)!.layers.push({ shape: [heads, rows, columns], codec: "f32", data: base64Of(new Uint8Array(weights.buffer)), url: "" });
  }
  return { kind: "attention", title: "", caption: "", notes: [], form: "matrix", blocks: [...blocks.values()], block: "cross_attention", layer: -1, head: null, scale: "absolute" };
}

/** The name of the attention of a block in a layer. */
function attentionOf(model: PackedModel, block: string, layer: number): string {
  const name = model.header.attentions.filter((each) => blockOf(each) === block).at(layer);
  if (name === undefined) throw new Error(`no attention ${block} in layer ${layer}`);
  return name;
}

/** The heads of a request by the names of their attentions. */
const silences = (model: PackedModel, request: Request): Silence[] =>
  (request.silenced ?? []).map(({ block, layer, head }) => ({ name: attentionOf(model, block, layer), head: head ?? null }));

/** The input of a request. Throws an error that says why there can be no answer. */
function inputOf({ header: { task } }: PackedModel, { text = "" }: Request): string {
  if (text.length > MOST_CHARACTERS) throw new Error(`the text has ${counted(text.length)} characters; this page reads ${counted(MOST_CHARACTERS)} at once`);
  if (!text.trim() && task !== "language") throw new Error("the text is empty");
  return task === "language" ? text : text.split(/\s*\n\s*/).join(" ");
}

/** A drawing of an answer that is there: of its attention, or of the inside of one head. */
export function look(model: PackedModel, request: Look): AttentionDrawing | SceneDrawing {
  const text = inputOf(model, request), { ids = [], to, units } = request, silent = silences(model, request);
  model.silence(silent);
  if (request.view === "attention") return attention(model.maps(text, ids, to ?? undefined, units), silent);
  return model.inside(attentionOf(model, request.block, request.layer), request.head, text, ids, to ?? undefined);
}

const counted = (number: number) => number.toLocaleString("en");
/** The ids of an output with its end. */
const written = ({ ids, ended }: Output) => (ended ? [...ids, EOS] : ids);

/** A beam as it went: its nodes, step by step. */
class Beam {
  readonly steps: Node[][] = [];
  readonly #nodes = new Map<string, Node>(); // by the ids of their paths

  constructor(readonly model: PackedModel, readonly prompt: readonly number[], readonly penalty: (length: number) => number) {}

  add(column: readonly Hypothesis[]): BeamStep {
    this.steps.push(column.map(({ ids, logP }) => this.#node(ids, logP, logP / this.penalty(ids.length), "live")));
    return this.step(this.steps.length - 1);
  }

  step(step: number): BeamStep {
    const nodes = this.steps[step]!;
    return { event: "beam", step, nodes, best: nodes[0]!.id, text: "" };
  }

  #node(ids: readonly number[], logP: number, score: number, state: Node["state"]): Node {
    const before = ids.slice(0, -1), parent = this.#nodes.get(before.join())?.id ?? null;
    const node: Node = { id: this.#nodes.size, parent, text: this.model.textOf([...this.prompt, ...before], ids.at(-1)!), logP, score, state };
    this.#nodes.set(ids.join(), node);
    return node;
  }

  /** Take in the outputs: hypotheses that nothing continues were cut off. */
  end(outputs: readonly Output[]): void {
    for (const output of outputs) {
      const ids = written(output);
      if (!this.#nodes.has(ids.join())) (this.steps[ids.length - 1] ??= []).push(this.#node(ids, output.logP, output.score, "done"));
    }
    const continued = new Set([...this.#nodes.values()].map(({ parent }) => parent)), left = new Set(outputs.flatMap((output) => this.path(output)));
    for (const node of this.#nodes.values()) if (!continued.has(node.id) && !left.has(node)) node.state = "pruned";
    this.steps.forEach((nodes) => nodes.sort((a, b) => b.score - a.score));
  }

  path(output: Output): Node[] {
    return written(output).map((_, i, all) => this.#nodes.get(all.slice(0, i + 1).join())!);
  }

  /** Log p of each token of an output. */
  logPs(output: Output): number[] {
    return this.path(output).map(({ logP }, i, path) => logP - (path[i - 1]?.logP ?? 0));
  }
}

/** What log p of the label loses without each token of a text (Li et al., 2016). */
function relevance(model: PackedModel, text: string, label: string): WordsDrawing {
  const values = model.losses(text, label), most = Math.max(...values.map(({ loss }) => Math.abs(loss)), 1e-9);
  return {
    kind: "words", title: "Relevance", caption: `How much log p of ${label} falls without each token.`, notes: [], told: "log p lost", total: "", condition: "",
    words: values.map(({ text: word, loss }) => ({ text: word, value: loss, space: true, note: "", alternatives: [] })), least: -most, most,
  };
}

/** The answer to a request; throws an error that says why there is none. */
export function* answer(model: PackedModel, run: string, request: Request): Generator<AnswerStart | Token | BeamStep, Done> {
  const began = performance.now(), { task, max_length, reach } = model.header, search = request.search ?? {};
  const text = inputOf(model, request), silent = silences(model, request), units = request.units ?? "auto";
  model.silence(silent);
  const cut = task === "language" ? 0 : Math.max(0, model.length(text) - max_length);
  yield { event: "start", run, source: [], unknown: model.unknown(text), prefix: request.prefix ?? [], cut };
  const milliseconds = () => performance.now() - began, drawn = (maps: LabelledMap[]) => (maps.length ? [attention(maps, silent)] : []);
  if (task === "classification") {
    const labels = Object.entries(model.classify(text)).map(([label, p]) => ({ label, p })).sort((a, b) => b.p - a.p);
    const drawings = [relevance(model, text, labels[0]!.label), ...drawn(model.maps(text, [], undefined, units))];
    return { event: "done", kind: "label", labels, cut, drawings, milliseconds: milliseconds() };
  }
  const { beamSize, lengthPenalty, temperature, seed, maxExtra } = search, to = request.to ?? undefined, prompt = model.promptIds(text), length = prompt.length || model.length(text);
  if (prompt.length > MOST_READ) throw new Error(`the text has ${counted(prompt.length)} tokens; this page reads ${counted(MOST_READ)} at once`);
  const choices = { beamSize: beamSize ?? undefined, lengthPenalty: lengthPenalty ?? undefined, count: request.hypotheses, prefix: request.prefix, to };
  const room = reach ? Math.max(SHORT, reach - 1 - prompt.length) : LENGTH; // past its reach a model begins anew
  const steps = task === "language" ? model.continuing(text, Math.min(maxExtra ?? LENGTH, room), { ...choices, temperature: temperature ?? undefined, seed: seed ?? undefined }) : model.translating(text, choices);
  const beam = new Beam(model, prompt, model.penalty(choices));
  for (;;) {
    const { done, value } = steps.next();
    if (!done) {
      if (value.length) yield beam.add(value);
      continue;
    }
    beam.end(value);
    for (const step of beam.steps.keys()) yield beam.step(step);
    const hypotheses = value.map((output) => {
      const logP = beam.logPs(output), tokens = model.tokens(text, output, logP, request.topK ?? OTHERS, to);
      return { text: tokens.map((token) => token.text).join(""), formality: "" as const, logP: output.logP, score: output.score, ended: output.ended, tokens, path: beam.path(output).map(({ id }) => id) };
    });
    return { event: "done", kind: "text", hypotheses, drawings: value.flatMap(({ ids }) => drawn(ids.length + length <= MOST_MAPPED ? model.maps(text, ids, to, units) : [])), milliseconds: milliseconds() };
  }
}
