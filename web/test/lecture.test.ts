// Lectures: sentences in commands, the order of steps, and the two windows of a presenter.
import { afterEach, describe, expect, it, vi } from "vitest";
import { moved, sentenceOf, withSentence } from "../src/studio/lecture";
import { PATIENCE, Presenter, Projector, type Slides } from "../src/studio/presenter";

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

it("steps are moved, not beyond the ends", () => {
  expect([moved(["a", "b", "c"], 0, 1), moved(["a", "b", "c"], 2, -2), moved(["a", "b"], 0, -1), moved(["a", "b"], 1, 5)].map((one) => one.join("")))
    .toEqual(["bac", "cab", "ab", "ab"]);
});

describe("the windows of a lecture", () => {
  const open: { close(): void }[] = [];
  afterEach(() => { for (const one of open.splice(0)) one.close(); vi.useRealTimers(); });
  const projected = (hidden = false) => {
    const made = { step: 3, presented: [] as boolean[] };
    const window = new Projector(() => ({ lecture: "romac", step: made.step, hidden }), (by) => { made.step += by; }, (now) => made.presented.push(now));
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
