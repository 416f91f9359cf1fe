// Builds the entries that are named, or all: node scripts/build.mjs [embed] [widget] [engine] [publish] [learn] [studio]
// into src/foveate, or with OUT=folder into that folder.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { build } from "vite";

const target = { target: "es2023", cssTarget: ["chrome123", "firefox120", "safari17.5"] }; // those that know light-dark()
const one = (entry, format) => ({
  ...target, outDir: process.env.OUT ?? "../src/foveate/look/draw", emptyOutDir: false, reportCompressedSize: false,
  rolldownOptions: { output: { minify: true } }, // modules of a library keep their blanks otherwise
  lib: { entry: `src/${entry}/main.ts`, name: "foveate", formats: [format], fileName: () => `${entry}.js` },
});
/** Drawings that a page never has: demos with sliders are not published, nor are words in two columns. */
const without = (...kinds) => ({ name: "without", load: (id) => { const kind = kinds.find((each) => id.endsWith(`/core/${each}.ts`)); return kind && `export const ${kind} = undefined`; } });
const ENTRIES = {
  embed: { build: one("embed", "iife") },
  widget: { build: one("widget", "es") },
  engine: { build: one("engine", "es") },
  publish: { plugins: [svelte(), without("interactive", "film", "picture", "sheet", "table", "links", "lines")], build: { ...one("publish", "iife"), lib: { ...one("publish", "iife").lib, cssFileName: "publish" } } },
  learn: { plugins: [svelte(), without("interactive", "film", "picture", "sheet", "table", "links")], build: { ...one("learn", "iife"), lib: { ...one("learn", "iife").lib, fileName: () => "publish.train.js", cssFileName: "publish.train" } } },
  studio: { root: "src/studio", base: "./", plugins: [svelte()], build: { ...target, outDir: "../../../src/foveate/studio/static", emptyOutDir: true,
    rolldownOptions: { output: { chunkFileNames: ({ facadeModuleId }) => `assets/${facadeModuleId?.includes("/languages/") ? "language-" : ""}[name]-[hash].js` } } } },
};

const wanted = process.argv.slice(2);
for (const name of wanted.length ? wanted : Object.keys(ENTRIES)) {
  if (!(name in ENTRIES)) throw new Error(`no entry ${name}; there are: ${Object.keys(ENTRIES).join(", ")}`);
  await build({ configFile: false, logLevel: "warn", ...ENTRIES[name] });
}
