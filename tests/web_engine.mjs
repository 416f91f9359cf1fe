// Calls of packed models in Node: of each file the answers, as JSON.
//
//     node web_engine.mjs ENGINE.js ENGINE.wasm <REQUESTS    {file: [[method, …arguments], …]}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [script, code] = process.argv.slice(2);
const { Engine, PackedModel, Tokenizer } = await import(pathToFileURL(script).href);
const engine = await Engine.of(readFileSync(code));
const { memory, instruction_set } = engine.functions, named = new Uint8Array(memory.buffer, instruction_set());
const answers = { instructionSet: String.fromCharCode(...named.subarray(0, named.indexOf(0))) };
for (const [file, calls] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const { buffer, byteOffset, byteLength } = readFileSync(file), bytes = buffer.slice(byteOffset, byteOffset + byteLength);
  const made = file.endsWith(".json") ? new Tokenizer(JSON.parse(new TextDecoder().decode(bytes))) : new PackedModel(engine, bytes);
  answers[file] = calls.map(([method, ...given]) => made[method](...given.map((value) => value ?? undefined)));
}
process.stdout.write(JSON.stringify(answers, (_, value) => (ArrayBuffer.isView(value) ? [...value] : value)));
