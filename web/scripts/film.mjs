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
  const frames = learner.frames(example, 0).filter(({ step }) => STEPS.includes(step)).map(({ step, loss, output, weights, heads, rows }) => ({
    step, loss: step ? rounded(loss) : null, output: output.join(""),
    weights: Array.from({ length: heads }, (_, head) => Array.from({ length: rows }, (_, t) => Array.from(weights.subarray((head * rows + t) * rows, (head * rows + t + 1) * rows), rounded))),
  }));
  console.log(JSON.stringify({ weights: learner.size, rows: [...example.target, "</s>"], columns: [...example.source, "</s>"], frames }));
} finally {
  rmSync(folder, { recursive: true });
}
