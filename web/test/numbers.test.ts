import { expect, test } from "vitest";
import { base64Of, bytesOf, decode, floats, read, type Values } from "../src/core/numbers";

const u16 = (...steps: number[]) => base64Of(new Uint8Array(new Uint16Array(steps).buffer));

test("bytes come back from base64", () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7919) % 256);
  const back = bytesOf(base64Of(bytes));
  expect(back.length === bytes.length && back.every((byte, i) => byte === bytes[i])).toBe(true);
});

test("weights count 1/65,535", () => {
  const values = decode({ shape: [1, 3], codec: "u16", data: u16(0, 1, 65535), url: "" }) as Values;
  expect([...floats(values)]).toEqual([0, 1 / 65535, 1]);
  expect([...floats(values, 1, 2)]).toEqual([1 / 65535, 1]);
});

test("the mean of heads is that of their numbers", () => {
  const values = decode({ shape: [2, 1, 2], codec: "u16", data: u16(0, 65535, 65535, 65535), url: "" }) as Values;
  expect([...floats(values, 0, 2, 2)]).toEqual([0.5, 1]);
});

test("other numbers are float32 and blanks stay blank", () => {
  const data = base64Of(new Uint8Array(new Float32Array([1.5, NaN, -3e7]).buffer));
  const values = decode({ shape: [3], codec: "f32", data, url: "" }) as Values;
  expect([...floats(values)]).toEqual([1.5, NaN, -3e7]);
});

test("too few bytes are an error that says how many were due", () => {
  expect(() => read([2, 2], "u16", new Uint8Array(6))).toThrow("6 bytes for an array of 2 × 2 (u16): 8 were due");
});

test("bytes at an address are fetched once, and again after a failure", async () => {
  const asked: string[] = [];
  globalThis.fetch = async (address) => {
    asked.push(String(address));
    return asked.length === 1 ? new Response("", { status: 404, statusText: "Not Found" }) : new Response(new Uint8Array([255, 255]));
  };
  const numbers = { shape: [1], codec: "u16" as const, data: "", url: "/a" };
  await expect(decode(numbers)).rejects.toThrow("/a: 404 Not Found");
  expect(floats(await decode(numbers))[0]).toBe(1);
  expect(floats(await decode(numbers))[0]).toBe(1);
  expect(asked).toEqual(["/a", "/a"]);
});
