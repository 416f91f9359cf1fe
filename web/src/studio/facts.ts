// What a model is, as a list of names and values: its task, its size, its vocabulary.
import type { RunDetail, RunInfo } from "./api";
import { t } from "./language";
import { spoken } from "./words";

const ACTIVATIONS: Readonly<Record<string, string>> = { relu: "ReLU", silu: "SiLU (swish)", gelu: "GELU", gelu_tanh: "GELU (tanh)", swiglu: "SwiGLU", geglu: "GEGLU" };
const TIED: Readonly<Record<string, string>> = { none: "none", target: "target and output", all: "source, target and output", inputs: "source and target" };
const MOST_LABELS = 12;
const grouped = (count: number): string => count.toLocaleString("en-US");

/** The facts that are known of a run; none of them is a default that its files do not state. */
export function factsOf(run: RunInfo, detail: RunDetail | undefined): [string, string][] {
  const { depths = [], vocabulary = {}, labels = [], channels = [] } = detail ?? {};
  const facts: [string, string | number | null | undefined][] = [
    ["task", spoken(run.task)], ["architecture", spoken(run.model)],
    ["parameters", run.parameters && grouped(run.parameters)],
    ["layers", depths.join(" + ")], ["heads", detail?.heads], ["hidden size", detail?.hiddenSize], ["feed-forward size", detail?.ffnSize],
    ["activation", detail && (ACTIVATIONS[detail.activation] ?? spoken(detail.activation))],
    ["norm", detail?.normOrder && spoken(detail.normOrder).replace(/^(pre|post)$/, "$1-norm")],
    ["tied embeddings", detail?.tie && t(TIED[detail.tie] ?? detail.tie)],
    ...Object.entries(vocabulary).map(([side, size]) => [`${t("vocabulary")}, ${t(side)}`, grouped(size)] as [string, string]),
    ["longest input, in tokens", detail?.mostTokens],
    ["labels", labels.length > MOST_LABELS ? labels.length : labels.join(", ")], ["series", channels.join(", ")],
    ["steps", run.step && grouped(run.step)],
    run.origin ? ["weights in the file", run.origin.dtype] : ["checkpoint", detail?.checkpoint], ["device", detail?.device],
  ];
  return facts.flatMap(([name, value]) => (value ? [[t(name), String(value)]] : []));
}
