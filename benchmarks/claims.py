"""The claims of the lectures, measured: docs/results/claims.json, and docs/reference/claims.md.

    python benchmarks/claims.py                 all claims: computed, and read from docs/results
    python benchmarks/claims.py --only beam     one claim, printed
    python benchmarks/claims.py --page          the page again, from the JSON

A verdict is decided in code, by the criterion in the docstring of each claim. The trainings of
benchmarks/claims_trained.py were predicted in docs/development/LOG.md, criteria included; the other
results are older than their claims. Claims whose training nobody has run are listed with the
command that would answer them.
"""

from __future__ import annotations

import json
import math
import statistics
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import typer

import harness
from claims_computed import CLAIMS, Answer, claim, verdict

PAGE = harness.ROOT / "docs" / "reference" / "claims.md"


def read(name: str) -> Any:
    """A result that another benchmark wrote."""
    return json.loads((harness.RESULTS / f"{name}.json").read_text(encoding="utf-8"))


FLICKR = "one seed, 1,000 sentences"


def bleu(name: str, beam: int = 5) -> float:
    """Of a translator on the test set of Multi30k."""
    return float(read(name)["test"][f"beam {beam}"]["bleu"])


# ------------------------------------------------------------------------------ translation


@claim("long-sentences", "One vector forgets long sentences; attention does not.",
       "Cho et al., 2014; Bahdanau et al., 2015",
       result="multi30k-en-fr-no-attention, multi30k-en-fr-rnnsearch: by_source_words")  # fmt: skip
def long_sentences() -> Answer:
    """The share of BLEU lost from 1–10 to over 20 words is larger without attention; if the points
    lost are not, it holds for the share only.
    """
    runs = "multi30k-en-fr-no-attention", "multi30k-en-fr-rnnsearch"
    short, long = ([read(run)["by_source_words"][n]["bleu"] for run in runs]
                   for n in ("1-10", "over 20"))  # fmt: skip
    sentences = read(runs[0])["by_source_words"]["over 20"]["sentences"]
    shares = [1 - after / before for before, after in zip(short, long, strict=True)]
    points = [before - after for before, after in zip(short, long, strict=True)]
    figure = f"BLEU {short[0]} → {long[0]} (−{shares[0]:.0%}) without, {short[1]} → {long[1]} "
    epochs = " and ".join(str(read(run)["training"]["epochs"]) for run in runs)
    figure += f"(−{shares[1]:.0%}) with attention; {sentences} long sentences, {epochs} epochs"
    relative = "" if points[0] > points[1] else "the loss is relative"
    return figure, verdict(shares[0] > shares[1], relative)


@claim("long-texts",
       "One vector forgets long sentences, even if all states are passed on (Sutskever); "
       "attention does not.", "Cho et al., 2014; Bahdanau et al., 2015",
       result="lineage: chapters, Length of the source", sample="one seed")  # fmt: skip
def long_texts() -> Answer:
    """The slope of BLEU over the length is below 0 without attention, and higher in each model
    with attention, both by 95 % intervals; if one of these falls too, only as a difference.
    """
    table = read("lineage")["chapters"]["Length of the source"]["Slope over length"]
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    first, *others = [row for row in rows if row["figure"] == "BLEU"]
    figure = "BLEU per 10 words, 95 %: " + ", ".join(
        f"{row['model']} {row['per 10 words']:+.1f} ({row['95 % from']:+.1f} to {row['to']:+.1f})"
        for row in (first, *others)
    )
    less = all(row["difference from"] > 0 for row in others)
    falls = any(row["to"] < 0 for row in others)
    condition = "the slopes are compared: with attention BLEU falls too, but less" if falls else ""
    return figure, verdict(first["to"] < 0 and less, condition)


@claim("transformer", "A Transformer translates better than a recurrent network with attention.",
       "Vaswani et al., 2017", result="multi30k-families, multi30k-en-fr: Quality, test",
       sample=FLICKR)  # fmt: skip
def transformer() -> Answer:
    """By more than 1 BLEU with a beam of 5; if the 95 % intervals overlap where both have read the
    same target tokens, only trained longer.
    """
    quality = read("multi30k-families")["chapters"]["Quality"]
    names, training = quality["BLEU"]["labels"], quality["Training"]
    both = [names.index(name) for name in ("multi30k-en-fr", "multi30k-en-fr-rnnsearch")]
    figures = ("BLEU", "BLEU, low", "BLEU, high")
    rows = [[float(quality["BLEU"][figure][n]) for figure in figures] for n in both]
    minutes, tokens = training["minutes"], training["target tokens"]
    (ours, low, _), (other, _, high), long = *rows, bleu("multi30k-en-fr")
    figure = f"BLEU {ours:.1f} in {minutes[both[0]]:.1f} minutes, RNNsearch {other:.1f} in "
    figure += f"{minutes[both[1]]:.1f}, after {tokens[both[0]] / 1e6:.1f} million target tokens; "
    figure += f"{long:.1f} after {read('multi30k-en-fr')['training']['epochs']} epochs"
    longer = "it trains longer: the 95 % intervals overlap" if low < high else ""
    return figure, verdict(long > other + 1, longer)


@claim("beam-bleu", "A beam of 5 translates better than greedy search.", "Sutskever et al., 2014",
       result="multi30k-en-fr, multi30k-en-fr-rnnsearch: test", sample=FLICKR)  # fmt: skip
def beam_bleu() -> Answer:
    """By more than 0.5 BLEU for both models."""
    gains = [bleu(name) - bleu(name, 1) for name in ("multi30k-en-fr", "multi30k-en-fr-rnnsearch")]
    return "+{:.2f} BLEU for a Transformer, +{:.2f} for RNNsearch".format(*gains), verdict(
        min(gains) > 0.5
    )


@claim("alignment", "Attention aligns words.", "Bahdanau et al., 2015",
       result="alignment: rows")  # fmt: skip
def alignment() -> Answer:
    """The best head has a lower error rate (AER) than IBM 1; if only a guided one, only so."""
    rates = {name: row["aer"] for name, row in read("alignment")["rows"].items()}
    neural = {n: r for n, r in rates.items() if n.startswith(("Transformer", "RNNsearch"))}
    guided = rates["Transformer, guided, en-fr, text seen"]
    free = min(rate for name, rate in neural.items() if "guided" not in name)
    figure = (
        f"AER {free:.3f} by attention, {guided:.3f} guided by alignments, IBM 1 {rates['ibm1']:.3f}"
    )
    figure += f", HMM {rates['hmm']:.3f}; 447 sentence pairs"
    condition = "" if free < rates["ibm1"] else "a head is trained on alignments"
    return figure, verdict(min(free, guided) < rates["ibm1"], condition)


# ------------------------------------------------------------------------------ positions, cost


@claim("copy", "Attention without positions cannot learn to copy.", "Vaswani et al., 2017",
       result="learnt-attention: models")  # fmt: skip
def copy() -> Answer:
    """Every score is right below 5 % without positions; those that are not read no key."""
    right = {m["score"]: m["right"] for m in read("learnt-attention")["models"]
             if (m["position"], m["task"]) == ("none", "copy")}  # fmt: skip
    reads = {score: share for score, share in right.items() if "location" not in score}
    others = [share for score, share in right.items() if score not in reads]
    figure = f"at most {max(reads.values()):.0%} of the copies are correct, {min(others):.0%} with "
    figure += f"the location score, after {read('learnt-attention')['steps']} steps"
    condition = "the score reads keys" if min(others) > 0.05 else ""
    return figure, verdict(max(reads.values()) < 0.05, condition)


@claim("bias", "A distance bias suffices to learn to copy.",
       "Raffel et al., 2020; Press et al., 2022", result="learnt-attention: models")  # fmt: skip
def bias() -> Answer:
    """Above 95 % right with T5's bias and scaled dot products; if not with ALiBi, only learnt."""
    right = {m["position"]: m["right"] for m in read("learnt-attention")["models"]
             if (m["score"], m["task"]) == ("scaled_dot", "copy")}  # fmt: skip
    figure = f"{right['t5']:.0%} right with T5's bias, {right['alibi']:.0%} with ALiBi"
    figure += f" after {read('learnt-attention')['steps']} steps"
    condition = "" if right["alibi"] > 0.95 else "the bias is learnt and knows the direction"
    return figure, verdict(right["t5"] > 0.95, condition)


@claim("time", "Time grows as n² in full attention, as n in cheaper kinds and in an LSTM.",
       "Tay et al., 2020", result="attention-length: kinds, exponent_time",
       sample="one machine")  # fmt: skip
def time() -> Answer:
    """Fitted exponents up to n = 16,384: full above 1.8, the others below 1.3."""
    kinds = read("attention-length")["kinds"]
    names = "full, fused", "linear", "performer", "linformer", "local", "lstm"
    powers = {name: kinds[name]["exponent_time"] for name in names}
    figure = "exponents: " + ", ".join(f"{name} {power}" for name, power in powers.items())
    figure += f"; with all weights stored {kinds['full, explicit']['exponent_time']}"
    full = powers.pop("full, fused")
    return figure, verdict(full > 1.8 and max(powers.values()) < 1.3)


@claim("quadratic-memory", "The memory of attention grows as n².", "Dao et al., 2022",
       result="attention-length: kinds, exponent_memory", sample="one machine")  # fmt: skip
def quadratic_memory() -> Answer:
    """The fitted exponent is above 1.5 with the weights in memory; if not fused, only so."""
    kinds = read("attention-length")["kinds"]
    explicit, fused = (kinds[f"full, {n}"]["exponent_memory"] for n in ("explicit", "fused"))
    *_, half, whole = (size for size in kinds["full, explicit"]["megabytes"] if size)
    figure = f"exponent {explicit} with all weights ({math.log2(whole / half):.2f} in the last "
    condition = "" if fused > 1.5 else "the weights are stored in memory"
    return figure + f"doubling), {fused} fused", verdict(explicit > 1.5, condition)


@claim("int8", "8-bit weights translate just as well, and faster.", "Bhandare et al., 2019",
       result="serving-presets: runs")  # fmt: skip
def int8() -> Answer:
    """BLEU within 0.2 and more sentences a second for each of the three presets."""
    runs = read("serving-presets")["runs"].values()
    losses = [run["fp32"]["bleu"] - run["int8"]["bleu"] for run in runs]
    speeds = [run["int8"]["beam 5, batches"] / run["fp32"]["beam 5, batches"] for run in runs]
    figure = (
        f"{-max(losses):+.2f} to {-min(losses):+.2f} BLEU, {min(speeds):.2f} to {max(speeds):.2f} "
    )
    return figure + "times the speed", verdict(max(map(abs, losses)) < 0.2 and min(speeds) > 1)


@claim("shallow", "A shallow decoder translates faster at the same quality.", "Kasai et al., 2021",
       result="serving-presets: runs")  # fmt: skip
def shallow() -> Answer:
    """More sentences a second than the tiny preset, and BLEU at most 0.5 lower."""
    both = [read("serving-presets")["runs"][name] for name in ("shallow", "tiny")]
    thin, deep = (row["fp32"] for row in both)
    speed = thin["beam 5, batches"] / deep["beam 5, batches"]
    sizes = " and ".join(f"{row['parameters'] / 1e6:.1f} M" for row in both)
    figure = f"{speed:.2f} times the speed, {thin['bleu'] - deep['bleu']:+.2f} BLEU; {sizes} "
    return figure + "parameters", verdict(speed > 1 and thin["bleu"] > deep["bleu"] - 0.5)


# ------------------------------------------------------------------------------ other tasks


def beside(better: str, worse: str) -> Answer:
    """Two classifiers of SST-2; the first is better if by more than two standard errors."""
    (p, n), (q, m) = ((test["accuracy"] / 100, test["examples"])
                      for test in (read(name)["test"] for name in (better, worse)))  # fmt: skip
    error = math.sqrt(p * (1 - p) / n + q * (1 - q) / m)
    figure = f"{100 * p:.1f} % and {100 * q:.1f} %, two standard errors {200 * error:.1f}"
    return figure, verdict(p - q > 2 * error)


@claim("order-sentiment", "Word order helps to classify: an LSTM beats a bag of words.",
       "Socher et al., 2013", result="sst2-lstm, sst2-cbow: test")  # fmt: skip
def order_sentiment() -> Answer:
    """Accuracy on SST-2 is higher by more than two standard errors."""
    return beside("sst2-lstm", "sst2-cbow")


@claim("attention-sentiment", "A Transformer classifies better than a bag of words.",
       "Letarte et al., 2018", result="sst2-transformer, sst2-cbow: test")  # fmt: skip
def attention_sentiment() -> Answer:
    """Accuracy on SST-2, both from scratch, is higher by more than two standard errors."""
    return beside("sst2-transformer", "sst2-cbow")


@claim("pretraining", "Masked pretraining, then fine-tuning, beats training from scratch.",
       "Devlin et al., 2019", result="sst2-finetuned, sst2-transformer: test")  # fmt: skip
def pretraining() -> Answer:
    """Accuracy on SST-2, pretrained on its own text, is higher by more than two standard errors."""
    return beside("sst2-finetuned", "sst2-transformer")


def perplexities(*names: str) -> tuple[list[float], str]:
    """On the test set of the Penn Treebank, and how each model read it."""
    results = [read(f"ptb-{name}") for name in names]
    found = [float(result["test"]["perplexity"]) for result in results]
    how = (f"{p:.1f} after {result['training']['epochs']} epochs, {result['signatures']['loss']}"
           for p, result in zip(found, results, strict=True))  # fmt: skip
    return found, "perplexity " + "; ".join(how)


@claim("gpt-lstm", "A Transformer predicts words better than an LSTM.", "Baevski & Auli, 2019",
       result="ptb-transformer, ptb-lstm: test")  # fmt: skip
def gpt_lstm() -> Answer:
    """Its perplexity on the Penn Treebank is lower."""
    (gpt, lstm), figure = perplexities("transformer", "lstm")
    return figure, verdict(gpt < lstm)


@claim("mamba", "Mamba predicts words as well as a Transformer.", "Gu & Dao, 2023",
       result="ptb-mamba, ptb-transformer: test")  # fmt: skip
def mamba() -> Answer:
    """Its perplexity on the Penn Treebank is not higher."""
    (state, gpt), figure = perplexities("mamba", "transformer")
    return figure, verdict(state <= gpt)


@claim("linear-forecast", "A linear layer forecasts better than a Transformer.",
       "Zeng et al., 2023", result="etth1-linear, etth1-patch: test")  # fmt: skip
def linear_forecast() -> Answer:
    """Its squared error on ETTh1 is lower."""
    line, patch = (read(f"etth1-{name}")["test"]["mse"] for name in ("linear", "patch"))
    figure = f"squared error {line:.3f} and {patch:.3f}, {1 - line / patch:.1%} less"
    return figure, verdict(line < patch)


@claim("exposure", "A model trained with the true past makes more errors on its own outputs.",
       "Bengio et al., 2015", result="etth1-rnn: test")  # fmt: skip
def exposure() -> Answer:
    """The squared error of a recurrent forecaster is at least twice that with the true past; the
    part that is the distance of up to 96 hours is in it.
    """
    test = read("etth1-rnn")["test"]
    free, forced = test["mse"], test["teacher_forced_mse"]
    figure = f"squared error {free:.2f} up to 96 hours ahead, one hour after the true past "
    return figure + f"{forced:.2f}", verdict(free > 2 * forced, "the longer horizon is counted")


@claim("hard", "Hard attention describes pictures better than soft attention.", "Xu et al., 2015",
       result="flickr8k-hard, flickr8k-soft: test")  # fmt: skip
def hard() -> Answer:
    """BLEU is higher by more than 1: the test set is small."""
    (one, count), (other, _) = ((test["bleu"], test["examples"])
        for test in (read(f"flickr8k-{kind}")["test"] for kind in ("hard", "soft")))  # fmt: skip
    return f"BLEU {one:.2f} and {other:.2f} on {count} pictures", verdict(one > other + 1)


# ------------------------------------------------------------------------------ short trainings


@claim("no-mask", "Attention without a mask cheats: loss near 0, but the output is nonsense.",
       "Vaswani et al., 2017", training="no-mask", result="rows")  # fmt: skip
def no_mask() -> Answer:
    """The training loss ends below 0.1 without and above 1 with a mask for each seed, and of the
    words written less than half the share with a mask are words of the training text.
    """
    rows = [read("no-mask")["rows"][name] for name in ("without", "with")]
    each = {key: [[row[key] for row in seeds] for seeds in rows] for key in rows[0][0]}
    losses, one_by_one, words = ([statistics.mean(seeds) for seeds in each[key]]
        for key in ("training_loss", "loss_one_by_one", "known_words"))  # fmt: skip
    cheats = max(each["training_loss"][0]) < 0.1 and min(each["training_loss"][1]) > 1
    figure = "training loss {:.3f} without mask, {:.2f} with; ".format(*losses)
    figure += "step by step {:.1f} and {:.1f} nats; ".format(*one_by_one)
    figure += "{:.0%} and {:.0%} of the words it writes are in the training text".format(*words)
    return figure, verdict(cheats and words[0] < words[1] / 2)


Losses = dict[int, list[float]]  # validation loss of each seed, by size


def at_equal(unit: str, share: float = 1.0) -> tuple[Losses, float]:
    """The losses of the sizes at equal "steps" or "seconds", and how many these are.

    A size that has no point by then is left out.
    """
    curve = read("scaling-curve")
    rows = {int(size): row for size, row in curve["sizes"].items()}
    costs = {size: curve["every"] * (row["seconds_of_step"] if unit == "seconds" else 1)
             for size, row in rows.items()}  # fmt: skip
    end = share * min(costs[size] * len(row["losses"][0]) for size, row in rows.items())
    return {
        size: [float(np.interp(end / costs[size], range(1, 1 + len(loss)), loss))
               for loss in row["losses"]]
        for size, row in rows.items() if costs[size] <= end
    }, end  # fmt: skip


def means(losses: Losses) -> dict[int, float]:
    """Of each size, over the seeds."""
    return {size: statistics.mean(each) for size, each in losses.items()}


def spoken(losses: Losses) -> str:
    """The mean loss of each size."""
    return ", ".join(f"{loss:.3f} (D = {size})" for size, loss in means(losses).items())


@claim("bigger-data", "A bigger model is better at equal data.", "Kaplan et al., 2020",
       training="scaling-curve", result="sizes")  # fmt: skip
def bigger_data() -> Answer:
    """The mean loss falls with each doubling of D; only up to the best size if that is larger than
    the smallest.
    """
    losses, steps = at_equal("steps")
    mean = means(losses)
    best = min(mean, key=mean.__getitem__)
    falls = all(less < more for more, less in pairwise(mean.values()))
    figure = f"{spoken(losses)} after {steps * read('scaling-curve')['batch']:,.0f} characters; "
    *_, half, whole = mean.values()
    figure += f"the last doubling gains {half - whole:.3f}"
    return figure, verdict(best > min(mean), "" if falls else f"D is at most {best}")


@claim("bigger-time", "A bigger model is worse at equal time.", "Kaplan et al., 2020",
       training="scaling-curve", result="sizes")  # fmt: skip
def bigger_time() -> Answer:
    """The mean loss rises with each doubling of D; only above the best size if that lies between.
    The largest is worse than the best by more than two standard errors, with one seed by 0.05.
    """
    losses, seconds = at_equal("seconds")
    mean, early = means(losses), means(at_equal("seconds", 0.25)[0])
    best, first = (min(each, key=each.__getitem__) for each in (mean, early))
    largest, margin = max(mean), 0.05
    if len(losses[best]) > 1:
        margin = 2 * math.sqrt(sum(statistics.variance(losses[size]) / len(losses[size])
                                   for size in (best, largest)))  # fmt: skip
    rises = all(less < more for less, more in pairwise(mean.values()))
    figure = f"{spoken(losses)} after {seconds:.0f} s of CPU time; after a quarter of it "
    condition = "" if rises else f"D is above {best}"
    return figure + f"D = {first} is best", verdict(mean[largest] > mean[best] + margin, condition)


def raises(row: Any) -> bool:
    """Whether BLEU rises for each seed, and with p < 0.05 over the outputs of all."""
    rises = all(after > before for before, after in zip(row["before"], row["after"], strict=True))
    return rises and row["p"] < 0.05


def gained(row: Any) -> str:
    """The gain of each seed, and p."""
    gains = [a - b for b, a in zip(row["before"], row["after"], strict=True)]
    return f"{', '.join(f'{gain:+.2f}' for gain in gains)} BLEU, p = {row['p']:.3f}"


GRAMMAR = "built-in grammar, 600 steps"


@claim("label-smoothing", "Label smoothing raises BLEU.", "Vaswani et al., 2017",
       training="smoothing-averaging", result="rows")  # fmt: skip
def label_smoothing() -> Answer:
    """BLEU rises for each seed, and p < 0.05 by the paired bootstrap over the outputs of all."""
    row = read("smoothing-averaging")["rows"]["label smoothing"]
    return f"{gained(row)}; {GRAMMAR}", verdict(raises(row))


@claim("averaging", "Averaged checkpoints raise BLEU.", "Vaswani et al., 2017",
       training="smoothing-averaging", result="rows")  # fmt: skip
def averaging() -> Answer:
    """BLEU rises for each seed with p < 0.05 while the rate falls as 1/√step; if not where it falls
    to 0, only while it is high.
    """
    rows = read("smoothing-averaging")["rows"]
    high, low = (rows.get(f"averaging, {how}") for how in ("1/√step", "cosine to 0"))
    if low is None:
        figure = f"{gained(high)}; not measured where the rate falls to 0; {GRAMMAR}"
        return figure, verdict(raises(high), "the rate is still high, as here")
    figure = f"{gained(high)}; {gained(low)} with the rate decaying to 0; {GRAMMAR}"
    return figure, verdict(raises(high), "" if raises(low) else "the rate is still high")


# ------------------------------------------------------------------------------ the page

CONFIG = "configs/translation/multi30k-en-fr.toml"
RNNSEARCH = CONFIG.replace(".", "-rnnsearch.")
NOT_MEASURED = (  # statement, source, command
    ("At equal time a Transformer translates better than a recurrent network with attention.",
     "Vaswani et al., 2017",
     f"foveate compare {CONFIG} {RNNSEARCH} --minutes 60"),
)  # fmt: skip


CURVE = "![Loss of five model sizes, at equal data and at equal time]"
CURVE += "(../history/pictures/scaling-curve.svg)"


SEEDS = {1: "one seed", 2: "two seeds", 3: "three seeds"}


def results(only: list[str] | None = None) -> list[dict[str, Any]]:
    """Each claim with its figure and verdict."""
    rows = []
    for each in CLAIMS.values():
        if only and each.name not in only:
            continue
        figure, decided = each.measure()
        sample = each.sample
        if each.result and not sample:
            sample = SEEDS[read(each.result.partition(":")[0])["seeds"]]
        rows.append({"name": each.name, "claim": each.statement, "source": each.source,
                     "command": each.command, "result": each.result, "figure": figure,
                     "criterion": each.criterion, "criterion_after_figure": each.after,
                     "sample": sample, "verdict": decided})  # fmt: skip
    return rows


def page(record: dict[str, Any]) -> str:
    """docs/reference/claims.md of what docs/results/claims.json holds."""
    rows = record["claims"]
    counts = {kind: sum(row["verdict"].startswith(kind) for row in rows)
              for kind in ("holds only if", "does not hold")}  # fmt: skip
    text = [
        "# Claims of the lectures, measured", "",
        "Check each statement with its command; `make claims` repeats all checks that need "
        "no training.",
        f"Of {len(rows)} claims, {len(rows) - sum(counts.values())} hold, "
        f"{counts['holds only if']} hold only under a condition and {counts['does not hold']} do "
        "not hold here.",
        "Sizes, data and budgets are those of a single small machine: a claim that does not hold",
        "here may hold for larger models. Each verdict states the number of seeds: if it is one",
        "and the values are close, another seed may change the verdict.",
        "Results for untrained networks are from one set of random weights.", "",
        "¹ The criterion was written after the result was known.", "",
        "`benchmarks/claims.py` generates this page from "
        "[results/claims.json](../results/claims.json);",
        "the criterion of each verdict is in the code and in that file.", "",
    ]  # fmt: skip
    for title, ran in (("Computed without training", False), ("From training runs", True)):
        text += [f"## {title}", "", "| claim | source | command or result | measured | verdict |"]
        text += ["| --- | --- | --- | --- | --- |"]
        for row in rows:
            if bool(row["result"]) == ran:
                decided = row["verdict"] + (f" ({row['sample']})" if row["sample"] else "")
                decided += " ¹" if row["criterion_after_figure"] else ""
                cells = row["claim"], row["source"], origin(row), row["figure"], decided
                text += ["| " + " | ".join(cells) + " |"]
        text += [""]
    text += [CURVE, "", "## Not measured yet", "", "These runs have not been done yet.", ""]
    text += ["| claim | source | command |", "| --- | --- | --- |"]
    text += [f"| {each} | {source} | `{how}` |" for each, source, how in record["not_measured"]]
    return "\n".join(text) + "\n"


def origin(row: dict[str, Any]) -> str:
    """The command, and links to the results that it reads."""
    files, _, key = row["result"].partition(": ")
    links = [f"[{name}](../results/{name}.json)" for name in files.split(", ") if name]
    return f"`{row['command']}`" + (f"; {', '.join(links)}: `{key}`" if links else "")


def main(
    only: Annotated[list[str] | None, harness.among(CLAIMS, "a claim, printed; repeat")] = None,
    page_only: Annotated[bool, typer.Option("--page", help="the page from the JSON")] = False,
) -> None:
    """Measure, write the JSON and the page, or print the claims that are named."""
    if only:
        for row in results(only):
            typer.echo(f"{row['claim']}\n{row['figure']}\n{row['verdict']}: {row['criterion']}")
        return
    if not page_only:
        harness.write("claims", {"claims": results(), "not_measured": NOT_MEASURED})
    PAGE.write_text(page(harness.previous("claims")), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    harness.run(main)
