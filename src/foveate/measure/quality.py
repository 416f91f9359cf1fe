"""Quality, length effects and losses of several models on the same examples, with drawings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from foveate.data.text import Corpus
from foveate.look.draw.charts import BarsDrawing, bar_chart, line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Cell
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.examples import evaluated_split
from foveate.look.views.text import by_length
from foveate.look.views.training import at, common_places, smoothed
from foveate.measure.budget import Contender, Say
from foveate.run import Run
from foveate.run.evaluation import Evaluation
from foveate.tasks.abilities import Classifies
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.language import Language
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.metrics import (
    PairedFigure,
    figures_of,
    paired_figures,
    paired_means,
    sentence_scores,
    slope,
)
from foveate.tasks.text import TextTask, TextToText

Floats = NDArray[np.float64]
TESTED = ("bleu", "chrf")  # by sacreBLEU's paired tests
TITLES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match, %",
}
WORDS = 10  # the slope over length is per this many words


@dataclass(frozen=True)
class Quality:
    """Figures of each model by the figure's name, and other measurements.

    ``unit`` is what a negative log-likelihood is divided by (token or word); ``factors`` convert
    a value per token to one per unit.
    """

    figures: dict[str, list[PairedFigure]]
    drawings: list[Drawing]
    notes: list[str]
    outputs: dict[str, list[str]]
    unit: str = "token"
    factors: Mapping[str, float] | None = None


def p_value(p: float | None) -> str:
    """Return a p-value as printed; the first model has none."""
    return "the first" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def bars(names: Sequence[str], title: str, figures: Sequence[PairedFigure]) -> BarsDrawing:
    """Draw one figure of all models with its intervals."""
    ends = np.array([[f.low, f.high] for f in figures]).T
    values = np.array([f.value for f in figures])
    return bar_chart(
        names, {title: values}, title, title, "lines: 95 % intervals", {title: (ends[0], ends[1])}
    )


def of_texts(contenders: Sequence[Contender], corpus: Corpus, say: Say) -> Quality:
    """Return the quality of translations of the same sources by the first model's search."""
    search, names = contenders[0].run.config.decode, [c.name for c in contenders]

    def translated(run: Run) -> list[str]:
        config = run.config.model_copy(update={"decode": search})
        run = Run(run.path, config, run.task, run.model, run.checkpoint)
        return [answer.hypotheses[0] for answer in run.translate(corpus.sources)]

    outputs: dict[str, list[str]] = {}
    for each in contenders:
        say(f"{each.name}: {len(corpus):,} sources")
        outputs[each.name] = each.result(translated)
    task = contenders[0].run.need(TextToText, "give texts for texts")
    cut, references = task.config.bleu_tokenizer, corpus.references
    tested = [name for name in TESTED if name in task.config.metrics]
    paired = paired_figures(outputs, references, [*tested, "exact_match"], cut)
    figures = {TITLES[metric]: list(of_models.values()) for metric, of_models in paired.items()}
    unit, sums, counts = likelihoods(contenders, corpus)
    words = np.array([len(target.split()) for target in corpus.targets], float)
    figures[f"loss (nats a {unit})"] = paired_means(sums, words if unit == "word" else counts[0])
    factors = {n: c.sum() / words.sum() for n, c in zip(names, counts, strict=True)}
    rest = [name for name in task.config.metrics if name not in (*TESTED, "exact_match")]
    notes = [f"outputs by the search {search.kind} of {names[0]}, {len(corpus):,} sources"]
    if unit == "word":
        notes.append("tokenizers differ: losses are per word of the references, not per token")
    quality = _quality(names, figures, notes, unit, factors if unit == "word" else None)
    if rest:
        rows = [[n, *figures_of(t, references, rest)[0].values()] for n, t in outputs.items()]
        table = TableDrawing(title="Other metrics", columns=["model", *rest], rows=rows)
        quality.drawings.append(table)
    return replace(quality, outputs=outputs)


def likelihoods(
    contenders: Sequence[Contender], corpus: Corpus
) -> tuple[str, list[Floats], list[Floats]]:
    """Return the unit of losses, and by model −log p and token count of each reference."""
    pairs = list(zip(corpus.sources, corpus.targets, strict=True))
    scores = [each.result(lambda run: run.score(pairs)) for each in contenders]
    sums = [np.array([-s.log_probability for s in row]) for row in scores]
    counts = [np.array([float(len(s.tokens)) for s in row]) for row in scores]
    return unit_of(contenders), sums, counts


def unit_of(contenders: Sequence[Contender]) -> str:
    """Return what losses are divided by: tokens if all runs have the same, else words."""
    pieces = [
        {name: t.pieces for name, t in each.run.task.tokenizers_by_name().items()}
        for each in contenders
    ]
    return "token" if all(each == pieces[0] for each in pieces) else "word"


def lengths_of_texts(
    contenders: Sequence[Contender], corpus: Corpus, outputs: Mapping[str, list[str]]
) -> tuple[list[Drawing], dict[str, str]]:
    """Draw BLEU and chrF by source length and their slopes; return verdicts on the BLEU slopes."""
    references = corpus.references
    cut = contenders[0].run.need(TextToText, "give texts for texts").config.bleu_tokenizer
    systems = {name: (corpus.sources, texts, references) for name, texts in outputs.items()}
    drawings = by_length(systems, dict.fromkeys(outputs, cut)).drawings()
    words = np.array([len(source.split()) for source in corpus.sources], float)
    if np.ptp(words) == 0:
        return drawings, {}
    rows: list[list[Cell]] = []
    slopes: list[PairedFigure] = []
    for metric in TESTED:
        scores = [sentence_scores(metric, texts, references, cut) for texts in outputs.values()]
        for number, (name, of_sentences) in enumerate(zip(outputs, scores, strict=True)):
            own = slope(words / WORDS, of_sentences)
            other = slope(words / WORDS, of_sentences - scores[0]) if number else None
            decided = slope_verdict(own, other, next(iter(outputs)))
            slopes.append(PairedFigure(*own))
            rows.append([TITLES[metric], name, *own, *(other or [None] * 3), decided])
    columns = ["figure", "model", f"per {WORDS} words", "95 % from", "to",
               "difference", "difference from", "difference to", "verdict"]  # fmt: skip
    table = TableDrawing(
        title="Slope over length", columns=columns, rows=rows,
        caption="least squares over the scores of single sources; difference: minus the slope of "
        f"{next(iter(outputs))}; 95 % by 1,000 draws of the sources; verdicts are of intervals "
        "that do not include 0",
    )  # fmt: skip
    chart = bars(list(outputs), f"BLEU per {WORDS} words", slopes[: len(outputs)])
    findings = {
        f"by length, {name}": f"BLEU {s.value:+.1f} per {WORDS} words of the source "
        f"(95 %: {s.low:+.1f} to {s.high:+.1f}): {row[-1]}"
        for name, s, row in zip(outputs, slopes, rows, strict=False)
    }
    return [*drawings, chart, table], findings


Slope = tuple[float, float, float]  # value, and both ends of its interval


def slope_verdict(own: Slope, difference: Slope | None, first: str) -> str:
    """Return in words whether a slope, and its difference to the first's, is distinct from 0.

    A slope below the first's is steeper: the question is how much quality falls.
    """

    def sign(slope: Slope, below: str, above: str, neither: str) -> str:
        return below if slope[2] < 0 else above if slope[1] > 0 else neither

    text = sign(own, "falls", "rises", "neither falls nor rises")
    if difference is None:
        return text
    than = sign(difference, "steeper than", "less steep than", "not distinguishable from")
    return f"{text}, {than} {first}"


def of_language(contenders: Sequence[Contender], say: Say, split: str) -> Quality:
    """Return losses of the lines of one text, per token, or per word if tokenizers differ."""
    task = contenders[0].run.need(Language, "model a text")
    lines = task.stream_of(split).text.lines
    unit, names = unit_of(contenders), [c.name for c in contenders]
    sums, tokens = [], []
    for each in contenders:
        say(f"{each.name}: {len(lines):,} lines")
        evaluation = each.result(lambda run: run.evaluate("\n".join(lines) + "\n"))
        sums.append(-np.array(list(map(float, evaluation.outputs))))
        tokens.append(evaluation.figures["tokens"])
    words = np.array([len(line.split()) + 1.0 for line in lines])  # counting the end of the line
    ids = task.tokenizer.encode_ids(list(lines))
    units = words if unit == "word" else np.array([len(line) + 1.0 for line in ids])
    losses = paired_means(sums, units)
    figures = {
        f"loss (nats a {unit})": losses,
        f"perplexity a {unit}": [
            replace(f, value=math.exp(f.value), low=math.exp(f.low), high=math.exp(f.high))
            for f in losses
        ],
    }
    factor = {n: t / words.sum() for n, t in zip(names, tokens, strict=True)}
    notes = [f"{len(lines):,} lines of {split}, drawn by lines"]
    if unit == "word":
        notes.append("tokenizers differ: figures are per word and end of line, not per token")
    return _quality(names, figures, notes, unit, factor if unit == "word" else None)


def of_labels(contenders: Sequence[Contender], corpus: Corpus, say: Say) -> Quality:
    """Return accuracy and loss on the same labelled texts."""
    right, losses, names = [], [], [c.name for c in contenders]
    for each in contenders:
        say(f"{each.name}: {len(corpus):,} texts")
        pairs = list(zip(each.run.classify(list(corpus.sources)), corpus.targets, strict=True))
        right.append(np.array([100.0 * (answer.label == label) for answer, label in pairs]))
        p = [answer.probabilities.get(label, 0.0) for answer, label in pairs]
        losses.append(-np.log(np.maximum(p, 1e-30)))
    weights = np.ones(len(corpus))
    figures = {
        "accuracy, %": paired_means(right, weights),
        "loss (nats an example)": paired_means(losses, weights),
    }
    return _quality(names, figures, [f"{len(corpus):,} examples"])


def of_forecasts(contenders: Sequence[Contender], say: Say, split: str) -> Quality:
    """Return squared errors on the same windows, and by the number of steps ahead.

    Windows are the same if their first dates and all forecast values are equal, so not for
    another horizon or scaling; figures of these are listed side by side without tests.
    """
    names, errors = [c.name for c in contenders], list[dict[str, float]]()
    evaluations: list[Evaluation] = []
    curves: dict[str, list[float]] = {}
    for each in contenders:
        say(f"{each.name}: windows of {split}")
        evaluation = each.result(lambda run: run.evaluate(split=split))
        evaluations.append(evaluation)
        dated = (line.split("\tmse ") for line in evaluation.outputs)
        errors.append({date: float(error) for date, error in dated})
        curves[each.name] = evaluation.curves["forecast"]
    dates = [date for date in errors[0] if all(date in of_model for of_model in errors)]
    shared, targets = set(dates), []
    for each, of_model in zip(contenders, errors, strict=True):
        values = each.run.need(Forecasting, "forecast").windows_of(split).targets()
        targets.append(values[[date in shared for date in of_model]])
    if dates and all(np.array_equal(targets[0], values) for values in targets):
        paired = [np.array([of_model[date] for date in dates]) for of_model in errors]
        figures = {"mse (scaled values)": paired_means(paired, np.ones(len(dates)))}
        note = f"{len(dates):,} windows of {split}, resampled as if independent"
        counts = [f"{len(of_model):,}" for of_model in errors]
        note += f"; the models forecast {', '.join(counts)}" if len(set(counts)) > 1 else ""
        quality = _quality(names, figures, [note])
    else:
        why = "the models share no forecast window, or differ in horizon, scaling or series"
        quality = side_by_side(names, evaluations, f"no paired tests: {why}")
    quality.drawings.append(line_chart(None, curves, "steps ahead", "mse", "Error by horizon"))
    return quality


def side_by_side(names: Sequence[str], evaluations: Sequence[Evaluation], note: str) -> Quality:
    """Return the figures of all models without tests; the note gives the reason."""
    columns = list(dict.fromkeys(name for each in evaluations for name in each.figures))
    rows: list[list[Cell]] = [
        [name, *(evaluation.figures.get(column) for column in columns)]
        for name, evaluation in zip(names, evaluations, strict=True)
    ]
    table = TableDrawing(title="Quality", columns=["model", *columns], rows=rows)
    return Quality({}, [table], [note], {})


def _quality(
    names: Sequence[str], figures: dict[str, list[PairedFigure]], notes: list[str],
    unit: str = "token", factors: Mapping[str, float] | None = None,
) -> Quality:  # fmt: skip
    rows: list[list[Cell]] = []
    for title, of_models in figures.items():
        for name, figure in zip(names, of_models, strict=True):
            tests = map(p_value, (figure.bootstrap, figure.randomisation))
            rows.append([title, name, figure.value, figure.low, figure.high, *tests])
    columns = ["figure", "model", "value", "95 % from", "to", "p bootstrap", "p randomisation"]
    table = TableDrawing(
        title="Quality", columns=columns, rows=rows,
        caption="intervals and p by 1,000 draws of the same examples for all models; p is of the "
        f"difference to {names[0]}",
    )  # fmt: skip
    drawings: list[Drawing] = [table]
    drawings += [bars(names, title, figures[title]) for title in list(figures)[:1]]
    return Quality(figures, drawings, notes, {}, unit, factors)


def quality_of(contenders: Sequence[Contender], say: Say) -> tuple[Quality, Corpus | None]:
    """Return the quality of runs of any task, and the examples if they are pairs of texts."""
    task = contenders[0].run.task
    if isinstance(task, TextToText):
        corpus = task.corpus(evaluated_split(task))
        return of_texts(contenders, corpus, say), corpus
    if isinstance(task, Classifies) and task.reads == "text":
        texts = contenders[0].run.need(TextTask, "classify")
        corpus = texts.corpus(evaluated_split(texts))
        return of_labels(contenders, corpus, say), None
    if isinstance(task, Language):
        return of_language(contenders, say, evaluated_split(task)), None
    if isinstance(task, Forecasting):
        return of_forecasts(contenders, say, evaluated_split(task)), None
    split, note = evaluated_split(task), "no paired tests for this task"
    lines = [task.corpus(split).sources] if isinstance(task, MaskedLanguage) else []
    note += f"; {len(lines[0]):,} texts" if lines else f"; each model on its own data of {split}"
    evaluations = [c.result(lambda run: run.evaluate(*lines, split=split)) for c in contenders]
    return side_by_side([each.name for each in contenders], evaluations, note), None


def spent_table(contenders: Sequence[Contender]) -> TableDrawing:
    """Return a table of parameters, and what each training run spent."""
    rows: list[list[Cell]] = []
    for each in contenders:
        spent = each.spent
        parameters = sum(p.numel() for p in each.run.model.parameters())
        rows.append(
            [each.name, each.run.config.model.kind, parameters, spent["steps"], spent["tokens"],
             round(spent["minutes"], 2), spent["speed"], "before" if each.before else "for this"]
        )  # fmt: skip
    columns = ["model", "kind", "parameters", "steps", "target tokens", "minutes",
               "target tokens a second", "trained"]  # fmt: skip
    return TableDrawing(
        title="Training", columns=columns, rows=rows,
        caption="minutes with validations; speed is the median of the log's lines",
    )  # fmt: skip


def losses(contenders: Sequence[Contender], quality: Quality) -> list[Drawing]:
    """Draw the losses in the logs of all models against target tokens and against minutes.

    Training loss is smoothed, as in `curves`.
    """
    drawings: list[Drawing] = []
    for event, across in product(("valid", "train"), ("target tokens", "minutes")):
        title = f"loss, {'validation' if event == 'valid' else 'training'}, nats a {quality.unit}"
        points: dict[str, tuple[Floats, Floats]] = {}
        for each in contenders:
            trained = [line for line in each.journal if line["event"] == "train"]
            lines = [line for line in each.journal if line["event"] == event]
            lines = [line for line in lines if line.get("nll", line.get("loss")) is not None]
            if not lines or not trained:
                continue
            steps = np.array([line["step"] for line in lines], float)
            seen = [line["step"] for line in trained], [line["target_tokens"] for line in trained]
            minutes = np.array([line["seconds"] / 60 for line in lines])
            x = minutes if across == "minutes" else np.interp(steps, *seen)
            y = np.array([line.get("nll", line.get("loss")) for line in lines], float)
            factor = (quality.factors or {}).get(each.name, 1.0)
            points[each.name] = x, factor * (y if event == "valid" else smoothed(y))
        places = common_places([x for x, _ in points.values()])
        drawn = {name: at(places, x, y) for name, (x, y) in points.items()}
        drawings.append(line_chart(places, drawn, across, title, f"{title} against {across}"))
    return drawings
