// Written by `npm run types` from src/foveate/studio; do not edit. Of f6e537be642da696.
import type { AnyDrawing, Node } from "../core";

export type AnswerEvent =
  AnswerStart | Token | BeamStep | TextDone | LabelDone | DrawnDone | Failed | Ping;
export type EvaluationEvent = Progress | Evaluated | Failed | Ping;
export type TrainingEvents = TrainingEvent;

export interface Everything {
  Alternative: Alternative;
  AnswerEvent: AnswerEvent;
  AnswerHypothesis: AnswerHypothesis;
  AnswerRequest: AnswerRequest;
  AnswerStart: AnswerStart;
  BaseControls: BaseControls;
  BeamStep: BeamStep;
  ComparisonInfo: ComparisonInfo;
  ComparisonList: ComparisonList;
  CompleteAnswer: CompleteAnswer;
  CurveOf: CurveOf;
  DemoInfo: DemoInfo;
  DemoList: DemoList;
  Drawings: Drawings;
  DrawnDone: DrawnDone;
  Error: Error;
  Evaluated: Evaluated;
  EvaluatedExample: EvaluatedExample;
  EvaluationEvent: EvaluationEvent;
  Example: Example;
  ExampleList: ExampleList;
  Failed: Failed;
  LabelDone: LabelDone;
  Lecture: Lecture;
  LectureFile: LectureFile;
  LectureList: LectureList;
  LectureRun: LectureRun;
  LectureStep: LectureStep;
  Origin: Origin;
  Ping: Ping;
  Probability: Probability;
  Progress: Progress;
  Question: Question;
  RunDetail: RunDetail;
  RunInfo: RunInfo;
  RunList: RunList;
  SampleAt: SampleAt;
  SamplesOf: SamplesOf;
  SearchInfo: SearchInfo;
  SearchSettings: SearchSettings;
  SeriesOf: SeriesOf;
  SilencedHead: SilencedHead;
  SourceToken: SourceToken;
  TextDone: TextDone;
  Token: Token;
  TrainingEvent: TrainingEvent;
  TrainingEvents: TrainingEvents;
  TrainingInfo: TrainingInfo;
  TrainingList: TrainingList;
  ViewField: ViewField;
  ViewInfo: ViewInfo;
  ViewRequest: ViewRequest;
}
/**
 * Another token for the same place; to force it, send the ids before it and its own.
 */
export interface Alternative {
  id: number;
  text: string;
  p: number;
}
/**
 * The answer begins: the tokens of the source, and its words that training never showed.
 */
export interface AnswerStart {
  event: "start";
  run: string;
  source: SourceToken[];
  unknown: string[];
  prefix: number[];
  cut: number;
}
/**
 * A token of the source and its characters there (first, one after the last).
 */
export interface SourceToken {
  text: string;
  start: number;
  end: number;
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
 * A step of a search with several hypotheses: its partial hypotheses, best first.
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
  hypotheses: AnswerHypothesis[];
  drawings: AnyDrawing[];
  milliseconds: number;
}
/**
 * An output: its tokens (the end among them), its nodes in the beam, its form of address.
 */
export interface AnswerHypothesis {
  text: string;
  formality: "" | "informal" | "formal";
  logP: number;
  score: number;
  ended: boolean;
  tokens: Token[];
  path: number[];
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
 * A label and its probability.
 */
export interface Probability {
  label: string;
  p: number;
}
/**
 * An answer as drawings: a forecast, a text with its hidden words filled in.
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
  error: string;
}
/**
 * Nothing new; it keeps the connection open.
 */
export interface Ping {
  event: "ping";
}
/**
 * The input of a run; each task reads the fields that it needs.
 *
 * ``text`` is a source, or the beginning of a text; ``picture`` a data URI of a PNG or JPEG, or
 * the number of a test picture; ``date`` the first row of a forecast (absent: what comes after
 * the series), ``channel`` one of the series, ``csv`` a table of the user's with the same columns.
 * Outputs begin with the ids of the ``prefix``, or with the text ``beginning``.
 */
export interface AnswerRequest {
  text?: string;
  to?: string | null;
  picture?: string | null;
  date?: string | null;
  channel?: string | null;
  csv?: string | null;
  search?: SearchSettings;
  prefix?: number[];
  beginning?: string;
  silenced?: SilencedHead[];
  hypotheses?: number;
  topK?: number;
}
/**
 * Fields of a search; the run's own where they are absent.
 *
 * ``kind`` is one of ``foveate kinds search``; a field that the kind does not have is an error.
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
export interface SilencedHead {
  block: string;
  layer: number;
  head?: number | null;
}
/**
 * The part of a drawing that can be dragged in a browser.
 */
export interface BaseControls {}
/**
 * A page that ``foveate compare`` has written: its models, and the titles of its chapters.
 */
export interface ComparisonInfo {
  id: string;
  models: string[];
  chapters: string[];
}
/**
 * All comparisons in and beside the folders of the studio.
 */
export interface ComparisonList {
  comparisons: ComparisonInfo[];
}
/**
 * All events of an answer together: for clients that do not stream.
 */
export interface CompleteAnswer {
  start: AnswerStart;
  beam: BeamStep[];
  done: TextDone | LabelDone | DrawnDone;
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
 * A demo and its options; those that name files are left out.
 */
export interface DemoInfo {
  name: string;
  summary: string;
  fields: ViewField[];
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
 * All demos.
 */
export interface DemoList {
  demos: DemoInfo[];
}
/**
 * A view as drawings; arrays above 64 kB are fetched from their URLs.
 *
 * ``unknown`` are the words of its text that training never showed.
 */
export interface Drawings {
  drawings: AnyDrawing[];
  milliseconds: number;
  unknown: string[];
}
/**
 * The form of every error.
 */
export interface Error {
  error: string;
}
/**
 * The figures of some examples of a split, and these examples.
 *
 * ``scored`` names the score of a row; large ones are good where ``better`` is 1, small ones
 * where it is −1.
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
  rows: EvaluatedExample[];
}
/**
 * An example: its source, its reference, the output, and its score.
 *
 * ``i`` is its number in the split; ``picture`` or ``date`` are sent in a request to inspect it.
 */
export interface EvaluatedExample {
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
 * Number of examples that are done.
 */
export interface Progress {
  event: "progress";
  done: number;
  total: number;
}
/**
 * An example: a text, the number of a picture, or a date; ``wanted`` is the right answer.
 */
export interface Example {
  text: string;
  picture: string | null;
  thumbnail: string;
  date: string | null;
  wanted: string;
}
/**
 * Examples of the run's own data; none, and a note why, where the data cannot be read.
 */
export interface ExampleList {
  examples: Example[];
  note: string;
}
/**
 * A lecture: its title, whose it is, what it is about, and its steps in order.
 *
 * One's ``own`` comes from the folder of the studio; it may be saved there again.
 */
export interface Lecture {
  name: string;
  title: string;
  after: string;
  about: string;
  steps: LectureStep[];
  own: boolean;
}
/**
 * A step: an equation, the command that draws it, speaker's notes, and the slip of the slide.
 *
 * ``caption`` says what to see in the drawing; ``picture`` is a file under docs for the page.
 */
export interface LectureStep {
  title: string;
  equation: string;
  command: string;
  caption: string;
  notes: string;
  slip: string;
}
/**
 * A lecture as a file: its name without the ending, and the TOML.
 */
export interface LectureFile {
  name: string;
  text: string;
}
/**
 * All lectures, and the runs that they look into.
 *
 * ``folder`` is where one's own are, if the studio has one; ``problems`` says which files there
 * are not lectures, and why.
 */
export interface LectureList {
  lectures: Lecture[];
  runs: {
    [k: string]: LectureRun;
  };
  folder: string;
  problems: string[];
}
/**
 * A run that steps look into: the command that makes it, and the minutes that takes.
 *
 * A ``packaged`` one has a small run of foveate that stands in where it is missing; for another,
 * that of the name ``instead`` may.
 */
export interface LectureRun {
  minutes: number;
  command: string;
  about: string;
  packaged: boolean;
  instead: string;
}
/**
 * The published folder that a run was imported from, and what its files say.
 *
 * ``positions`` is how many tokens it reads at most, ``dtype`` the type of its stored weights.
 */
export interface Origin {
  folder: string;
  family: string;
  languages: string[];
  parameters: number | null;
  positions: number | null;
  dtype: string;
}
/**
 * Options of a view: what to look at, and how. It reads those fields that it has as parameters.
 *
 * Where no ``text`` is given, an example of the run's last validation stands in.
 */
export interface Question {
  /**
   * input of the model; for a forecaster, the date
   */
  text?: string | null;
  /**
   * explain this output instead of the answer; for a forecaster, the channel
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
   * counting from 0; -1 is the last
   */
  layer?: number;
  /**
   * default: the mean of all; for scene, head 0
   */
  head?: number | null;
  /**
   * query, or step of a cell, counting from 0; default: all
   */
  query?: number | null;
  /**
   * stops whose names begin so: whole, step, …
   */
  stop?: string | null;
  /**
   * show the loss, and its gradient from the output back
   */
  train?: boolean;
  /**
   * colours: absolute (default; per panel for pictures) or by row
   */
  scale?: ("row" | "absolute") | null;
  /**
   * rows and columns; auto depends on the tokenizer and the script
   */
  units?: "auto" | "tokens" | "words";
  /**
   * number of alternatives for each token
   */
  top?: number;
  /**
   * number of outputs
   */
  num?: number;
  /**
   * default: that of the run, or --num
   */
  beam_size?: number | null;
  /**
   * positions
   */
  length?: number;
  /**
   * grid points per side, an odd number
   */
  steps?: number;
  /**
   * head to silence, PLACE:HEAD; repeat
   */
  silence?: string[];
  /**
   * x axis: step or time
   */
  across?: "step" | "time";
  /**
   * default: attention (× gradient), or integrated (gradients) without it
   */
  method?: ("attention" | "gradient" | "integrated" | "occlusion" | "values") | null;
  /**
   * alternative to explain against: a word or label
   */
  foil?: string | null;
  /**
   * text of as many tokens; default: unknown words
   */
  instead?: string | null;
}
/**
 * All that a page shows of a run; it has been loaded.
 *
 * ``layers`` is the first of ``depths``, those of each part: an encoder's, then its decoder's.
 * ``vocabulary`` counts the pieces of each side as published, those that both have as "shared".
 * ``can`` holds words such as stream, beam, sample, force, attention, gates, silence, evaluate.
 */
export interface RunDetail {
  id: string;
  name: string;
  packaged: boolean;
  origin: Origin | null;
  task: string;
  model: string;
  reads: "text" | "picture" | "series";
  gives: "text" | "label" | "words" | "forecast";
  parameters: number | null;
  step: number | null;
  figures: {
    [k: string]: number | null;
  };
  can: string[];
  languages: string[];
  layers: number | null;
  depths: number[];
  heads: number | null;
  hiddenSize: number | null;
  ffnSize: number | null;
  activation: string;
  normOrder: string;
  tie: string;
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
  folder: string;
}
/**
 * The run's own search, the other kinds of search, and their fields.
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
 * It takes up to ``most`` runs in one picture (any number where ``most`` is absent).
 */
export interface ViewInfo {
  name: string;
  summary: string;
  fields: ViewField[];
  fits: boolean;
  reason: string;
  most: number | null;
}
/**
 * A run: whether it ships with foveate, what it reads and gives, its size, its figures.
 *
 * ``origin`` is that of a run that was imported and not trained here.
 */
export interface RunInfo {
  id: string;
  name: string;
  packaged: boolean;
  origin: Origin | null;
  task: string;
  model: string;
  reads: "text" | "picture" | "series";
  gives: "text" | "label" | "words" | "forecast";
  parameters: number | null;
  step: number | null;
  figures: {
    [k: string]: number | null;
  };
}
/**
 * The runs of the studio, and why some of them cannot be shown.
 */
export interface RunList {
  runs: RunInfo[];
  leftOut: {
    [k: string]: string;
  };
}
/**
 * One example at one step: its source, its reference, the output.
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
 * Curves of a training up to the step ``last``.
 */
export interface SeriesOf {
  curves: CurveOf[];
  last: number;
}
/**
 * A line of a log: "start", "train", "valid", "average"; or "cut", where lines after ``step``
 * are gone because a training continued from a checkpoint, or "ping", where nothing is new.
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
 * A training: its progress, and the curves of its log.
 */
export interface TrainingInfo {
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
}
/**
 * The trainings of the studio's runs.
 */
export interface TrainingList {
  trainings: TrainingInfo[];
}
/**
 * A view of one run or of several in one picture, with heads silenced while it is drawn.
 */
export interface ViewRequest {
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
  silenced?: SilencedHead[];
}
