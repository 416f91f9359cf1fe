import { expect, test } from "vitest";
import { listed } from "../src/core/attention";
import { everyWord } from "../src/core/cells";
import { boxed, columnsOf, greedyOf, joins, pathTo, textOf } from "../src/core/lanes";
import { opacities, tinted } from "../src/core/picture";
import { fileName } from "../src/core/save";
import { compared } from "../src/core/table";
import { variables } from "../src/core/text";
import { safe } from "../src/embed/text";
import type { Node } from "../src/core/types";

test("a beginning in a beam goes back to its first token", () => {
  const node = (id: number, parent: number | null): Node => ({ id, parent, text: `t${id}`, logP: 0, score: 0, state: "live" });
  const nodes = new Map([node(0, null), node(1, 0), node(2, 0), node(3, 2)].map((n) => [n.id, n]));
  expect(pathTo(nodes, 3).map(({ id }) => id)).toEqual([0, 2, 3]);
});

test("a box of a beam has the product of probabilities, and no score that is a logarithm", () => {
  const node = { id: 1, parent: null, text: "B .4 =", logP: -1.6, state: "live" } as const;
  expect(boxed({ ...node, score: 0.20000000298 })).toBe("B .4 = .2");
  expect(boxed({ ...node, text: "␣chat", score: -1.6 })).toBe("␣chat");
  expect([" chat", "s", "."].map((text) => !!joins(text, " le"))).toEqual([false, true, false]);
  expect(!!joins("s", " ") || !!joins("s")).toBe(false); // behind a blank, or at the beginning
});

test("the text of a path of probabilities has the tokens alone", () => {
  const path = ["A", "C: .5·.3 ="].map((text, id): Node => ({ id, parent: null, text, logP: 0, score: 0.5, state: "live" }));
  expect(textOf(path)).toBe("A C");
  expect(textOf(path.map((node) => ({ ...node, score: -1, text: "␣le" })))).toBe("le le");
});

test("all steps of a beam stand in the room there is, as long as a node can be read", () => {
  const far = ({ wide, across }: ReturnType<typeof columnsOf>, steps: number) => across * (steps - 1) + wide + 4;
  expect(columnsOf(90, 3, 600, 60)).toEqual({ wide: 90, across: 124 });
  for (const room of [600, 480]) expect(far(columnsOf(132, 8, room, 46), 8)).toBeLessThanOrEqual(room);
  expect(columnsOf(132, 40, 600, 60)).toEqual({ wide: 60, across: 72 }); // edges are told apart between them
  expect(columnsOf(132, 40, 600, 99)).toEqual({ wide: 99, across: 111 }); // no word is cut
  expect(columnsOf(90, 3, -6, 60).wide).toBe(90); // not laid out yet
});

test("a panel's largest weight has all the tint, an even look stays pale", () => {
  expect(Math.max(...opacities(Float64Array.of(0.7, 0.3, 0, 0, 0, 0, 0, 0), "row"))).toBeCloseTo(0.7 / 0.75);
  expect(Math.max(...opacities(new Float64Array(100).fill(0.01), "row"))).toBeCloseTo(1 / 6);
  expect([...opacities(Float64Array.of(0.5), "absolute")]).toEqual([0.5]);
});

test("without weight a pixel is grey, with all of it it is tinted", () => {
  const image = Uint8ClampedArray.of(30, 60, 90, 255, 30, 60, 90, 255);
  expect([...tinted(image, 2, 1, Float64Array.of(0, 1), 2)]).toEqual([60, 60, 60, 255, 200, 99, 25, 255]);
});

test("rows are put in order by size or alphabet, blanks last both ways", () => {
  const values = [3, null, 10, 1];
  expect([...values].sort((a, b) => compared(a, b, 1))).toEqual([1, 3, 10, null]);
  expect([...values].sort((a, b) => compared(a, b, -1))).toEqual([10, 3, 1, null]);
  expect(compared("a2", "a10", 1)).toBeLessThan(0);
});

test("a table of a large map says the strongest of each row", () => {
  const size = 200, words = Array.from({ length: size }, (_, k) => `w${k}`), values = new Float64Array(size * size);
  for (let k = 0; k < size; k++) values[k * size + ((k + 1) % size)] = 0.75;
  const block = { name: "b", rowMeans: "at" as const, rows: words, columns: words, layers: [], hasHeads: true, kinds: [] };
  expect(listed({ height: size, width: size, values }, block, "map").rows[3]).toEqual(["w3", "w4 0.7500"]);
});

test("names of files hold letters of any script and nothing that a disk would mind", () => {
  expect(fileName("Über / die: Katze?", "png")).toBe("Über-die-Katze.png");
  expect(fileName("../..", "svg")).toBe("drawing.svg");
});

test("nothing in JSON ends a script", () => {
  const text = safe(["</script><!--", "\u2028"]);
  expect(text).not.toMatch(/[<\u2028]/);
  expect(JSON.parse(text)).toEqual(["</script><!--", "\u2028"]);
});

test("variables are single letters, in an index up to two; an article is none", () => {
  const written = (text: string, isIndex = false) => variables(text, isIndex).map(({ text, isVariable }) => (isVariable ? `<${text}>` : text)).join("");
  expect(written("x̂ = σ(W x + b)")).toBe("<x̂> = <σ>(<W> <x> + <b>)");
  expect(written("a row is softmax(e)")).toBe("a row is softmax(<e>)");
  expect(written("ŵ, X W Xᵀ of the model's own")).toBe("<ŵ>, <X> <W> <X>ᵀ of the model's own".normalize("NFD"));
  expect(written("hx", true)).toBe("<hx>");
  expect(written("model", true)).toBe("model");
});

test("words beside low cells are smaller, and left out only where they could not be read", () => {
  expect([30, 14, 12, 10].map(everyWord)).toEqual([1, 1, 1, 1]);
  expect(everyWord(4)).toBe(3); // the others have a dot
});


test("greedy search takes the most probable token at each step, as far as the beam has it", () => {
  const node = (id: number, parent: number | null, logP: number) => ({ id, parent, text: "", logP, score: logP, state: "live" as const });
  const steps = [[node(0, null, -1), node(1, null, -2)], [node(2, 1, -2.1), node(3, 0, -2.5), node(4, 0, -3)], [node(5, 2, -2.2)]];
  expect(greedyOf(steps)).toEqual([0, 3]);
});
