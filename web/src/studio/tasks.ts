// What a run is asked for, in the words of its task.
import type { RunInfo } from "./api";

export interface Words { verb: string; source: string; hint: string; answer: string }

const TEXTS: Record<string, Words> = {
  translation: { verb: "Translate", source: "Source", hint: "A sentence to translate", answer: "Translation" },
  language: { verb: "Generate", source: "Beginning", hint: "How a text begins", answer: "Text" },
  captioning: { verb: "Caption", source: "Picture", hint: "", answer: "Caption" },
  label: { verb: "Classify", source: "Text", hint: "A text to classify", answer: "Label" },
  picture: { verb: "Classify", source: "Picture", hint: "", answer: "Label" },
  forecast: { verb: "Forecast", source: "From", hint: "", answer: "Forecast" },
  words: { verb: "Fill in", source: "Text", hint: "A text with _ for each hidden word", answer: "Words" },
};
const ANY: Words = { verb: "Ask", source: "Text", hint: "A text", answer: "Answer" };

export function asks(run: RunInfo | undefined): Words {
  if (!run) return ANY;
  const own = TEXTS[run.task];
  if (own) return own;
  if (run.gives === "label" && run.reads === "picture") return TEXTS.picture!;
  return TEXTS[run.gives] ?? ANY;
}

/** Whether what it reads and what it gives stand in one text. */
export const goesOn = (run: RunInfo | undefined): boolean => run?.task === "language";
