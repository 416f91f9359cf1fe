// The facts of a model: those that are known, under the names of the field.
import { expect, it } from "vitest";
import type { RunDetail, RunInfo } from "../src/studio/api";
import { factsOf } from "../src/studio/facts";
import { askOf } from "../src/studio/question";
import { EMPTY } from "../src/studio/place";

const RUN = { id: "a", name: "a", task: "translation", model: "encoder_decoder", reads: "text", gives: "text", parameters: 2162673, step: 0 } as unknown as RunInfo;
const DETAIL = {
  ...RUN, depths: [3, 3], heads: 4, hiddenSize: 128, ffnSize: 512, activation: "silu", normOrder: "post", tie: "all", vocabulary: { shared: 6001 },
  labels: [], channels: [], mostTokens: 128, device: "cpu", checkpoint: "0",
} as unknown as RunDetail;
const origin = (dtype: string) => ({ folder: "/a", family: "Marian", languages: [], parameters: 1, positions: null, dtype });

it("facts of an opened folder are those of its files", () => {
  const said = Object.fromEntries(factsOf({ ...RUN, origin: origin("float16") }, DETAIL));
  expect(said).toMatchObject({
    architecture: "encoder-decoder", parameters: "2,162,673", "vocabulary, shared": "6,001", "longest input, in tokens": "128", "weights in the file": "float16",
    "feed-forward size": "512", activation: "SiLU (swish)", norm: "post-norm", "tied embeddings": "source, target and output",
  });
  expect(said).not.toHaveProperty("checkpoint");
});
it("what is unknown is left out", () => {
  const names = factsOf({ ...RUN, parameters: null, origin: origin("") }, { ...DETAIL, mostTokens: null, activation: "", normOrder: "", tie: "" }).map(([name]) => name);
  for (const name of ["parameters", "longest input, in tokens", "weights in the file", "activation", "norm", "tied embeddings"]) expect(names).not.toContain(name);
  expect(factsOf(RUN, undefined).map(([name]) => name)).toEqual(["task", "architecture", "parameters"]);
});
it("as many outputs are asked for as the beam is wide", () => {
  const search = { kind: "beam", fields: { beam_size: 6 }, kinds: { beam: { beam_size: 4 }, greedy: {} } };
  const asked = (own: object) => askOf(RUN, { ...DETAIL, search } as unknown as RunDetail, { ...EMPTY, text: "a", search: own as typeof EMPTY.search }, { upload: undefined, csv: undefined }).hypotheses;
  for (const width of [1, 2, 6, 64]) expect(asked({ beam_size: width })).toBe(width);
  expect(asked({})).toBe(6);
  expect(asked({ kind: "greedy" })).toBe(1);
});
