// From where one is to what the API is asked.
import type { AnswerRequest, Question, RunDetail, RunInfo } from "./api";
import type { Place, Settings } from "./place";

export interface Brought { upload: { uri: string } | undefined; csv: { text: string } | undefined }

const MOST_OUTPUTS = 64, RIVALS = 8;

/** How many outputs a search gives: all of its beam, all of its samples. */
function outputs(detail: RunDetail | undefined, search: Settings): number {
  const info = detail?.search, kind = String(search.kind ?? info?.kind ?? "");
  const fields: Record<string, unknown> = { ...(kind === info?.kind ? info.fields : info?.kinds[kind]), ...search };
  const count = Number(fields.beam_size ?? fields.num_samples ?? 1);
  return Number.isFinite(count) ? Math.max(1, Math.min(MOST_OUTPUTS, count)) : 1;
}

/** Whether there is something to ask. */
export const asksSomething = (run: RunInfo, place: Place, { upload }: Brought): boolean =>
  run.reads === "series" || (run.reads === "picture" ? Boolean(place.picture || upload) : place.text.trim() !== "" || run.task === "language");

/** What a run is asked; with `silenced` the heads of the place are silent in it. */
export function askOf(run: RunInfo, detail: RunDetail | undefined, place: Place, brought: Brought, silenced = true): Partial<AnswerRequest> {
  const heads = silenced ? { silenced: place.silenced } : {};
  if (run.reads === "series")
    return { ...heads, ...(brought.csv ? { csv: brought.csv.text } : place.date ? { date: place.date } : {}), ...(place.channel ? { channel: place.channel } : {}) };
  const written = run.gives === "text" ? { prefix: place.prefix, search: place.search, hypotheses: outputs(detail, place.search), topK: RIVALS } : {};
  const read = run.reads === "picture" ? { picture: brought.upload?.uri ?? place.picture } : { text: place.text, ...(place.to ? { to: place.to } : {}) };
  return { ...read, ...written, ...heads };
}

/** What a view is asked, of the fields that it reads. */
export function questionOf(run: RunInfo, place: Place, brought: Brought, reads: readonly string[]): Partial<Question> {
  const text = run.reads === "series" ? place.date : place.text.trim();
  const target = run.reads === "series" ? place.channel : place.target.trim();
  const asked: Partial<Question> = {
    ...(text ? { text } : {}), ...(target ? { target } : {}),
    ...(brought.upload || place.picture ? { image: brought.upload?.uri ?? place.picture } : {}),
    ...(place.split ? { split: place.split } : {}),
  };
  return Object.fromEntries(Object.entries(asked).filter(([name]) => reads.includes(name)));
}
