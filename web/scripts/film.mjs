// The film of `foveate demo learn`, as JSON: the training that a page shows with its first settings, some of its frames.
//   npm run -s film
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "vite";

const STEPS = [0, 50, 100, 200, 300, 400, 600, 800];
const folder = mkdtempSync("node_modules/.film-");
try {
  await build({ configFile: false, logLevel: "error", build: { outDir: folder, lib: { entry: { model: "src/learn/model.ts", tasks: "src/learn/tasks.ts" }, formats: ["es"] } } });
  const [{ DEFAULTS, Learner }, { TASKS }] = await Promise.all(["model", "tasks"].map((name) => import(pathToFileURL(join(folder, `${name}.js`)).href)));
  const learner = await Learner.of(DEFAULTS), example = TASKS[DEFAULTS.task].read(TASKS[DEFAULTS.task].first), rounded = (value) => Number(value.toFixed(3));
  while (learner.step < STEPS.at(-1)) learner.learn();
  const words = { name: "decoder.cross_attention", rowMeans: "producing", rows: [...example.target, "</s>"], columns: [...example.source, "</s>"] };
  const numbers = ({ weights, heads, rows, columns }) => ({ shape: [heads, rows, columns], codec: "u16", data: Buffer.from(Uint16Array.from(weights, (weight) => Math.round(65535 * weight)).buffer).toString("base64") });
  const frames = learner.frames(example, 0).filter(({ step }) => STEPS.includes(step));
  console.log(JSON.stringify({
    title: "A model learns to reverse words", live: true,
    caption: `Attention of ${learner.size.toLocaleString("en-US")} weights, mean of two heads: what is written (rows) and read (columns). At step ${frames.at(-1).step} the model writes “${frames.at(-1).output.join("")}”. The studio trains the model anew, in the browser.`,
    frames: frames.map((frame) => ({ step: frame.step, loss: frame.step ? rounded(frame.loss) : null, blocks: [{ ...words, layers: [numbers(frame)] }] })),
  }));
} finally {
  rmSync(folder, { recursive: true });
}
