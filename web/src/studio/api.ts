import type {AnyDrawing, Node} from "../core";

export type AnswerEvent =
  Start | Token | BeamStep | TextDone | LabelDone | DrawnDone | Failed | Ping;
export type EvaluationEvent = Progress | Evaluated | Failed | Ping;
export type TrainingEvents = TrainingEvent;

export interface Everything {
  Alternative?: Alternative;
  Answer?: Answer;
  AnswerEvent?: AnswerEvent;
  Ask?: Ask;
  BeamStep?: BeamStep;
  CurveOf?: CurveOf;
  Drawings?: Drawings;
  DrawnDone?: DrawnDone;
  ErrorBody?: ErrorBody;
  Evaluated?: Evaluated;
  EvaluationEvent?: EvaluationEvent;
  Example?: Example;
  Examples?: Examples;
  Failed?: Failed;
  Head?: Head;
  Hypothesis?: Hypothesis;
  LabelDone?: LabelDone;
  Ping?: Ping;
  Probability?: Probability;
  Problem?: Problem;
  Progress?: Progress;
  Question?: Question;
  Row?: Row;
  RunDetail?: RunDetail;
  RunInfo?: RunInfo;
  RunList?: RunList;
  SampleAt?: SampleAt;
  SamplesOf?: SamplesOf;
  SearchInfo?: SearchInfo;
  SearchSettings?: SearchSettings1;
  SeriesOf?: SeriesOf;
  SourceToken?: SourceToken;
  Start?: Start;
  TextDone?: TextDone;
  Token?: Token;
  Training?: Training;
  TrainingEvent?: TrainingEvent;
  TrainingEvents?: TrainingEvents;
  TrainingList?: TrainingList;
  ViewField?: ViewField;
  ViewInfo?: ViewInfo;
  ViewsAsk?: ViewsAsk;
}
/**
 * A token that might have stood here; to force it, send the ids before it and its own.
 */
export interface Alternative {
  id: number;
  p: number;
  text: string;
}
/**
 * All events of an answer together: for those who do not stream.
 */
export interface Answer {
  beam: BeamStep[];
  done: TextDone | LabelDone | DrawnDone;
  start: Start;
}
/**
 * A step of a search that follows several outputs: its beginnings, best first.
 *
 * ``best`` is the node of the best output so far, ``text`` that output.
 */
export interface BeamStep {
  best: number;
  event: "beam";
  nodes: Node[];
  step: number;
  text: string;
}
/**
 * The outputs, best first.
 */
export interface TextDone {
  drawings: AnyDrawing[];
  event: "done";
  hypotheses: Hypothesis[];
  kind: "text";
  milliseconds: number;
}
/**
 * An output: its tokens (the end among them), and its nodes in the beam.
 */
export interface Hypothesis {
  ended: boolean;
  logP: number;
  path: number[];
  score: number;
  text: string;
  tokens: Token[];
}
/**
 * A token of an output. The ``text`` of all tokens in a row is the text of the output.
 *
 * ``text`` is empty where a token holds only a part of a character; ``piece`` is its name in the
 * vocabulary. ``special`` tokens (the end) have no text.
 */
export interface Token {
  alternatives: Alternative[];
  entropy: number;
  event: "token";
  i: number;
  id: number;
  logP: number;
  piece: string;
  special: boolean;
  text: string;
}
/**
 * The labels, the most probable first.
 */
export interface LabelDone {
  cut: number;
  drawings: AnyDrawing[];
  event: "done";
  kind: "label";
  labels: Probability[];
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
  drawings: AnyDrawing[];
  event: "done";
  kind: "drawn";
  milliseconds: number;
}
/**
 * The answer begins: what is read.
 */
export interface Start {
  cut: number;
  event: "start";
  prefix: number[];
  run: string;
  source: SourceToken[];
}
/**
 * A piece of what was read and its characters in it (first, one after the last).
 */
export interface SourceToken {
  end: number;
  start: number;
  text: string;
}
/**
 * The answer ends in an error.
 */
export interface Failed {
  code: string;
  event: "error";
  hint: string;
  message: string;
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
  beginning?: string;
  channel?: string | null;
  csv?: string | null;
  date?: string | null;
  hypotheses?: number;
  picture?: string | null;
  prefix?: number[];
  search?: SearchSettings;
  silenced?: Head[];
  text?: string;
  to?: string | null;
  topK?: number;
}
/**
 * Choices of a search; the run's own where they are absent.
 *
 * ``kind`` is one of ``foveate kinds search``; a choice that the kind does not have is an error.
 */
export interface SearchSettings {
  beamSize?: number | null;
  diversity?: number | null;
  groups?: number | null;
  kind?: string | null;
  lengthPenalty?: number | null;
  maxExtra?: number | null;
  maxRatio?: number | null;
  minP?: number | null;
  numSamples?: number | null;
  repetitionPenalty?: number | null;
  seed?: number | null;
  temperature?: number | null;
  topK?: number | null;
  topP?: number | null;
}
/**
 * A head of a layer of a block, as an attention drawing names them; absent, all of the layer.
 *
 * ``layer`` is counted from 0, from the end where negative.
 */
export interface Head {
  block: string;
  head?: number | null;
  layer: number;
}
/**
 * A key of a log over steps and over seconds of training; gaps are null.
 */
export interface CurveOf {
  key: string;
  seconds: (number | null)[];
  steps: number[];
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
  hint?: string;
  message: string;
}
/**
 * The figures of some examples of a split, and all of these.
 *
 * ``scored`` names the score of a row; it is better large where ``better`` is 1, small where −1.
 */
export interface Evaluated {
  better: 1 | -1;
  count: number;
  event: "evaluation";
  figures: {
    [k: string]: number | null;
  };
  rows: Row[];
  run: string;
  scored: string;
  signatures: {
    [k: string]: string;
  };
  split: string;
  total: number;
}
/**
 * An example: what went in, what was right, what came out, and its score.
 *
 * ``i`` is its number in the split; ``picture`` and ``date`` are what to ask to inspect it.
 */
export interface Row {
  date: string | null;
  i: number;
  length: number;
  output: string;
  picture: string | null;
  reference: string;
  score: number | null;
  source: string;
}
/**
 * How many examples are done.
 */
export interface Progress {
  done: number;
  event: "progress";
  total: number;
}
/**
 * Something to try: a text, the number of a picture, a date; ``wanted`` is the right answer.
 */
export interface Example {
  date: string | null;
  picture: string | null;
  text: string;
  thumbnail: string;
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
 * What to look at, and how. A view says which fields it reads (`Entry.reads`).
 *
 * Where no ``text`` is given, an example of the run's last validation stands in.
 */
export interface Question {
  /**
   * the run's own if absent
   */
  beam_size?: number | null;
  /**
   * cross_attention, self_attention, …
   */
  block?: string | null;
  /**
   * mean of all if absent
   */
  head?: number | null;
  /**
   * JPEG or PNG, or the number of a test picture
   */
  image?: string | null;
  /**
   * from 0, or -1 for the last
   */
  layer?: number;
  /**
   * places
   */
  length?: number;
  /**
   * colours by row, or absolute
   */
  scale?: "row" | "absolute";
  /**
   * train, valid or test
   */
  split?: string;
  /**
   * explain this instead of the answer; of a forecaster the channel
   */
  target?: string | null;
  /**
   * what the model reads; of a forecaster the date
   */
  text?: string | null;
}
/**
 * All that a screen needs to know of a run; it has been loaded.
 *
 * ``can`` holds words such as stream, beam, sample, force, attention, gates, silence, evaluate.
 */
export interface RunDetail {
  can: string[];
  channels: string[];
  checkpoint: string;
  device: string;
  figures: {
    [k: string]: number | null;
  };
  gives: "text" | "label" | "forecast" | "words";
  heads: number | null;
  hiddenSize: number | null;
  id: string;
  labels: string[];
  languages: string[];
  layers: number | null;
  model: string;
  mostTokens: number | null;
  name: string;
  parameters: number | null;
  reads: "text" | "picture" | "series";
  search: SearchInfo | null;
  step: number | null;
  task: string;
  views: ViewInfo[];
  vocabulary: {
    [k: string]: number;
  };
}
/**
 * The run's own search, the kinds that it can change to, and their fields.
 */
export interface SearchInfo {
  fields: {
    [k: string]: unknown;
  };
  kind: string;
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
  fields: ViewField[];
  fits: boolean;
  least: number;
  most: number | null;
  name: string;
  reason: string;
  summary: string;
}
/**
 * A field of the question that a view reads; ``form`` is its JSON Schema.
 */
export interface ViewField {
  description: string;
  form: {
    [k: string]: unknown;
  };
  name: string;
}
/**
 * A run: what it reads and gives, how large it is, its figures.
 */
export interface RunInfo {
  figures: {
    [k: string]: number | null;
  };
  gives: "text" | "label" | "forecast" | "words";
  id: string;
  model: string;
  name: string;
  parameters: number | null;
  reads: "text" | "picture" | "series";
  step: number | null;
  task: string;
}
/**
 * The runs that the studio was given.
 */
export interface RunList {
  runs: RunInfo[];
}
/**
 * One example at one step: what went in, what was wanted, what came out.
 */
export interface SampleAt {
  output: string;
  reference: string;
  source: string;
  step: number;
}
/**
 * Samples of all validations, in the order of the log.
 */
export interface SamplesOf {
  samples: SampleAt[];
}
/**
 * Choices of a search; the run's own where they are absent.
 *
 * ``kind`` is one of ``foveate kinds search``; a choice that the kind does not have is an error.
 */
export interface SearchSettings1 {
  beamSize?: number | null;
  diversity?: number | null;
  groups?: number | null;
  kind?: string | null;
  lengthPenalty?: number | null;
  maxExtra?: number | null;
  maxRatio?: number | null;
  minP?: number | null;
  numSamples?: number | null;
  repetitionPenalty?: number | null;
  seed?: number | null;
  temperature?: number | null;
  topK?: number | null;
  topP?: number | null;
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
  device: string;
  epoch: number | null;
  hasSamples: boolean;
  id: string;
  keys: string[];
  maxSteps: number | null;
  name: string;
  parameters: number | null;
  running: boolean;
  seconds: number | null;
  step: number;
}
/**
 * A line of a log: "start", "train", "valid", "average"; or "cut", where lines after ``step``
 * are gone, for a training went on from a checkpoint, or "ping", where there is nothing new.
 */
export interface TrainingEvent {
  epoch: number | null;
  event: string;
  samples: SampleAt[];
  seconds: number | null;
  step: number;
  values: {
    [k: string]: number | null;
  };
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
  question?: Question1;
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
  silenced?: Head[];
}
/**
 * What to look at, and how. A view says which fields it reads (`Entry.reads`).
 *
 * Where no ``text`` is given, an example of the run's last validation stands in.
 */
export interface Question1 {
  /**
   * the run's own if absent
   */
  beam_size?: number | null;
  /**
   * cross_attention, self_attention, …
   */
  block?: string | null;
  /**
   * mean of all if absent
   */
  head?: number | null;
  /**
   * JPEG or PNG, or the number of a test picture
   */
  image?: string | null;
  /**
   * from 0, or -1 for the last
   */
  layer?: number;
  /**
   * places
   */
  length?: number;
  /**
   * colours by row, or absolute
   */
  scale?: "row" | "absolute";
  /**
   * train, valid or test
   */
  split?: string;
  /**
   * explain this instead of the answer; of a forecaster the channel
   */
  target?: string | null;
  /**
   * what the model reads; of a forecaster the date
   */
  text?: string | null;
}
