// Written by `npm run types` from src/foveate/look/draw; do not edit. Of 6a7deee4b707d0ae.
export type AnyDrawing =
  | AttentionDrawing
  | FilmDrawing
  | SheetDrawing
  | LinesDrawing
  | BarsDrawing
  | WordsDrawing
  | LanesDrawing
  | PictureDrawing
  | SceneDrawing
  | TableDrawing
  | InteractiveDrawing;

/**
 * Attention between words, layer by layer and head by head, and what is shown of it first.
 *
 * ``form``: ``matrix``, ``links`` (words joined by lines) or ``heads`` (all of a block in small).
 * ``head`` absent is the mean of all.
 */
export interface AttentionDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "attention";
  blocks: Block[];
  form: "matrix" | "links" | "heads";
  block: string;
  layer: number;
  head: number | null;
  scale: "row" | "absolute";
}
/**
 * The maps of one block of a model: weights (H, T, S) of each layer, with one set of labels.
 *
 * ``row_means`` says whether a row is the word a decoder is ``producing`` or the word it is
 * ``at``; ``kinds`` may name what each head of each layer does (diagonal, sink …).
 */
export interface Block {
  name: string;
  rowMeans: "producing" | "at";
  rows: string[];
  columns: string[];
  layers: Numbers[];
  hasHeads: boolean;
  kinds: string[][];
}
/**
 * An array as base64 of little-endian numbers, or the URL from which its bytes are read.
 *
 * ``u16`` counts 1/65,535 (weights from 0 to 1; 0 stands for 0 alone); ``f32`` is float32, NaN a
 * blank.
 */
export interface Numbers {
  shape: number[];
  codec: "u16" | "f32";
  data: string;
  url: string;
}
/**
 * Attention to one example at steps of a training, and which map of it is shown first.
 *
 * ``head`` absent is the mean of all. Colours are absolute, so that frames can be compared.
 */
export interface FilmDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "film";
  frames: Snapshot[];
  block: string;
  layer: number;
  head: number | null;
  live: boolean;
}
/**
 * The maps of an example at a step of a training, and two losses, None where unknown.
 *
 * ``loss`` is −log p of a target of the example, ``validation`` that of the last validation.
 */
export interface Snapshot {
  step: number;
  loss: number | null;
  validation: number | null;
  blocks: Block[];
}
/**
 * Numbers (T, S) as colours, the first row on top; they diverge from white at 0 where ends do.
 *
 * NaN stays blank. ``cells`` are texts that stand in the cells, ``told`` says what the ends are
 * where they should not be numbers. ``aspect`` is the height of a cell by its width. ``dots`` are
 * places (row, column) that are marked, between cells unless they are whole numbers; ``outlines``
 * are rectangles around cells: top, left, height, width.
 */
export interface SheetDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "sheet";
  values: Numbers;
  rows: string[];
  columns: string[];
  down: string;
  across: string;
  least: number;
  most: number;
  told: string;
  aspect: number;
  cells: string[][];
  dots: [number, number][];
  outlines: [number, number, number, number][];
}
/**
 * Lines over one axis ``x`` (N,), with own colours and dashes; NaN for a missing value.
 *
 * ``across`` and ``up`` are what the axes are, ``log`` which of them are logarithmic. Points are
 * ``joined`` by lines unless there is nothing between them. ``ends`` are those of the axis across
 * where it is longer than ``x``. Where points are ``named`` their labels stand beside them.
 */
export interface LinesDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "lines";
  x: number[];
  curves: Curve[];
  joined: boolean;
  ends: [number, number] | null;
  across: string;
  up: string;
  log: "" | "x" | "y" | "xy";
  labels: string[];
  named: boolean;
  marks: Mark[];
}
/**
 * A line over the places of its drawing, with a band where its ends are known.
 *
 * Curves of one ``hue`` belong together (of a run, for example); absent it is the curve's number.
 * A ``faint`` curve stands behind its smoothed one.
 */
export interface Curve {
  name: string;
  y: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  hue: number | null;
  faint: boolean;
}
/**
 * A place on the axis with a name: where a forecast begins, a checkpoint was written.
 */
export interface Mark {
  x: number;
  label: string;
}
/**
 * Bars for each label, beside each other if there are several series; NaN has none.
 *
 * ``at`` is a value that bars are compared with, a dashed line.
 */
export interface BarsDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "bars";
  labels: string[];
  series: BarSeries[];
  up: string;
  across: string;
  at: number | null;
}
/**
 * The bars of one name, with the ends of their intervals where known.
 */
export interface BarSeries {
  name: string;
  values: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}
/**
 * A text whose words have colours; ``told`` says what of. Signs of both kinds diverge at 0.
 *
 * With a ``total``, values are probabilities, written below their words: it is their product;
 * ``condition`` is what they depend on besides the words before.
 */
export interface WordsDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "words";
  words: Word[];
  told: string;
  least: number;
  most: number;
  total: string;
  condition: string;
}
/**
 * A word or piece; ``value`` colours it, ``alternatives`` are shown when it is chosen.
 *
 * ``space`` says whether a space stands before it; ``note`` is what else there is to say of it.
 */
export interface Word {
  text: string;
  value: number | null;
  space: boolean;
  note: string;
  alternatives: Choice[];
}
/**
 * A token that might have stood here, and its p.
 */
export interface Choice {
  text: string;
  p: number;
}
/**
 * A beam search: a column for each step, in it the partial hypotheses, best first.
 *
 * ``best`` are the nodes of the answer, ``greedy`` those of greedy search, which the beam may have
 * dropped; ``scored`` is how a score is computed, where it is not p.
 */
export interface LanesDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "lanes";
  steps: Node[][];
  best: number[];
  greedy: number[];
  scored: string;
}
/**
 * A partial hypothesis of a beam at one step: its last token, and the one that it extends.
 */
export interface Node {
  id: number;
  parent: number | null;
  text: string;
  logP: number;
  score: number;
  state: "live" | "done" | "pruned";
}
/**
 * A picture (C, H, W) and the attention to it: weights on its cells, or a path of glimpses.
 *
 * ``path`` are middles of glimpses as (x, y) in pixels, ``sides`` the widths that they see, one
 * for each scale.
 */
export interface PictureDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "picture";
  image: string;
  width: number;
  height: number;
  overlays: Overlay[];
  scale: "row" | "absolute";
  path: [number, number][];
  sides: number[];
}
/**
 * Weights (rows, columns) over the cells of a picture.
 */
export interface Overlay {
  title: string;
  weights: Numbers;
  note: string;
}
/**
 * A model as one scene, which is visited at ``stops``.
 */
export interface SceneDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "scene";
  nodes: SceneNode[];
  edges: SceneEdge[];
  panels: ScenePanel[];
  stops: SceneStop[];
}
/**
 * A box at its place, what it computes (``detail``), and when it is drawn.
 *
 * ``texts`` are the numbers in it, line by line, ``level`` is how strongly it is filled, from 0
 * to 1. A word is written as it is, a label with its indices low. A node with a ``tag`` is drawn
 * at the stops that show this tag, others at all of them.
 */
export interface SceneNode {
  name: string;
  label: string;
  form: "box" | "group" | "word" | "label" | "plus" | "frame" | "pixel";
  /**
   * @minItems 4
   * @maxItems 4
   */
  box: [number, number, number, number];
  hue: number | null;
  tag: string;
  detail: string[];
  texts: string[];
  level: number;
}
/**
 * An arrow through points, or a curve as wide as its ``weight`` from 0 to 1.
 */
export interface SceneEdge {
  name: string;
  points: [number, number][];
  weight: number | null;
  hue: number | null;
  tag: string;
}
/**
 * The inside of a node: an attention's numbers by stage, a recurrent cell's, or others'.
 *
 * ``rows`` and ``columns`` label queries and keys; other blocks have steps or positions as rows,
 * and no columns. ``values`` are (H, T, N) or (H, T, S), ``reads`` the stages that each is
 * computed from, ``letters`` what they are called, ``tokens`` name the numbers of a stage at each
 * position, and ``units`` are drawn first. ``score`` and ``normalizer`` are kinds, if all that
 * the scores and weights are computed from is drawn.
 */
export interface ScenePanel {
  node: string;
  rows: string[];
  columns: string[];
  values: {
    [k: string]: Numbers;
  };
  equations: {
    [k: string]: string;
  };
  reads: {
    [k: string]: string[];
  };
  letters: {
    [k: string]: string;
  };
  tokens: {
    [k: string]: string[][];
  };
  units: {
    [k: string]: number[];
  };
  score: string;
  normalizer: string;
  head: number;
  row: number;
}
/**
 * A camera stop: its rectangle, the tags that it shows, and the names that it lights.
 *
 * A name lights everything whose name begins with it. In a ``panel`` the browser draws the inside.
 */
export interface SceneStop {
  name: string;
  caption: string;
  /**
   * @minItems 4
   * @maxItems 4
   */
  box: [number, number, number, number];
  shows: string[];
  lit: string[];
  panel: number | null;
}
/**
 * Rows under the names of their columns; numbers stand at the right, texts at the left.
 */
export interface TableDrawing {
  title: string;
  caption: string;
  notes: string[];
  kind: "table";
  columns: string[];
  rows: (string | number | null)[][];
}
/**
 * Drawings as Python makes them at the values of the sliders, and what can be dragged.
 */
export interface InteractiveDrawing {
  title: string;
  caption: string;
  notes: string[];
  formula: string;
  sliders: Slider[];
  data: {
    [k: string]: Numbers;
  };
  plane: [string, string] | null;
  kind: "interactive";
  parts: (SheetDrawing | LinesDrawing | BarsDrawing)[];
}
/**
 * A number that is dragged from stop to stop: an option of a demo, or a value of several.
 */
export interface Slider {
  option: string;
  index: number | null;
  label: string;
  stops: number[];
  value: number;
}
