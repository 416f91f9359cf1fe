// Steps of lectures: their sentences, and where their drawings are. Pure functions.
import type { LectureList } from "./api";
import { quoted } from "./forms";
import { t } from "./language";

const TEXT = / --text (?:'((?:[^']|'\\'')*)'|"([^"]*)"|(\S+))/;

/** Under the API, what a command draws. */
export const drawingsPath = (command: string): string => `lectures/drawings?${new URLSearchParams({ command })}`;

const GRAMMAR = "en-fr"; // the run whose command writes the data that others read

/** With which runs a command is drawn where not all that it names are there. */
export interface Standing {
  missing: string[]; // no other stands in for these
  line: string; // what is drawn; empty where all runs that are named are there
  offer: string; // how long it takes to train those that are named
  makes: string[]; // commands
  minutes: number;
  others: string[]; // of those for which a run of another name stands in
}

/** `has` says of a name whether there is a run, and whether it is one that ships. */
export function standing(command: string, runs: LectureList["runs"], has: (name: string) => { packaged?: boolean } | undefined): Standing {
  const names = Array.from(command.matchAll(/ runs\/([\w-]+)/g), ([, name]) => name!), isAway = (name: string) => !has(name) && !runs[name]?.packaged;
  const small = names.filter((name) => runs[name]?.packaged && has(name)?.packaged !== false);
  const others = names.filter((name) => isAway(name) && runs[name]?.instead), missing = names.filter((name) => isAway(name) && !runs[name]?.instead);
  const wanted = [...small, ...others, ...missing].filter((name) => runs[name]), isMade = has(GRAMMAR)?.packaged === false || wanted.includes(GRAMMAR);
  const absent = !isMade && wanted.some((name) => runs[name]!.command.includes("runs/grammar/")) ? [GRAMMAR, ...wanted] : wanted;
  const minutes = absent.reduce((sum, name) => sum + runs[name]!.minutes, 0), made = others.map((name) => `runs/${name}`).join(", ");
  const away = others.map((name) => t("runs/{name} was not found; this is runs/{other}, {about}", { name, other: runs[name]!.instead, about: t(runs[runs[name]!.instead]?.about ?? "another run") }));
  const first = away.join("; ") || t(small.length > 1 ? "Drawn with the bundled models {names}" : "Drawn with the bundled model {names}", { names: small.join(", ") }), isOther = made || small.length;
  const line = isOther ? `${first}.` : "", offer = isOther ? (made ? t("Train {names} in {time}:", { names: made, time: lasting(minutes) }) : t("Train your own in {time}:", { time: lasting(minutes) })) : "";
  return { missing, line, offer, makes: absent.map((name) => runs[name]!.command), minutes, others: others.map((name) => runs[name]!.command) };
}

/** So many minutes in words. */
export const lasting = (minutes: number): string => t(minutes === 1 ? "{n} minute" : "{n} minutes", { n: minutes });

/** The sentence that a command reads; absent where it reads none. */
export function sentenceOf(command: string): string | undefined {
  const found = TEXT.exec(command);
  return found ? (found[1]?.replaceAll("'\\''", "'") ?? found[2] ?? found[3]) : undefined;
}

/** A command that reads another sentence; one that reads none stays as it is. */
export const withSentence = (command: string, sentence: string): string => command.replace(TEXT, () => ` --text ${quoted(sentence)}`);

/** A list with the part at a place moved, by so many places. */
export function moved<T>(list: readonly T[], at: number, by: number): T[] {
  const others = list.filter((_, k) => k !== at);
  return others.toSpliced(Math.max(0, at + by), 0, list[at]!);
}
