// The lectures of the server, and the one that this browser keeps while it is edited.
import type { Lecture, LectureList, LectureStep } from "./api";
import { get, said } from "./client";
import { translations } from "./languages";
import { remember, remembered } from "./studio.svelte";

export const MINE = "mine"; // in addresses
const EMPTY: Lecture = { name: "", title: "My lecture", after: "", about: "", steps: [], own: true };

class Lectures {
  list = $state.raw<LectureList>();
  trouble = $state("");
  mine = $state.raw(remembered<Lecture>(MINE) ?? EMPTY);
  /** One's own before another was opened in its place. */
  before = $state.raw(remembered<Lecture>("before"));

  /** Ask the server; a page that shows lectures does it once. */
  load(): void {
    const told = async (list: LectureList) => {
      const all = await Promise.all(list.lectures.map(async (one) => [one, ...(one.own ? [] : await translations(one))]));
      this.list = { ...list, lectures: all.flat() };
    };
    get<LectureList>("lectures").then(told).catch((error: unknown) => { this.trouble = said(error); });
  }

  find(name: string): Lecture | undefined {
    return name === MINE ? this.mine : this.list?.lectures.find((one) => one.name === name);
  }

  /** Change one's own; this browser remembers it. */
  change(fields: Partial<Lecture>): void {
    this.mine = { ...this.mine, ...fields };
    remember(MINE, this.mine);
  }

  /** Open another as one's own; the one before can be taken back. */
  replace(lecture: Lecture): void {
    if (this.mine.steps.length) remember("before", (this.before = this.mine));
    this.change({ ...EMPTY, ...lecture, own: true });
  }

  /** Put a step into one's own, at a place or at its end. */
  add(step: LectureStep, at = this.mine.steps.length): void {
    this.change({ steps: this.mine.steps.toSpliced(at, 0, { ...step }) });
  }
}

export const lectures = new Lectures();
