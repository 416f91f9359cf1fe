// The API as functions: JSON by fetch, events as they come. Errors say what to do.
import type { Error as Refused, Failed } from "./api";

const BASE = "api/v1/";

/** What the server refused, in its words. */
export class Refusal extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const TRIES = 60, NO_ROOM = 429; // of a request, a second apart or what the server asks for

/** Ask, and ask again while the server has no room. */
async function checked(ask: () => Promise<Response>, signal?: AbortSignal): Promise<Response> {
  let answer = await ask();
  for (let tried = 1; answer.status === NO_ROOM && tried < TRIES; tried++) {
    await pause(1000 * Number(answer.headers.get("Retry-After") ?? 1), signal);
    answer = await ask();
  }
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => undefined)) as Partial<Refused> | undefined;
  throw new Refusal(answer.status, said?.error ?? `${answer.status} ${answer.statusText}`);
}

/** So many milliseconds, unless the signal is aborted. */
const pause = (milliseconds: number, signal?: AbortSignal): Promise<void> =>
  new Promise((go, fail) => {
    const timer = setTimeout(go, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason as Error); }, { once: true });
  });

/** An address of the API; empty fields are left out. */
export function address(path: string, fields: Record<string, string | number | undefined> = {}): string {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) if (value !== undefined && value !== "") said.set(key, String(value));
  return BASE + path + (said.size ? `?${said}` : "");
}

export async function get<T>(path: string, fields: Record<string, string | number | undefined> = {}, signal?: AbortSignal): Promise<T> {
  return (await checked(() => fetch(address(path, fields), { signal: signal ?? null }), signal)).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await checked(() => sent(path, body, "application/json", signal), signal)).json() as Promise<T>;
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

async function* events<E>(ask: () => Promise<Response>, signal: AbortSignal): AsyncGenerator<Told<E>> {
  const reader = (await checked(ask, signal)).body!.pipeThrough(new TextDecoderStream()).getReader();
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
  for await (const { event } of events<E | Failed>(() => sent(path, body, "text/event-stream", signal), signal)) {
    if (event.event === "error") throw new Refusal(200, (event as Failed).error);
    if (event.event !== "ping") yield event as E;
  }
}

/** Have something worked out, and be told how far it is. */
export async function* streamedFrom<E extends { event: string }>(path: string, fields: Record<string, string | number>, signal: AbortSignal): AsyncGenerator<E> {
  for await (const { event } of events<E | Failed>(() => fetch(address(path, fields), { headers: { Accept: "text/event-stream" }, signal }), signal)) {
    if (event.event === "error") throw new Refusal(200, (event as Failed).error);
    if (event.event !== "ping") yield event as E;
  }
}

/** Listen to what goes on, from an event on. */
export async function* followed<E>(path: string, after: string, signal: AbortSignal): AsyncGenerator<Told<E>> {
  const headers: Record<string, string> = { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": after } : {}) };
  yield* events<E>(() => fetch(BASE + path, { headers, signal }), signal);
}

export const isAborted = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError";

export const said = (error: unknown): string =>
  error instanceof TypeError ? "The studio is not responding. Is it still running?" : error instanceof Error ? error.message : String(error);
