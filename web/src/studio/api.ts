// Written by `npm run types` from src/foveate/studio; do not edit. Of 6ac7623aaede1650.
import type { AnyDrawing, Node } from "../core";

export type AnswerEvent =
  Start | Token | BeamStep | TextDone | LabelDone | DrawnDone | Failed | Ping;
export type EvaluationEvent = Progress | Evaluated | Failed | Ping;
export type TrainingEvents = TrainingEvent;

export interface Everything {
  Alternative: Alternative;
  Answer: Answer;
  AnswerEvent: AnswerEvent;
  Ask: Ask;
  BeamStep: BeamStep;
  CurveOf: CurveOf;
  Drawings: Drawings;
  DrawnDone: DrawnDone;
  ErrorBody: ErrorBody;
  Evaluated: Evaluated;
  EvaluationEvent: EvaluationEvent;
  Example: Example;
  Examples: Examples;
  Failed: Failed;
  Film: Film;
  FilmAsk: FilmAsk;
  Frame: Frame;
  Head: Head;
  Hypothesis: Hypothesis;
  LabelDone: LabelDone;
  Ping: Ping;
  Probability: Probability;
  Problem: Problem;
  Progress: Progress;
  Question: Question;
  Row: Row;
  RunDetail: RunDetail;
  RunInfo: RunInfo;
  RunList: RunList;
  SampleAt: SampleAt;
  SamplesOf: SamplesOf;
  SearchInfo: SearchInfo;
  SearchSettings: SearchSettings;
  SeriesOf: SeriesOf;
  SourceToken: SourceToken;
  Start: Start;
  TextDone: TextDone;
  Token: Token;
  Training: Training;
  TrainingEvent: TrainingEvent;
  TrainingEvents: TrainingEvents;
  TrainingList: TrainingList;
  ViewField: ViewField;
  ViewInfo: ViewInfo;
  ViewsAsk: ViewsAsk;
}
/**
 * A token that might have stood here; to force it, send the ids before it and its own.
 */
export interface Alternative {
  id: number;
  text: string;
  p: number;
}
/**
 * All events of an answer together: for those who do not stream.
 */
export interface Answer {
  start: Start;
  beam: BeamStep[];
  done: TextDone | LabelDone | DrawnDone;
}
/**
 * The answer begins: what is read.
 */
export interface Start {
  event: "start";
  run: string;
  source: SourceToken[];
  prefix: number[];
  cut: number;
}
/**
 * A piece of what was read and its characters in it (first, one after the last).
 */
export interface SourceToken {
  text: string;
  start: number;
  end: number;
}
/**
 * A step of a search that follows several outputs: its beginnings, best first.
 *
 * ``best`` is the node of the best output so far, ``text`` that output.
 */
export interface BeamStep {
  event: "beam";
  step: number;
  nodes: Node[];
  best: number;
  text: string;
}
/**
 * The outputs, best first.
 */
export interface TextDone {
  event: "done";
  kind: "text";
  hypotheses: Hypothesis[];
  drawings: AnyDrawing[];
  milliseconds: number;
}
/**
 * An output: its tokens (the end among them), and its nodes in the beam.
 */
export interface Hypothesis {
  text: string;
  logP: number;
  score: number;
  ended: boolean;
  tokens: Token[];
  path: number[];
}
/**
 * A token of an output. The ``text`` of all tokens in a row is the text of the output.
 *
 * ``text`` is empty where a token holds only a part of a character; ``piece`` is its name in the
 * vocabulary. ``special`` tokens (the end) have no text.
 */
export interface Token {
  event: "token";
  i: number;
  id: number;
  text: string;
  piece: string;
  special: boolean;
  logP: number;
  entropy: number;
  alternatives: Alternative[];
}
/**
 * The labels, the most probable first.
 */
export interface LabelDone {
  event: "done";
  kind: "label";
  labels: Probability[];
  cut: number;
  drawings: AnyDrawing[];
  milliseconds: number;
}
/**
 * A label and its p.
 */
export interface Probability {
  label: string;
  p: number;
}
/**
 * An answer that is best drawn: a forecast, a text with its hidden words filled in.
 */
export interface DrawnDone {
  event: "done";
  kind: "drawn";
  drawings: AnyDrawing[];
  milliseconds: number;
}
/**
 * The answer ends in an error.
 */
export interface Failed {
  event: "error";
  code: string;
  message: string;
  hint: string;
}
/**
 * Nothing new; the connection lives.
 */
export interface Ping {
  event: "ping";
}
/**
 * What a run is asked; each task reads the fields that it has a use for.
 *
 * ``text`` is a source, or what a text begins with; ``picture`` a data URI of a PNG or JPEG, or
 * the number of a test picture; ``date`` the first row of a forecast (absent: what comes after
 * the series), ``channel`` one of the series, ``csv`` a table of the user's with the same columns.
 * Outputs begin with the ids of the ``prefix``, or with the text ``beginning``.
 */
export interface Ask {
  text?: string;
  to?: string | null;
  picture?: string | null;
  date?: string | null;
  channel?: string | null;
  csv?: string | null;
  search?: SearchSettings;
  prefix?: number[];
  beginning?: string;
  silenced?: Head[];
  hypotheses?: number;
  topK?: number;
}
/**
 * Choices of a search; the run's own where they are absent.
 *
 * ``kind`` is one of ``foveate kinds search``; a choice that the kind does not have is an error.
 */
export interface SearchSettings {
  kind?: string | null;
  beamSize?: number | null;
  lengthPenalty?: number | null;
  temperature?: number | null;
  topK?: number | null;
  topP?: number | null;
  minP?: number | null;
  repetitionPenalty?: number | null;
  numSamples?: number | null;
  groups?: number | null;
  diversity?: number | null;
  maxRatio?: number | null;
  maxExtra?: number | null;
  seed?: number | null;
}
/**
 * A head of a layer of a block, as an attention drawing names them; absent, all of the layer.
 *
 * ``layer`` is counted from 0, from the end where negative.
 */
export interface Head {
  block: string;
  layer: number;
  head?: number | null;
}
/**
 * A key of a log over steps and over seconds of training; gaps are null.
 */
export interface CurveOf {
  key: string;
  steps: number[];
  seconds: (number | null)[];
  values: (number | null)[];
}
/**
 * A view as drawings; arrays above 64 kB are had from their URLs.
 */
export interface Drawings {
  drawings: AnyDrawing[];
  milliseconds: number;
}
/**
 * The body of every answer that is an error.
 */
export interface ErrorBody {
  error: Problem;
}
/**
 * What went wrong, and what to do about it where that is known.
 */
export interface Problem {
  code: string;
  message: string;
  hint: string;
}
/**
 * The figures of some examples of a split, and all of these.
 *
 * ``scored`` names the score of a row; it is better large where ``better`` is 1, small where −1.
 */
export interface Evaluated {
  event: "evaluation";
  run: string;
  split: string;
  count: number;
  total: number;
  figures: {
    [k: string]: number | null;
  };
  signatures: {
    [k: string]: string;
  };
  scored: string;
  better: 1 | -1;
  rows: Row[];
}
/**
 * An example: what went in, what was right, what came out, and its score.
 *
 * ``i`` is its number in the split; ``picture`` and ``date`` are what to ask to inspect it.
 */
export interface Row {
  i: number;
  source: string;
  reference: string;
  output: string;
  score: number | null;
  length: number;
  picture: string | null;
  date: string | null;
}
/**
 * How many examples are done.
 */
export interface Progress {
  event: "progress";
  done: number;
  total: number;
}
/**
 * Something to try: a text, the number of a picture, a date; ``wanted`` is the right answer.
 */
export interface Example {
  text: string;
  picture: string | null;
  thumbnail: string;
  date: string | null;
  wanted: string;
}
/**
 * Examples of the run's own data; none, and a note why, where the data are not here.
 */
export interface Examples {
  examples: Example[];
  note: string;
}
/**
 * A view as it changed over the checkpoints of a training that are still there.
 */
export interface Film {
  frames: Frame[];
}
/**
 * A view at one step of a training.
 */
export interface Frame {
  step: number;
  drawings: AnyDrawing[];
}
/**
 * A view at several checkpoints of a training, ``most`` of them, the last among them.
 */
export interface FilmAsk {
  view?: string;
  question?: Question;
  most?: number;
}
/**
 * What to look at, and how. A view says which fields it reads (`Entry.reads`).
 *
 * Where no ``text`` is given, an example of the run's last validation stands in.
 */
export interface Question {
  /**
   * what the model reads; of a forecaster the date
   */
  text?: string | null;
  /**
   * explain this instead of the answer; of a forecaster the channel
   */
  target?: string | null;
  /**
   * JPEG or PNG, or the number of a test picture
   */
  image?: string | null;
  /**
   * train, valid or test
   */
  split?: string;
  /**
   * cross_attention, self_attention, …
   */
  block?: string | null;
  /**
   * from 0, or -1 for the last
   */
  layer?: number;
  /**
   * mean of all if absent
   */
  head?: number | null;
  /**
   * colours by row, or absolute
   */
  scale?: "row" | "absolute";
  /**
   * rows and columns; auto: by the tokenizer and the script
   */
  units?: "auto" | "tokens" | "words";
  /**
   * how many alternatives of each token
   */
  top?: number;
  /**
   * how many outputs
   */
  num?: number;
  /**
   * of the run, or as wide as --num, if absent
   */
  beam_size?: number | null;
  /**
   * places
   */
  length?: number;
  /**
   * steps a side of the grid, an odd number
   */
  steps?: number;
  /**
   * heads that add nothing: PLACE:HEAD; repeat
   */
  silence?: string[];
  /**
   * what x is: step or time
   */
  across?: "step" | "time";
  /**
   * gold alignment of the split: 1-1 2p3 a line
   */
  gold?: string | null;
  /**
   * sources, line by line
   */
  source?: string | null;
  /**
   * references, line by line
   */
  reference?: string | null;
  /**
   * outputs, line by line; repeat
   */
  hypotheses?: string[];
}
/**
 * All that a screen needs to know of a run; it has been loaded.
 *
 * ``can`` holds words such as stream, beam, sample, force, attention, gates, silence, evaluate.
 */
export interface RunDetail {
  id: string;
  name: string;
  task: string;
  model: string;
  reads: "text" | "picture" | "series";
  gives: "text" | "label" | "forecast" | "words";
  parameters: number | null;
  step: number | null;
  figures: {
    [k: string]: number | null;
  };
  can: string[];
  languages: string[];
  layers: number | null;
  heads: number | null;
  hiddenSize: number | null;
  vocabulary: {
    [k: string]: number;
  };
  labels: string[];
  channels: string[];
  mostTokens: number | null;
  search: SearchInfo | null;
  views: ViewInfo[];
  device: string;
  checkpoint: string;
}
/**
 * The run's own search, the kinds that it can change to, and their fields.
 */
export interface SearchInfo {
  kind: string;
  fields: {
    [k: string]: unknown;
  };
  kinds: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
}
/**
 * A view, and whether it fits the run; ``reason`` says why not.
 *
 * It takes from ``least`` to ``most`` runs in one picture (any number where ``most`` is absent).
 */
export interface ViewInfo {
  name: string;
  summary: string;
  fields: ViewField[];
  fits: boolean;
  reason: string;
  least: number;
  most: number | null;
}
/**
 * A field of the question that a view reads; ``form`` is its JSON Schema.
 */
export interface ViewField {
  name: string;
  description: string;
  form: {
    [k: string]: unknown;
  };
}
/**
 * A run: what it reads and gives, how large it is, its figures.
 */
export interface RunInfo {
  id: string;
  name: string;
  task: string;
  model: string;
  reads: "text" | "picture" | "series";
  gives: "text" | "label" | "forecast" | "words";
  parameters: number | null;
  step: number | null;
  figures: {
    [k: string]: number | null;
  };
}
/**
 * The runs that the studio was given, and why some folders are none that can be shown.
 */
export interface RunList {
  runs: RunInfo[];
  leftOut: {
    [k: string]: string;
  };
}
/**
 * One example at one step: what went in, what was wanted, what came out.
 */
export interface SampleAt {
  step: number;
  source: string;
  reference: string;
  output: string;
}
/**
 * Samples of all validations, in the order of the log.
 */
export interface SamplesOf {
  samples: SampleAt[];
}
/**
 * Curves of a training up to the step ``last``; ``points`` is how many there were of each.
 */
export interface SeriesOf {
  curves: CurveOf[];
  last: number;
  points: {
    [k: string]: number;
  };
}
/**
 * A training: where it stands, and which curves its log has.
 */
export interface Training {
  id: string;
  name: string;
  running: boolean;
  step: number;
  maxSteps: number | null;
  epoch: number | null;
  seconds: number | null;
  parameters: number | null;
  device: string;
  keys: string[];
  hasSamples: boolean;
}
/**
 * A line of a log: "start", "train", "valid", "average"; or "cut", where lines after ``step``
 * are gone, for a training went on from a checkpoint, or "ping", where there is nothing new.
 */
export interface TrainingEvent {
  event: string;
  step: number;
  epoch: number | null;
  seconds: number | null;
  values: {
    [k: string]: number | null;
  };
  samples: SampleAt[];
}
/**
 * All trainings that the studio knows.
 */
export interface TrainingList {
  trainings: Training[];
}
/**
 * A view of one run or of several in one picture, with heads silenced while it is made.
 */
export interface ViewsAsk {
  /**
   * @minItems 1
   * @maxItems 12
   */
  runs:
    | [string]
    | [string, string]
    | [string, string, string]
    | [string, string, string, string]
    | [string, string, string, string, string]
    | [string, string, string, string, string, string]
    | [string, string, string, string, string, string, string]
    | [string, string, string, string, string, string, string, string]
    | [string, string, string, string, string, string, string, string, string]
    | [string, string, string, string, string, string, string, string, string, string]
    | [string, string, string, string, string, string, string, string, string, string, string]
    | [
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string
      ];
  question?: Question;
  silenced?: Head[];
}
