// What a kind of drawing is given to draw on, and what it gives back.
import type { Choice, Selection } from "./selection";
import type { mount } from "./mount";
import type { AnyDrawing, FilmDrawing } from "./types";

/** Parts of attention; without a list all that belong to the drawing's form are shown. */
export type Part = "sentences" | "links" | "matrix" | "heads" | "blocks" | "scale" | "key";

export interface Options {
  /** What is chosen; drawings that share it light together. */
  selection?: Selection;
  onselect?: (choice: Readonly<Choice>, changed: Choice) => void;
  /** A word's alternative was clicked: put it in place of the word. */
  onforce?: (word: number, alternative: number) => void;
  /** The computation of a block of a model was asked for: the view `scene` of this block, layer and head. */
  onwalk?: (block: string, layer: number, head: number) => void;
  /** A slider was let go: what its option is now. */
  ondrag?: (option: string, value: number | number[]) => void;
  /** How a training that can be repeated here is shown, in place of its stored film. */
  onlearn?: Draw<FilmDrawing>;
  /** Parts of attention that are shown here. */
  parts?: readonly Part[];
  /** Title, caption, notes, table and the buttons that save; they are there unless this is false. */
  frame?: boolean;
  /** A page of this drawing alone as HTML; where it can be had there is a button to save it. */
  page?: (drawing: AnyDrawing) => Promise<string> | string;
}

/** The same as a picture in rows and columns, for who does not see it and for copying. */
export interface Twin {
  caption: string;
  columns: string[];
  rows: (string | number | null)[][]; // the first of a row is its name
}

export interface Drawn {
  twin(): Twin;
  /** What is saved as JSON; the drawing itself where absent. */
  json?(): unknown;
  /** A key was pressed; true where it meant something here. */
  key?(event: KeyboardEvent): boolean;
  /** Show the next stage of what is shown stage by stage, or that before; false where there is none. */
  step?(by: number): boolean;
  /** Show a drawing of the same kind with more in it, where nothing has to be built anew. */
  grow?(drawing: AnyDrawing): void;
  /** There is another width to draw on. */
  resize?(): void;
  destroy?(): void;
}

export interface Stage {
  readonly body: HTMLElement;
  readonly selection: Selection;
  readonly options: Options;
  /** What outlives an update: which curves are hidden, where one has scrolled to. */
  readonly memory: Map<string, unknown>;
  /** Draw one drawing inside another. */
  readonly mount: typeof mount;
  /** The drawing shows something else: what goes along with it (the table) is made anew. */
  changed(): void;
}

export type Draw<D extends AnyDrawing> = (stage: Stage, drawing: D) => Drawn;
