// The engine in a worker: models of packed files, and their answers one after the other.
import { bytesOf } from "../core/numbers";
import { answer } from "../engine/answer";
import { Engine } from "../engine/compiled";
import { PackedModel } from "../engine/model";
import type { Asked, Told } from "./source";

const TURN = 25; // milliseconds of work between two looks at whether an answer is still wanted
const models = new Map<string, PackedModel>(), given = new Set<number>();
let engine: Promise<Engine>, before: Promise<unknown> = Promise.resolve();

const tell = (told: Told) => postMessage(told);
const pause = () => new Promise<void>((go) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); go(); };
  port2.postMessage(0);
});

/** The bytes of a file, which is base64 of gzip. */
const unpacked = (text: string) => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

async function work(asked: Asked): Promise<void> {
  const { id } = asked;
  if (asked.kind === "engine") engine = unpacked(asked.text).then((code) => Engine.of(code));
  else if (asked.kind === "model") models.set(asked.name, new PackedModel(await engine, await unpacked(asked.text)));
  else if (asked.kind === "answer") {
    const steps = answer(models.get(asked.name)!, asked.name, asked.question);
    for (let last = performance.now(); !given.has(id);) {
      const { done, value } = steps.next();
      tell({ id, event: value });
      if (done) break;
      if (performance.now() - last < TURN) continue;
      await pause();
      last = performance.now();
    }
    steps.return(undefined as never);
  }
  tell({ id });
}

onmessage = ({ data }: MessageEvent<Asked>) => {
  if (data.kind === "stop") given.add(data.id);
  else before = before.then(() => work(data)).catch((error: Error) => tell({ id: data.id, failure: error.message }));
};
