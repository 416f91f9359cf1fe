// Drawings that the server makes: asked for, waited for, and what came of it.
import type { AnyDrawing } from "../core";
import type { Drawings } from "./api";
import { isAborted, said } from "./client";

export class DrawingsRequest {
  drawings = $state.raw<AnyDrawing[]>([]);
  trouble = $state("");
  spent = $state(0); // milliseconds of the server
  working = $state(false);

  /** Ask for drawings; those that are here stay until others come. Gives what aborts it, for `$effect`. */
  ask(request: (signal: AbortSignal) => Promise<Drawings>, ondrawn?: (drawings: AnyDrawing[]) => void): () => void {
    const stopper = new AbortController();
    this.working = true;
    this.trouble = "";
    request(stopper.signal).then((found) => {
      this.drawings = found.drawings;
      this.spent = found.milliseconds;
      ondrawn?.(this.drawings);
    }, (error: unknown) => {
      if (isAborted(error)) return;
      this.drawings = [];
      this.trouble = said(error);
    }).finally(() => { if (!stopper.signal.aborted) this.working = false; });
    return () => stopper.abort();
  }
}
