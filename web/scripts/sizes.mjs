// What a visitor's browser loads, packed; above the limit the build has failed.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const draw = "../src/foveate/look/draw", assets = "../src/foveate/studio/static";
const isLanguage = (file) => /\/language-[^/]*$/.test(file);
const under = (folder) => readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile()).map((entry) => `${entry.parentPath}/${entry.name}`);
const isLearn = (file) => /\/learn-[^/]*$/.test(file);
const limits = [["embed", [`${draw}/embed.js`], 46.1], ["widget", [`${draw}/widget.js`], 45], ["engine", [`${draw}/engine.js`], 22.1], ["publish", [`${draw}/publish.js`, `${draw}/publish.css`], 95],
  ["train", [`${draw}/publish.train.js`, `${draw}/publish.train.css`], 140], // with 31 of the C that learns
  ["studio", under(assets).filter((file) => !isLearn(file) && !isLanguage(file)), 176], ["learn", under(assets).filter(isLearn), 44], ["language", under(assets).filter(isLanguage), 36]]; // loaded by the slide of a training
for (const [name, files, most] of limits) {
  const size = files.reduce((sum, file) => sum + gzipSync(readFileSync(file), { level: 9 }).length, 0) / 1000;
  console.log(`${name.padEnd(8)} ${size.toFixed(1)} kB packed of ${most}${size > most ? ": TOO MUCH" : ""}`);
  if (size > most) process.exitCode = 1;
}
