// Steps of lectures: their sentences, and where their drawings are. Pure functions.
import { quoted } from "./forms";

const TEXT = / --text (?:'((?:[^']|'\\'')*)'|"([^"]*)"|(\S+))/;

/** Under the API, what a command draws. */
export const drawingsPath = (command: string): string => `lectures/drawings?${new URLSearchParams({ command })}`;

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
