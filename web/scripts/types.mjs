// Writes src/core/types.ts and src/core/palette.ts from what Python says (scripts/tables.py).
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const python = process.env.PYTHON ?? "python3";
const said = JSON.parse(execFileSync(python, ["scripts/tables.py"], { encoding: "utf8" }));
const header = (of) => `// Written by \`npm run types\` from src/foveate/look; do not edit. Of ${of}.\n`;

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
writeFileSync("src/core/palette.ts",
  `${header(said.palette.of)}export const palette = ${JSON.stringify(said.palette.is, null, 2)} as const;\n`);
