// What is set: one run or two that race, and the text that is tried. In an address it is JSON of what differs from the defaults.
import { DEFAULTS, type Settings } from "./model";
import { TASKS, type TaskName } from "./tasks";

export interface State { runs: Settings[]; text: string }

export const HEADS = [1, 2, 4], RATES = [0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1];
export const RIVALS: Record<Settings["model"], Partial<Settings>> = { transformer: { positions: false }, recurrent: { attends: false } }; // what a race begins with

const ALLOWED: { [K in keyof Settings]: (value: unknown) => boolean } = {
  task: (value) => (value as string) in TASKS, model: (value) => value === "transformer" || value === "recurrent",
  positions: isBoolean, scaled: isBoolean, masked: isBoolean, attends: isBoolean, heads: (value) => HEADS.includes(value as number),
  rate: (value) => RATES.includes(value as number), seed: (value) => Number.isInteger(value) && Math.abs(value as number) < 2 ** 31,
};
function isBoolean(value: unknown): boolean {
  return typeof value === "boolean";
}

/** Settings with those of a stranger's that exist; a race is of one task. */
function settled(given: unknown, task?: TaskName): Settings {
  const known = Object.entries((given ?? {}) as object).filter(([key, value]) => ALLOWED[key as keyof Settings]?.(value));
  return { ...DEFAULTS, ...Object.fromEntries(known), ...(task && { task }) };
}

export function stateOf(text: string): State {
  let given: { runs?: unknown[]; text?: unknown } = {};
  try {
    given = (JSON.parse(text || "{}") ?? {}) as typeof given;
  } catch { /* an address that was cut: the defaults */ }
  const [first, second] = Array.isArray(given.runs) ? given.runs : [], one = settled(first);
  return { runs: [one, ...(second ? [settled(second, one.task)] : [])], text: typeof given.text === "string" ? given.text.slice(0, 200) : TASKS[one.task].first };
}

export function written({ runs, text }: State): string {
  const short = (settings: Settings) => Object.fromEntries(Object.entries(settings).filter(([key, value]) => value !== DEFAULTS[key as keyof Settings]));
  return JSON.stringify({ runs: runs.map(short), ...(text === TASKS[runs[0]!.task].first ? {} : { text }) });
}
