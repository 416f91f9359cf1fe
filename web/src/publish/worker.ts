// The engine in a worker: models of packed files, and their answers one after the other.
import { bytesOf } from "../core/numbers";
import { answer, look } from "../engine/answer";
import { Engine } from "../engine/compiled";
import { PackedModel } from "../engine/model";
import type { Asked, News } from "./source";

const TURN = 25; // milliseconds of work between two looks at whether an answer is still wanted
const models = new Map<string, PackedModel>(), wanted = new Set<number>(); // `wanted`: the answers that are asked for and not given up
let engine: Promise<Engine>, before: Promise<unknown> = Promise.resolve();

const tell = (told: News) => postMessage(told);
const pause = () => new Promise<void>((go) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); go(); };
  port2.postMessage(0);
});

/** The bytes of a file, which is base64 of gzip. */
const unpacked = (text: string) => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

async function work(asked: Asked): Promise<Partial<News>> {
  const { id } = asked;
  if (asked.kind === "engine") engine = unpacked(asked.text).then((code) => Engine.of(code));
  else if (asked.kind === "model") models.set(asked.name, new PackedModel(await engine, await unpacked(asked.text)));
  else if (asked.kind === "look") return { drawing: look(models.get(asked.name)!, asked.look) };
  else if (asked.kind === "answer") {
    const steps = answer(models.get(asked.name)!, asked.name, asked.question);
    for (let last = performance.now(); wanted.has(id);) {
      const { done, value } = steps.next();
      tell({ id, event: value });
      if (done) break;
      if (performance.now() - last < TURN) continue;
      await pause();
      last = performance.now();
    }
    steps.return(undefined as never);
  }
  return {};
}

onmessage = ({ data }: MessageEvent<Asked>) => {
  const { id } = data;
  if (data.kind === "stop") {
    wanted.delete(id);
    return;
  }
  wanted.add(id);
  before = before.then(() => work(data)).then((done) => tell({ id, ...done }), (error: Error) => tell({ id, failure: error.message })).finally(() => wanted.delete(id));
};
