// What is dragged in the browser gives the numbers and the texts that Python gives.
import { describe, expect, it } from "vitest";
import { FORMULAS, type Dragged, type Part } from "../src/core/formulas";
import { dragged } from "../src/core/interactive";
import { decode, floats, type Values } from "../src/core/numbers";
import type { InteractiveDrawing, Numbers } from "../src/core/types";
import cases from "./demos.json";

const numbersOf = (numbers: Numbers) => [...floats(decode(numbers) as Values)];

/** The same, but numbers may differ as float32 does from float64. */
function near(made: unknown, wanted: unknown, path: string): void {
  if (typeof wanted === "number") {
    if (Number.isNaN(wanted)) return expect(made, path).toBeNaN();
    return expect(Math.abs((made as number) - wanted), `${path}: ${String(made)} for ${wanted}`).toBeLessThan(2e-5 * Math.max(1, Math.abs(wanted)));
  }
  if (wanted === null || typeof wanted !== "object") return expect(made, path).toBe(wanted);
  if ("codec" in wanted) return near(numbersOf(made as Numbers), numbersOf(wanted as Numbers), path);
  expect(Object.keys(made as object).sort(), path).toEqual(Object.keys(wanted).sort());
  for (const [key, value] of Object.entries(wanted)) near((made as Record<string, unknown>)[key], value, `${path}.${key}`);
}

describe("a demo that is dragged", () => {
  for (const each of cases) {
    const drawing = each.drawing as unknown as InteractiveDrawing, formula = FORMULAS[drawing.formula]!;
    const data = Object.fromEntries(Object.entries(drawing.data).map(([name, numbers]) => [name, numbersOf(numbers)]));
    const drawn = (values: Dragged): Part[] => formula(values, data, drawing.parts);
    it(`${drawing.formula} is Python's, before and after`, () => {
      near(drawn(dragged(drawing.sliders)), drawing.parts, "before");
      near(drawn(each.dragged as unknown as Dragged), each.parts, "after");
      expect(JSON.stringify(each.parts)).not.toBe(JSON.stringify(drawing.parts));
    });
    it(`${drawing.formula} has a slider with a name and its value for each number`, () => {
      for (const { label, stops, value } of drawing.sliders) {
        expect(label && stops.includes(value)).toBe(true);
        expect([...stops].sort((a, b) => a - b)).toEqual(stops);
      }
    });
  }
  it("has every formula there is", () => expect(cases.map(({ drawing }) => drawing.formula).sort()).toEqual(Object.keys(FORMULAS).sort()));
});
