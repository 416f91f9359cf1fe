"""How far the estimates of `foveate draft` can be trusted: predicted beside true chrF.

    python benchmarks/trust.py --everyday RUN|FILE --multi30k FOLDER

For each model and each held-out set, the estimates are calibrated on one half of the set's own
lines, drawn at random, and on lines of the kind that the model was trained on; both are judged on
the other half, and their figures averaged over 50 divisions. docs/results/trust.json has, for each:
the reliability by tenths of the estimates, the correlations, the coverage of the intervals of
sentences and of chapters of 20 lines, how many of the worst fifth are among the fifth with the
lowest estimates, and how each signal ranks alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from typer import Option

import harness
from foveate.cli.engines import RunSpec
from foveate.cli.options import named
from foveate.documents.drafts import answered
from foveate.documents.trust import Trust, mean_of, signals
from foveate.engine.answers import Translator
from foveate.tasks.metrics import sentence_scores

sys.path.insert(0, str(harness.ROOT / "tools"))
from everyday import lines, tatoeba

MOST = 1_000  # lines of a set
CHAPTER = 20  # lines
FIFTH, TENTH = 5, 10
DIVISIONS = 50  # of a set into halves, over which all figures are averaged
Pairs = tuple[list[str], list[str]]


def everyday() -> dict[str, Pairs]:
    """Held-out lines of Tatoeba, by which the model is calibrated first, and the three sets."""
    splits = {name: tuple(map(list, zip(*own, strict=True))) for name, own in tatoeba().items()}
    sets = {"Tatoeba valid": splits["valid"], "Tatoeba test": splits["test"]}
    for name, path in (
        ("FLORES dev", "flores-200-dev/dev"),
        ("newstest2014", "newstest2014-en-fr/newstest2014"),
    ):
        sets[name] = lines(f"{path}.en"), lines(f"{path}.fr")
    return sets


def multi30k() -> dict[str, Pairs]:
    """The lines of Multi30k: those of validation first, then its three test sets."""
    names = {"val": "val", "test 2016": "test_2016_flickr", "test 2017": "test_2017_flickr",
             "MSCOCO": "test_2017_mscoco"}  # fmt: skip
    return {
        f"Multi30k {name}": (lines(f"multi30k/{file}.en"), lines(f"multi30k/{file}.fr"))
        for name, file in names.items()
    }


def measured(model: Translator, sources: Sequence[str], references: Sequence[str]) -> Any:
    """The signals of a model's translations, those that were tried and left out, and their chrF."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(sources))[:MOST])
    texts = [sources[n] for n in chosen]
    answers = answered(model, texts, None)
    best = [answer.outputs[0] for answer in answers]
    two = model.translate(texts, num_hypotheses=2)
    scores = model.score([(line, str(a)) for line, a in zip(texts, answers, strict=True)])
    others = {
        "lowest log p": [min(score.token_log_probabilities) for score in scores],
        "margin to the second": [
            a.scores[0] - a.scores[1] if len(a.scores) > 1 else 0.0 for a in two
        ],
        "log length": [float(np.log(len(output.ids) + 1)) for output in best],
    }
    right = [references[n] for n in chosen]
    chrf = sentence_scores("chrf", list(map(str, answers)), right)
    return signals(model, answers), chrf.clip(max=100), others  # some are 100.00000000000004


def judged(trust: Trust, each_signals: Sequence[Any], chrf: Any) -> dict[str, Any]:
    """What the estimates of sentences are worth beside their true chrF."""
    each = [trust.estimate(own) for own in each_signals]
    predicted = np.array([estimate.chrf for estimate in each])
    low, high = (np.array([estimate[n] for estimate in each]) for n in (1, 2))
    order = np.argsort(predicted, kind="stable")
    lowest, worst = order[: len(order) // FIFTH], np.argsort(chrf)[: len(order) // FIFTH]
    chapters = [slice(n, n + CHAPTER) for n in range(0, len(chrf) - CHAPTER + 1, CHAPTER)]
    means = [mean_of(each[own]) for own in chapters]
    inside = [m.low <= chrf[own].mean() <= m.high for m, own in zip(means, chapters, strict=True)]
    lost = 100 - chrf
    return {
        "sentences": len(chrf),
        "chrf": float(chrf.mean()),
        "predicted": float(predicted.mean()),
        "mean absolute error": float(np.abs(predicted - chrf).mean()),
        "pearson": float(pearsonr(predicted, chrf)[0]),
        "spearman": float(spearmanr(predicted, chrf)[0]),
        "coverage of sentences": float(np.mean((low <= chrf) & (chrf <= high))),
        "mean width": float((high - low).mean()),
        "coverage of chapters": float(np.mean(inside)),
        "reliability": [
            [round(float(predicted[own].mean()), 1), round(float(chrf[own].mean()), 1)]
            for own in np.array_split(order, TENTH)
        ],
        "lowest fifth": {
            "share of the worst fifth": float(np.isin(worst, lowest).mean()),
            "share of the lost chrF": float(lost[lowest].sum() / lost.sum()),
            "chrf": float(chrf[lowest].mean()),
            "chrf of the others": float(chrf[order[len(order) // FIFTH :]].mean()),
        },
    }


def averaged(figures: Sequence[Any]) -> Any:
    """The means of nested figures over all divisions."""
    first = figures[0]
    if isinstance(first, dict):
        return {name: averaged([each[name] for each in figures]) for name in first}
    return np.mean(figures, axis=0).round(4).tolist()


def of_model(run: Path, sets: dict[str, Pairs]) -> dict[str, Any]:
    """The figures of a model on its sets; the first is what it is calibrated on otherwise."""
    spec = RunSpec(str(named(run)))
    model = spec.packed({}) or spec.load()
    result: dict[str, Any] = {"model": run.name}
    first: Trust | None = None
    for name, pairs in sets.items():
        print(f"{run.name}: {name}", file=sys.stderr, flush=True)
        x, chrf, others = measured(model, *pairs)
        if first is None:
            first = Trust.fit(x, chrf.tolist())
            result["calibrated on"] = {name: first.tree()}
            continue
        halves, others_of_it = [], []
        for seed in range(DIVISIONS):
            half = np.random.default_rng(seed).permutation(len(chrf))
            own, rest = np.sort(half[: len(half) // 2]), np.sort(half[len(half) // 2 :])
            fitted = Trust.fit([x[n] for n in own], chrf[own].tolist())
            left = [x[n] for n in rest]
            halves.append(judged(fitted, left, chrf[rest]))
            others_of_it.append(judged(first, left, chrf[rest]))
        kinds = ("mean p", "length ratio", "tokens per word")
        alone = dict(zip(kinds, np.array(x).T, strict=True)) | others
        result[name] = {
            "calibrated on its other half": averaged(halves),
            f"calibrated on {next(iter(sets))}": averaged(others_of_it),
            "spearman of each signal": {
                kind: round(float(spearmanr(values, chrf)[0]), 3) for kind, values in alone.items()
            },
        }
    return result


def main(
    everyday_model: Annotated[Path, Option("--everyday", help="a model of everyday sentences")],
    multi30k_model: Annotated[Path, Option("--multi30k", help="a model of Multi30k")],
) -> None:
    """Measure both models."""
    models = [of_model(everyday_model, everyday()), of_model(multi30k_model, multi30k())]
    rounded = json.loads(json.dumps(models), parse_float=lambda text: round(float(text), 4))
    harness.write("trust", {"models": rounded})


if __name__ == "__main__":
    harness.run(main)
