// The API as functions: JSON by fetch, events as they come. Errors say what to do.
import type { Error as Refused, Failed } from "./api";

const BASE = "api/v1/";

/** What the server refused, in its words. */
export class Refusal extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

async function checked(answer: Response): Promise<Response> {
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => undefined)) as Partial<Refused> | undefined;
  throw new Refusal(answer.status, said?.error ?? `${answer.status} ${answer.statusText}`);
}

/** An address of the API; empty fields are left out. */
export function address(path: string, fields: Record<string, string | number | undefined> = {}): string {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) if (value !== undefined && value !== "") said.set(key, String(value));
  return BASE + path + (said.size ? `?${said}` : "");
}

export async function get<T>(path: string, fields: Record<string, string | number | undefined> = {}, signal?: AbortSignal): Promise<T> {
  return (await checked(await fetch(address(path, fields), { signal: signal ?? null }))).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await checked(await sent(path, body, "application/json", signal))).json() as Promise<T>;
}

const sent = (path: string, body: unknown, accept: string, signal?: AbortSignal) =>
  fetch(BASE + path, { method: "POST", headers: { "Content-Type": "application/json", Accept: accept }, body: JSON.stringify(body), signal: signal ?? null });

/** One event of a stream: its id, from which one may go on, and what it says. */
export interface Told<E> { id: string; event: E }

/** The events in a text of server-sent events, and what is not whole yet. */
export function parted<E>(text: string): [Told<E>[], string] {
  const blocks = text.split(/\r?\n\r?\n/), rest = blocks.pop()!;
  return [blocks.flatMap((block) => {
    const lines = block.split(/\r?\n/), field = (name: string) =>
      lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
    const data = field("data").join("\n");
    return data ? [{ id: field("id").at(-1) ?? "", event: JSON.parse(data) as E }] : [];
  }), rest];
}

async function* events<E>(answer: Response): AsyncGenerator<Told<E>> {
  const reader = (await checked(answer)).body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const [whole, left] = parted<E>(rest + value);
      rest = left;
      yield* whole;
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Ask, and be told the events of the answer; abort the signal to stop it. */
export async function* streamed<E extends { event?: string }>(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<E> {
  for await (const { event } of events<E | Failed>(await sent(path, body, "text/event-stream", signal))) {
    if (event.event === "error") throw new Refusal(200, (event as Failed).error);
    if (event.event !== "ping") yield event as E;
  }
}

/** Have something worked out, and be told how far it is. */
export async function* streamedFrom<E extends { event: string }>(path: string, fields: Record<string, string | number>, signal: AbortSignal): AsyncGenerator<E> {
  for await (const { event } of events<E | Failed>(await fetch(address(path, fields), { headers: { Accept: "text/event-stream" }, signal }))) {
    if (event.event === "error") throw new Refusal(200, (event as Failed).error);
    if (event.event !== "ping") yield event as E;
  }
}

/** Listen to what goes on, from an event on. */
export async function* followed<E>(path: string, after: string, signal: AbortSignal): AsyncGenerator<Told<E>> {
  const headers: Record<string, string> = { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": after } : {}) };
  yield* events<E>(await fetch(BASE + path, { headers, signal }));
}

export const isAborted = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError";

export const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));
