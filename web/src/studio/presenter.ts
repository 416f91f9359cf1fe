// The two windows of a lecture: the slides, and what the presenter sees. They talk by a channel of this browser.
import type { Place } from "./place";

/** A window, and how much larger than its own pixels its slide is. */
export interface Screen { width: number; height: number; scale: number }
/** What the slides show: a step, a stage of its drawing, and in which window. */
export type Where = Pick<Place, "lecture" | "step"> & { hidden: boolean; stage: number; screen: Screen };
/** A point of a slide, as shares of its width and height. */
export type Point = readonly [number, number];
type Message = { kind: "go"; by: number } | { kind: "ask" } | { kind: "left" } | { kind: "gone" } | { kind: "point"; at: Point | undefined } | ({ kind: "at" } & Where);
/** What the presenter knows of the window of the slides. */
export type Slides = "seen" | "hidden" | "silent";

const NAME = "foveate-lecture";
export const PATIENCE = 1500; // milliseconds in which a window answers, or is there again after it was loaded anew

class Talk {
  private readonly channel = new BroadcastChannel(NAME);
  private timer: ReturnType<typeof setTimeout> | undefined;

  protected constructor(heard: (message: Message) => void) {
    this.channel.onmessage = ({ data }: MessageEvent<Message>) => heard(data);
  }

  protected say(message: Message): void {
    this.channel.postMessage(message);
  }

  /** Do something unless a message comes before. */
  protected unless(act?: () => void): void {
    clearTimeout(this.timer);
    this.timer = act && setTimeout(act, PATIENCE);
  }

  close(): void {
    this.unless();
    this.channel.close();
  }
}

/** The window of the slides: it does what the presenter's says, and tells where it is. */
export class Projector extends Talk {
  private isGone = false;

  constructor(private readonly where: () => Where, go: (by: number) => void, presented: (isPresented: boolean) => void, point: (at: Point | undefined) => void) {
    super((message) => {
      if (message.kind === "at" || message.kind === "gone") return;
      if (message.kind === "point") return point(message.at);
      if (message.kind === "left") return this.unless(() => presented(false));
      this.unless();
      presented(true);
      if (message.kind === "go") go(message.by);
      this.tell();
    });
    this.tell();
  }

  tell(): void {
    if (!this.isGone) this.say({ kind: "at", ...this.where() });
  }

  /** Say that the window closes; what its end still calls, as being hidden, is not told. */
  leave(): void {
    this.isGone = true;
    this.say({ kind: "gone" });
  }
}

/** The window of the presenter: it follows the slides and moves them; where they do not answer it goes on by itself. */
export class Presenter extends Talk {
  constructor(private readonly at: (where: Where) => void, private readonly found: (slides: Slides) => void) {
    super((message) => {
      if (message.kind === "gone") return this.unless(() => this.found("silent"));
      if (message.kind !== "at") return;
      this.unless();
      this.found(message.hidden ? "hidden" : "seen");
      this.at(message);
    });
    this.ask();
  }

  ask(): void {
    this.say({ kind: "ask" });
    this.unless(() => this.found("silent"));
  }

  go(by: number): void {
    this.say({ kind: "go", by });
    this.unless(() => this.found("silent"));
  }

  /** Show a point of the slide to the audience, or hide it. */
  point(at?: Point): void {
    this.say({ kind: "point", at });
  }

  leave(): void {
    this.say({ kind: "left" });
  }
}
