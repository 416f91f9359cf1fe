// The studio's pure parts: addresses, streams, curves, scores, words.
import { afterEach, describe, expect, it, vi } from "vitest";
import { get, parted, said } from "../src/studio/client";
import { DrawingsCache } from "../src/studio/drawings.svelte";
import { changed, choicesOf, commandOf, entryOf, shownOf, typed } from "../src/studio/forms";
import { EMPTY, read, written, type Place } from "../src/studio/place";
import { bins, byLength, drawing, interval, sorted } from "../src/studio/scores";
import { chartsOf, drawn, grown, resampled } from "../src/studio/series";
import { indexed } from "../src/core/text";
import { against, changes, percent, pieced, short } from "../src/studio/words";

describe("addresses", () => {
  const place: Place = {
    ...EMPTY, page: "inspect", runs: ["a", "b&c"], text: "l'été = 30 %; #1?", target: "x", prefix: [3, 0, 17], forced: [0, 2], search: { kind: "beam", beam_size: 4, length_penalty: 0.6 },
    silenced: [{ block: "decoder.cross_attention", layer: 2, head: 1 }, { block: "encoder", layer: 0, head: null }], views: ["attention", "heads"],
    block: "decoder.cross_attention", layer: 0, head: null, row: 2, column: 5, side: "column", options: { gates: { layer: 1 } }, trainings: ["a"], across: "time", demo: "beam", report: "r", chapter: "c d",
  };
  it("say all of a place and give it back", () => expect(read(written(place))).toEqual(place));
  it("say nothing of what is empty", () => expect(written(EMPTY)).toBe("#/ask"));
  it("tell head 0, the mean and none apart", () => {
    for (const head of [0, null, undefined]) expect(read(written({ ...EMPTY, head })).head).toBe(head);
  });
  it("of a lecture are its name and its step alone", () => {
    const step: Place = { ...EMPTY, page: "lecture", lecture: "romac", step: 7 };
    expect(written({ ...step, text: "a" })).toBe("#/lecture/romac/7");
    expect(read("#/lecture/romac/7")).toEqual(step);
    expect(read("#/lecture")).toEqual({ ...EMPTY, page: "lecture" });
    expect(read("#/lecture/romac/-3").step).toBe(1);
    for (const page of ["presenter", "edit"] as const) expect(read(written({ ...step, page }))).toEqual({ ...step, page });
  });
  it("leave out what they do not understand", () => {
    const found = read("#/nowhere?layer=two&prefix=1.x.3&silence=a&silence=b:1&head=1.5");
    expect(found).toEqual({ ...EMPTY, prefix: [1, 3], silenced: [{ block: "b", layer: 1, head: null }] });
  });
});

it("tokens that go on with a word have a hyphen", () => {
  expect([" nea", "omme", ".", "</s>"].map((text) => pieced(text, false))).toEqual(["nea", "‑omme", ".", "</s>"]);
  expect(pieced("Elle", true)).toBe("Elle");
});

describe("requests", () => {
  const asked: [string, AbortSignal][] = [];
  const answering = (...statuses: number[]) => vi.stubGlobal("fetch", (path: string, { signal }: { signal: AbortSignal }) => {
    asked.push([path, signal]);
    return Promise.resolve(new Response(JSON.stringify({ drawings: [], milliseconds: 1 }), { status: statuses.shift() ?? 200, headers: { "Retry-After": "0.01" } }));
  });
  afterEach(() => { vi.unstubAllGlobals(); asked.length = 0; });
  it("are sent again while the server has no room", async () => {
    answering(429, 429);
    expect(await get("a")).toEqual({ drawings: [], milliseconds: 1 });
    expect(asked.length).toBe(3);
  });
  it("say in one sentence that nothing answers", () => expect(said(new TypeError("Failed to fetch"))).toBe("The studio is not responding. Is it still running?"));
  it("of a lecture are sent once, ahead, and given up where a slide is left behind", async () => {
    answering();
    const slides = new DrawingsCache();
    await slides.get(["1", "2"]);
    await slides.get(["2", "3"]);
    expect(asked.map(([path]) => path)).toEqual(["api/v1/1", "api/v1/2", "api/v1/3"]);
    void slides.get(["9", "10"]);
    void slides.get(["9"]);
    expect(asked.map(([, signal]) => signal.aborted)).toEqual([true, true, true, false]);
    await slides.get(["2"]);
    expect(asked.length).toBe(4);
  });
});

describe("events", () => {
  it("are taken out whole, and the rest is kept", () => {
    const [told, rest] = parted<{ n: number }>('id: 7.0\nevent: x\ndata: {"n":1}\n\n: a word\n\ndata: {"n":2}\n\ndata: {"n"');
    expect(told).toEqual([{ id: "7.0", event: { n: 1 } }, { id: "", event: { n: 2 } }]);
    expect(rest).toBe('data: {"n"');
  });
});

describe("curves", () => {
  it("are straight between points and nothing outside", () =>
    expect(resampled({ x: [10, 20, 40], y: [1, 2, 0] }, [0, 10, 15, 20, 30, 40, 50])).toEqual([null, 1, 1.5, 2, 1, 0, null]));
  it("keep gaps", () => expect(resampled({ x: [0, 1, 2], y: [1, null, 3] }, [0, 0.5, 1, 2])).toEqual([1, null, null, 3]));
  it("grow by a line, once, and are cut", () => {
    const line = (step: number, loss: number) => ({ event: "train", step, epoch: 0, seconds: step, values: { loss }, samples: [] });
    const both = grown(grown(new Map(), line(5, 3)), line(10, 2));
    expect(both.get("train.loss")!.values).toEqual([3, 2]);
    expect(grown(both, line(10, 2)).get("train.loss")!.steps).toEqual([5, 10]);
    expect(grown(both, { ...line(5, 0), event: "cut", values: {} }).get("train.loss")!.steps).toEqual([5]);
  });
  it("of several runs share an axis", () => {
    const points = (steps: number[], values: number[]) => ({ steps, seconds: steps, values });
    const [chart] = chartsOf(["train.lr", "train.loss", "valid.loss"]);
    const made = drawn(chart!, new Map([["a", new Map([["train.loss", points([0, 4], [4, 0])]])], ["b", new Map([["train.loss", points([2], [9])]])]]), "step");
    expect(made.curves.map(({ hue }) => hue)).toEqual([0, 1]); // one colour a run
    expect([made.ends, drawn(chart!, new Map(), "step", 900).ends, drawn(chart!, new Map(), "time", 900).ends]).toEqual([null, [0, 900], null]);
    expect([made.title, made.x, made.curves.map(({ name, y }) => [name, y])]).toEqual(["Loss", [0, 2, 4], [["a train", [4, 2, 0]], ["b train", [null, 9, null]]]]);
  });
  it("put the likelihood of training beside that of a validation, and what is minimised apart", () => {
    const charts = chartsOf(["train.loss", "train.nll", "train.lr", "valid.loss", "valid.nll"]);
    expect(charts.map(({ title, keys }) => [title, keys])).toEqual([
      ["Loss", ["train.nll", "valid.loss"]], ["Training objective", ["train.loss"]], ["Learning rate", ["train.lr"]],
    ]);
  });
});

describe("scores", () => {
  const row = (i: number, length: number, score: number | null) => ({ i, source: `s${i}`, reference: "", output: "", score, length, picture: null, date: null });
  it("are put into bins that share no length", () => {
    const made = bins(Array.from({ length: 40 }, (_, i) => row(i, 1 + (i % 4), i)), 3);
    expect(made.reduce((sum, { values }) => sum + values.length, 0)).toBe(40);
    for (const [k, bin] of made.entries()) if (k) expect(bin.from).toBeGreaterThan(made[k - 1]!.to);
  });
  it("have intervals that hold their mean, the same each time", () => {
    const values = [1, 2, 3, 4, 10], [low, high] = interval(values, drawing(1));
    expect(low).toBeLessThan(4);
    expect(high).toBeGreaterThan(4);
    expect(interval(values, drawing(1))).toEqual([low, high]);
    expect(interval([5, 5, 5], drawing(2))).toEqual([5, 5]);
  });
  it("of one length have no chart", () =>
    expect(byLength({ event: "evaluation", run: "", split: "", count: 0, total: 0, figures: {}, signatures: {}, scored: "chrf", better: 1, rows: [row(0, 3, 1), row(1, 3, 2)] })).toBeUndefined());
  it("are sorted both ways, those without at the end", () => {
    const rows = [row(0, 1, 2), row(1, 1, null), row(2, 1, 1)];
    expect(sorted(rows, "score").map(({ i }) => i)).toEqual([2, 0, 1]);
    expect(sorted(rows, "-score").map(({ i }) => i)).toEqual([0, 2, 1]);
  });
});

describe("words", () => {
  it("that both texts have in order are the same", () =>
    expect(against("un homme fait du cheval", "un homme monte un cheval").filter(({ same }) => same).map(({ text }) => text)).toEqual(["un", "homme", "cheval"]));
  it("that are missing are told with nothing in their place", () => {
    const told = (text: string, other: string) => changes(text, other).map(({ text: word, kind }) => ({ same: word, new: `+${word}`, lost: `-${word}` })[kind]).join(" ");
    expect(told("un homme dort", "un vieux homme dort ici")).toBe("un -vieux homme dort -ici");
    expect(told("une casquette bleue", "un chapeau bleue")).toBe("+une +casquette bleue");
  });
  it("of figures are short", () => {
    expect([percent(0.9712), percent(0.0312), percent(0.0004), percent(0)]).toEqual(["97 %", "3.1 %", "0.04 %", "0 %"]);
    expect([short(1_837_568), short(205_962), short(12)]).toEqual(["1.84 M", "206 k", "12"]);
  });
});

describe("equations", () => {
  it("have indices and exponents", () => expect(indexed("h_{t−1} W_i^Q k_jᵀ d^−0.5").map(({ text, tag }) => [tag, text])).toEqual([
    ["span", "h"], ["sub", "t−1"], ["span", " W"], ["sub", "i"], ["sup", "Q"], ["span", " k"], ["sub", "j"], ["span", "ᵀ d"], ["sup", "−0.5"],
  ]));
  it("without any are left as they are", () => expect(indexed("A(PX) = P A(X)")).toEqual([{ tag: "span", text: "A(PX) = P A(X)" }]));
});

describe("forms", () => {
  const field = (name: string, form: Record<string, unknown>) => ({ name, description: "", form });
  const fields = [
    field("scaled", { type: "boolean", default: true }), field("top", { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], default: null }),
    field("pairs", { type: "array", items: { type: "string" }, default: ["512:4000", "a b"] }), field("x", { type: "array", items: { type: "number" }, default: [1, 0.1] }),
    field("drop", { type: "array", items: { enum: ["order", "positions"] }, default: ["order"] }), field("units", { enum: ["auto", "words"], default: "auto" }), field("split", { type: "string", default: "test" }),
    field("text", { anyOf: [{ type: "string" }, { type: "null" }], default: null }),
  ];
  it("enter each field by its schema", () => {
    expect(fields.map(entryOf)).toEqual(["switch", "number", "lines", "numbers", "choices", "choice", "choice", "text"]);
    expect(fields.map((one) => shownOf(one, {}))).toEqual(["true", "", "512:4000\na b", "1, 0.1", "order", "auto", "test", ""]);
    expect(choicesOf(fields[6]!)).toEqual(["train", "valid", "test"]);
  });
  it("keep what is not the default, and say it as the API wants it", () => {
    const told = ["false", "3", "1:2\nb c", "2, 3.5", "", "words", "valid", "7"];
    const asked = fields.reduce((before, one, k) => changed(one, before, told[k]!), {});
    expect(typed(fields, asked)).toEqual({ scaled: false, top: 3, pairs: ["1:2", "b c"], x: [2, 3.5], drop: [], units: "words", split: "valid", text: "7" });
    expect(fields.reduce((before, one) => changed(one, before, shownOf(one, {})), asked)).toEqual({});
    expect(typed(fields, { nothing: 1 })).toEqual({});
    const place: Place = { ...EMPTY, page: "demos", demo: "x", options: { demo: asked } };
    expect(typed(fields, read(written(place)).options.demo!)).toEqual(typed(fields, asked));
  });
  it("say the command of a demo", () =>
    expect(commandOf("foveate demo step", { scaled: false, pairs: ["1:2", "l'a b"], num_keys: 4 })).toBe("foveate demo step --no-scaled --pairs 1:2 --pairs 'l'\\''a b' --num-keys 4"));
});
