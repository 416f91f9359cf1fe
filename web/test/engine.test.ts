import { expect, test } from "vitest";
import { tokenStates } from "../src/engine/characters";
import { read, widened } from "../src/engine/packed";
import { splitWords } from "../src/engine/tokenizer";

/** A safetensors file of a matrix of int8 with its scales, and of a vector of 16 bits. */
function made(half = 0x3c00): ArrayBuffer {
  const entry = (dtype: string, shape: number[], from: number, to: number) => ({ dtype, shape, data_offsets: [from, to] });
  const header = JSON.stringify({
    __metadata__: { foveate: JSON.stringify({ version: 1, task: "translation" }) },
    "000.map": entry("I8", [2, 3], 0, 6), "001.bias": entry("F16", [1], 6, 8), "000.map.scale": entry("F32", [2], 8, 16),
  });
  const file = new ArrayBuffer(8 + header.length + 16), view = new DataView(file);
  view.setBigUint64(0, BigInt(header.length), true);
  new Uint8Array(file, 8).set(new TextEncoder().encode(header));
  [1, -2, 3, -4, 5, -6].forEach((value, k) => view.setInt8(8 + header.length + k, value));
  view.setUint16(14 + header.length, half, true);
  [0.5, 0.25].forEach((scale, k) => view.setFloat32(16 + header.length + 4 * k, scale, true));
  return file;
}

test("a packed file has its header, and its weights in their order with the scales of rows of int8", () => {
  const { header, weights, names } = read(made());
  expect(header.task).toBe("translation");
  expect(names).toEqual(["000.map", "001.bias"]);
  expect(weights).toEqual([
    { shape: [2, 3], values: Int8Array.of(1, -2, 3, -4, 5, -6), scale: Float32Array.of(0.5, 0.25) }, { shape: [1], values: Float32Array.of(1) },
  ]);
});

test("a file that is cut off, damaged or something else is refused", () => {
  const whole = made();
  for (const size of [0, 7, 100, whole.byteLength - 1]) expect(() => read(whole.slice(0, size))).toThrow(/cut off/);
  expect(() => read(new TextEncoder().encode(`\u0002${"\0".repeat(7)}{}`).buffer)).toThrow("the file does not hold a foveate model");
  expect(() => read(made(0x7c00))).toThrow(/not finite/);
});

test("numbers of 16 bits become floats, those below the normal ones too", () => {
  expect([...widened(Uint16Array.of(0x3c00, 0xc000, 0x3555, 0x0001, 0x8000, 0x7c00))])
    .toEqual([1, -2, Math.fround(0.333251953125), 2 ** -24, -0, Infinity]);
});

test("words are cut at elided articles and punctuation", () => {
  expect(splitWords("L'homme dort, aujourd'hui: 3,5.")).toEqual(["L'", "homme", "dort", ",", "aujourd'hui", ":", "3,5", "."]);
});

test("tokens that begin a character leave a state in which only its rest may follow", () => {
  const surfaces = [..."abcd"].map((letter) => new TextEncoder().encode(letter));
  expect(tokenStates(surfaces)).toBeUndefined();
  const states = tokenStates([...surfaces, Uint8Array.of(0xc3), Uint8Array.of(0xa9)])!;
  expect([states[4], states[5], states[6 + 5], states[6]]).toEqual([1, 8, 0, 8]);
});
