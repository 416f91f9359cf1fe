// Writes src/core/types.ts, src/core/palette.ts, src/studio/api.ts and test/demos.json from what Python says
// (scripts/python_tables.py).
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const python = process.env.PYTHON ?? "python3";
const said = JSON.parse(execFileSync(python, ["scripts/python_tables.py"], { encoding: "utf8" }));
const header = (of, from = "look/draw") => `// Written by \`npm run types\` from src/foveate/${from}; do not edit. Of ${of}.\n`;

/** Names of fields are no types of their own, and a tuple is `prefixItems` only in newer drafts. */
function plain(node, isField = false) {
  if (Array.isArray(node)) return node.map((part) => plain(part));
  if (node === null || typeof node !== "object") return node;
  const made = Object.fromEntries(Object.entries(node)
    .filter(([key, value]) => !(isField && (key === "title" || key === "default") && typeof value !== "object"))
    .map(([key, value]) => [key, key === "properties"
      ? Object.fromEntries(Object.entries(value).map(([name, field]) => [name, plain(field, true)]))
      : plain(value, key === "items" || isField)]));
  if (made.prefixItems) {
    made.items = made.prefixItems.map((part) => plain(part, true));
    delete made.prefixItems;
  }
  delete made.discriminator;
  return made;
}

const types = await compile(plain(said.schema.is), "AnyDrawing", {
  bannerComment: "", additionalProperties: false, style: { printWidth: 100 },
});
writeFileSync("src/core/types.ts", header(said.schema.of) + types);
for (const name of ["sequential", "diverging"]) { // all reds, greens and blues, a letter for each difference from the one before: a third as long when packed
  const bytes = Buffer.from(said.palette.is[name], "base64"), letters = [0, 1, 2].map((channel) => [...bytes].filter((_, k) => k % 3 === channel))
    .map((values) => values.map((value, k) => String.fromCharCode(107 + value - (values[k - 1] ?? 0))).join(""));
  said.palette.is[name] = letters.join("");
}
writeFileSync("src/core/palette.ts",
  `${header(said.palette.of)}export const palette = ${JSON.stringify(said.palette.is, null, 2)} as const;\n`);

// The studio's API: its own types by name, those of drawings from the core.
const drawn = new Set(Object.keys(said.schema.is.$defs));
const taken = new Set();

/** A schema whose references are to definitions, or to a type of the core. */
function own(node) {
  if (Array.isArray(node)) return node.map(own);
  if (node === null || typeof node !== "object") return node;
  const name = node.$ref?.split("/").at(-1);
  const choices = (node.oneOf ?? node.anyOf ?? []).map((one) => one.$ref?.split("/").at(-1));
  const type = choices.length > 1 && choices.every((one) => drawn.has(one)) ? "AnyDrawing" : drawn.has(name) ? name : null;
  if (type) taken.add(type);
  if (type) return { tsType: type };
  if (name) return { $ref: `#/$defs/${name}` };
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, own(value)]));
}

const names = Object.keys(said.api.is).filter((name) => !drawn.has(name));
const $defs = Object.fromEntries(names.map((name) => [name, own(said.api.is[name])]));
const properties = Object.fromEntries(names.map((name) => [name, { $ref: `#/$defs/${name}` }]));
const all = await compile(plain({ title: "Everything", type: "object", required: names, properties, $defs }), "Everything", {
  bannerComment: "", additionalProperties: false, style: { printWidth: 100 },
});
writeFileSync("src/studio/api.ts",
  `${header(said.api.of, "studio")}import type { ${[...taken].sort().join(", ")} } from "../core";\n\n${all}`);

writeFileSync("test/demos.json", `${JSON.stringify(said.demos.is)}\n`);
