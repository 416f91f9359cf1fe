// A training in a worker: it learns for a moment, tells its frames, and looks whether something else is wished.
import { Learner, MOST, type Frame, type Settings } from "./model";
import type { Example } from "./tasks";

export type Wish = { kind: "start"; settings: Settings; example: Example } | { kind: "run"; on: boolean; to?: number } | { kind: "example"; example: Example };
/** What has come: new frames, or all anew of another example. */
export interface News { run: number; frames: Frame[]; from: number; step: number; pace: number; size: number; failure?: string }

const TURN = 40; // milliseconds of learning between two looks
let learner: Learner | undefined, example: Example, on = false, to = MOST, told = 0, run = 0, busy = 0, done = 0, isGoing = false;

const tell = (from: number) => {
  const frames = learner!.frames(example, from);
  postMessage({ run, frames, from, step: learner!.step, pace: busy ? (1000 * done) / busy : 0, size: learner!.size } satisfies News);
  told = from + frames.length;
};
const pause = () => new Promise<void>((go) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); go(); };
  port2.postMessage(0);
});

async function go(): Promise<void> {
  if (isGoing) return;
  isGoing = true;
  while (on && learner && learner.step < to) {
    const start = performance.now();
    let hasFrame = false;
    do {
      hasFrame = learner.learn() || hasFrame;
      done++;
    } while (performance.now() - start < TURN && learner.step < to);
    busy += performance.now() - start;
    if (hasFrame) tell(told);
    await pause();
  }
  isGoing = false;
}

onmessage = async ({ data }: MessageEvent<Wish & { run: number }>) => {
  if (data.kind === "start") {
    [on, learner, example, told, busy, done, run] = [false, undefined, data.example, 0, 0, 0, data.run];
    try {
      const made = await Learner.of(data.settings);
      if (run !== data.run) return;
      learner = made;
      tell(0);
    } catch (error) {
      postMessage({ run, frames: [], from: 0, step: 0, pace: 0, size: 0, failure: (error as Error).message } satisfies News);
    }
  } else if (data.kind === "run") {
    [on, to] = [data.on, data.to ?? MOST];
  } else {
    example = data.example;
    if (learner) tell(0);
  }
  void go();
};
