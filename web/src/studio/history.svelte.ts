// Sentences that were asked before, in this browser.
import { remember, remembered } from "./studio.svelte";

export interface Past { run: string; text: string; answer: string }

const MOST = 40;

class History {
  all = $state.raw<Past[]>(remembered<Past[]>("history") ?? []);

  add(past: Past): void {
    if (!past.text.trim()) return;
    const others = this.all.filter(({ run, text }) => run !== past.run || text !== past.text);
    this.all = [past, ...others].slice(0, MOST);
    remember("history", this.all);
  }

  clear(run: string): void {
    this.all = this.all.filter((past) => past.run !== run);
    remember("history", this.all);
  }

  of(run: string): Past[] {
    return this.all.filter((past) => past.run === run);
  }
}

export const past = new History();
