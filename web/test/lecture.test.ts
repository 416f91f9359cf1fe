// Lectures: sentences in commands, the order of steps, and the two windows of a presenter.
import { afterEach, describe, expect, it, vi } from "vitest";
import { better, type Tried } from "../src/studio/fit";
import { moved, sentenceOf, standing, withSentence } from "../src/studio/lecture";
import { PATIENCE, Presenter, Projector, type Point, type Slides } from "../src/studio/presenter";

describe("the sentence of a command", () => {
  it("is read and replaced, whatever quotes it has", () => {
    for (const [word, text] of [["'A dog.'", "A dog."], ['"A dog."', "A dog."], ["dog", "dog"], [String.raw`'l'\''été'`, "l'été"]]) {
      const command = `foveate look heads runs/en-fr --text ${word} --layer 1`;
      expect(sentenceOf(command)).toBe(text);
      for (const other of ["l'eau $& \"x\"", "word"]) {
        const changed = withSentence(command, other);
        expect(sentenceOf(changed)).toBe(other);
        expect(changed.startsWith("foveate look heads runs/en-fr --text ") && changed.endsWith(" --layer 1")).toBe(true);
      }
    }
  });
  it("is absent where none is read", () => {
    expect(sentenceOf("foveate demo lookup --texts a")).toBeUndefined();
    expect(withSentence("foveate demo lookup", "x")).toBe("foveate demo lookup");
  });
});

describe("the runs of a step", () => {
  const run = (name: string, fields = {}) => ({ minutes: 3, command: `foveate train runs/grammar/grammar.toml --run runs/${name}`, about: `the run ${name}`, packaged: false, instead: "", ...fields });
  const runs = { "en-fr": run("en-fr", { command: "foveate quickstart", packaged: true }), norm: run("norm", { minutes: 2, instead: "en-fr" }), own: run("own") };
  it("are drawn by others that the sentence names, with what makes them", () => {
    const there = standing("foveate look curves runs/en-fr runs/norm", runs, () => ({ packaged: false }));
    expect(there).toMatchObject({ missing: [], line: "", makes: [] });
    const { line, offer, makes, minutes, missing } = standing("foveate look curves runs/norm", runs, () => undefined);
    expect(line).toBe("runs/norm was not found; this is runs/en-fr, the run en-fr.");
    expect(offer).toBe("Train runs/norm in 5 minutes:");
    expect([minutes, missing, makes]).toEqual([5, [], ["foveate quickstart", runs.norm.command]]);
    expect(standing("foveate look heads runs/en-fr", runs, () => undefined)).toMatchObject({ line: "Drawn with the bundled model en-fr.", offer: "Train your own in 3 minutes:" });
  });
  it("are missing where no other can stand in", () => {
    expect(standing("foveate look heads runs/own", runs, () => undefined)).toMatchObject({ missing: ["own"], line: "", minutes: 6 });
    expect(standing("foveate look heads runs/nowhere", runs, () => undefined)).toMatchObject({ missing: ["nowhere"], makes: [] });
  });
});

describe("a drawing on a slide", () => {
  /** Fits until the last is kept; `drawn` says how high and wide a drawing becomes. */
  const fitted = (drawn: (tall: number, grow: number) => Pick<Tried, "high" | "used">, room = 300) => {
    const tries: Tried[] = [];
    for (let fit = { tall: 100, grow: 1 }; ; ) {
      const next = better(tries, { ...fit, ...drawn(fit.tall, fit.grow) }, room, 1);
      if (!next) return fit;
      fit = next;
    }
  };
  it("is as high as the room", () => {
    expect(fitted((tall) => ({ high: tall + 80, used: 1 }))).toEqual({ tall: 220, grow: 1 });
  });
  it("is smaller where it would be cut, but no smaller than can be read", () => {
    const small = fitted((tall) => ({ high: tall + 250, used: 1 }));
    expect(small.tall).toBe(60);
    expect(small.grow).toBeCloseTo((0.98 * 300) / 310);
    expect(fitted(() => ({ high: 900, used: 1 })).grow).toBe(0.65);
    const wrapped = (lines: number) => fitted((_, grow) => ({ high: grow > lines ? 450 : 310, used: 1 })).grow; // a long text
    expect(wrapped(0.95)).toBeCloseTo(0.913); // 0.653 and 0.827 leave room
    expect(wrapped(0.7)).toBeCloseTo(0.653);
  });
  it("stays below the room where rows grow together", () => {
    const { tall } = fitted((tall) => ({ high: 15 * Math.floor(tall / 15) + 72, used: 1 }));
    expect(15 * Math.floor(tall / 15)).toBe(225);
  });
  it("is larger where nothing else fills the room", () => {
    expect(fitted(() => ({ high: 100, used: 0.7 })).grow).toBeCloseTo(1.4);
    expect(fitted(() => ({ high: 250, used: 0.3 })).grow).toBeCloseTo(1.2);
    expect(fitted(() => ({ high: 100, used: Infinity })).grow).toBe(1); // cut already
  });
});

it("steps are moved, not beyond the ends", () => {
  expect([moved(["a", "b", "c"], 0, 1), moved(["a", "b", "c"], 2, -2), moved(["a", "b"], 0, -1), moved(["a", "b"], 1, 5)].map((one) => one.join("")))
    .toEqual(["bac", "cab", "ab", "ab"]);
});

describe("the windows of a lecture", () => {
  const open: { close(): void }[] = [];
  afterEach(() => { for (const one of open.splice(0)) one.close(); vi.useRealTimers(); });
  const projected = (hidden = false) => {
    const made = { step: 3, presented: [] as boolean[], points: [] as (Point | undefined)[] }, screen = { width: 1280, height: 800, scale: 2 };
    const window = new Projector(() => ({ lecture: "romac", step: made.step, stage: 0, hidden, screen }), (by) => { made.step += by; }, (now) => made.presented.push(now), (at) => made.points.push(at));
    open.push(window);
    return Object.assign(made, { window });
  };
  const presenting = () => {
    const made = { at: [] as number[], found: [] as Slides[] };
    const window = new Presenter(({ step }) => made.at.push(step), (slides) => made.found.push(slides));
    open.push(window);
    return Object.assign(made, { window });
  };
  it("go on together", async () => {
    const slides = projected(), presenter = presenting();
    await vi.waitFor(() => expect(presenter.at).toEqual([3]));
    presenter.window.go(1);
    await vi.waitFor(() => expect(presenter.at).toEqual([3, 4]));
    slides.step = 9;
    slides.window.tell();
    await vi.waitFor(() => expect(presenter.at).toEqual([3, 4, 9]));
    expect(new Set(presenter.found)).toEqual(new Set(["seen"]));
  });
  it("say that the slides are in the background, or closed", async () => {
    const slides = projected(true), presenter = presenting();
    await vi.waitFor(() => expect(presenter.found).toEqual(["hidden"]));
    slides.window.close();
    presenter.window.go(1);
    await vi.waitFor(() => expect(presenter.found).toEqual(["hidden", "silent"]), { timeout: 2 * PATIENCE });
    projected(); // opened again
    await vi.waitFor(() => expect(presenter.found.at(-1)).toBe("seen"));
  });
  it("point at the same place of the slide, until the mouse leaves it", async () => {
    const slides = projected(), presenter = presenting();
    await vi.waitFor(() => expect(presenter.at).toEqual([3]));
    presenter.window.point([0.25, 0.5]);
    presenter.window.point();
    await vi.waitFor(() => expect(slides.points).toEqual([[0.25, 0.5], undefined]));
    expect(presenter.at).toEqual([3]); // a movement of the mouse asks for nothing
  });
  it("say that the slides are closed without being asked", async () => {
    const slides = projected(), presenter = presenting();
    await vi.waitFor(() => expect(presenter.found).toEqual(["seen"]));
    slides.window.leave();
    slides.window.tell();
    slides.window.close();
    await vi.waitFor(() => expect(presenter.found).toEqual(["seen", "silent"]), { timeout: 2 * PATIENCE });
  });
  it("say that the presenter's is closed, but not that it was loaded anew", async () => {
    const slides = projected(), presenter = presenting();
    await vi.waitFor(() => expect(slides.presented).toEqual([true]));
    presenter.window.leave();
    const again = presenting();
    await new Promise((wait) => setTimeout(wait, 1.2 * PATIENCE));
    expect(slides.presented.includes(false)).toBe(false);
    again.window.leave();
    await vi.waitFor(() => expect(slides.presented.at(-1)).toBe(false), { timeout: 2 * PATIENCE });
  });
});
