// Drawings that the server makes: asked for, waited for, and what came of it.
import type { AnyDrawing } from "../core";
import type { Drawings } from "./api";
import { get, isAborted, said } from "./client";

export class DrawingsRequest {
  drawings = $state.raw<AnyDrawing[]>([]);
  trouble = $state("");
  spent = $state(0); // milliseconds of the server
  working = $state(false);
  unknown = $state.raw<string[]>([]); // words of the text that training never showed

  /** Ask for drawings; those that are here stay until others come. Gives what aborts it, for `$effect`. */
  ask(request: (signal: AbortSignal) => Promise<Drawings>, ondrawn?: (drawings: AnyDrawing[]) => void): () => void {
    const stopper = new AbortController();
    this.working = true;
    this.trouble = "";
    request(stopper.signal).then((found) => {
      if (stopper.signal.aborted) return;
      this.drawings = found.drawings;
      this.spent = found.milliseconds;
      this.unknown = found.unknown;
      ondrawn?.(this.drawings);
    }, (error: unknown) => {
      if (stopper.signal.aborted || isAborted(error)) return;
      this.drawings = [];
      this.trouble = said(error);
    }).finally(() => { if (!stopper.signal.aborted) this.working = false; });
    return () => stopper.abort();
  }
}

/** Drawings by their paths, fetched once; before they are shown where that is known. */
export class DrawingsCache {
  private turn = 0;
  private readonly known = new Map<string, { coming: Promise<Drawings>; stopper: AbortController }>();

  /** The drawings of the first path. The others are fetched after it, one by one; what else is on its way is given up. */
  get([path, ...later]: [string, ...string[]]): Promise<Drawings> {
    for (const [other, { stopper }] of this.known) if (other !== path && !later.includes(other)) stopper.abort();
    const coming = this.fetch(path), turn = ++this.turn;
    const after = (before: Promise<Drawings>, [next, ...others]: string[]): void => {
      const go = () => { if (next !== undefined && turn === this.turn) after(this.fetch(next), others); };
      before.then(go, go); // why one cannot be drawn is said when it is shown
    };
    after(coming, later);
    return coming;
  }

  private fetch(path: string): Promise<Drawings> {
    const known = this.known.get(path)?.coming;
    if (known) return known;
    const stopper = new AbortController(), coming = get<Drawings>(path, {}, stopper.signal);
    this.known.set(path, { coming, stopper });
    coming.catch(() => this.known.delete(path));
    return coming;
  }
}
