"""Scores by the length of the source: do long sentences suffer? The bands are of a bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from foveate.config import ConfigError
from foveate.look.charts import CurvesView, PanelsView
from foveate.run import Run
from foveate.tasks.metrics import BleuTokenizer, References, interval, tokenizer_for
from foveate.views.question import Question

Texts = Sequence[str]
ENDS = (10, 20, 30, 40, 50)  # words; the last group has all that are longer
FEWEST = 5  # sentences of a group; fewer are too few for a figure


def lengths(runs: Sequence[Run], question: Question) -> PanelsView:
    """BLEU and chrF by the words of the source, a line for each run or file of outputs."""
    systems: dict[str, tuple[Texts, Texts, References]] = {}
    tokenizers: dict[str, BleuTokenizer | None] = {}
    if question.hypotheses:
        given = question.source, question.reference
        if None in given:
            raise ConfigError("--hypotheses needs --source and --reference: the same lines")
        sources, references = (lines(path) for path in given if path is not None)
        systems |= {p.name: (sources, lines(p), references) for p in question.hypotheses}
    for run in runs:
        corpus = run.can("corpus")(question.split)
        answers = run.translate(corpus.sources, beam_size=question.beam_size)
        outputs = [answer.hypotheses[0] for answer in answers]
        systems[run.path.name] = corpus.sources, outputs, corpus.references
        tokenizers[run.path.name] = run.task.config.bleu_tokenizer
    if not systems:
        raise ConfigError(
            "nothing to score: give a RUN, or --hypotheses with --source, --reference"
        )
    return by_length(systems, tokenizers)


def lines(path: Path) -> list[str]:
    """The lines of a file. Raises ``OSError`` naming a file that cannot be read."""
    return path.read_text(encoding="utf-8").splitlines()


def by_length(
    systems: Mapping[str, tuple[Texts, Texts, References]],
    tokenizers: Mapping[str, BleuTokenizer | None] | None = None,
) -> PanelsView:
    """The figures of some systems, each (sources, outputs, references), by groups of lengths.

    ``tokenizers`` of BLEU are by system; where there is none, all its references decide.
    Raises `ConfigError` where texts of a system differ in number.
    """
    names, counts = group_names(), np.zeros(len(ENDS) + 1, int)
    panels = []
    for title, metric in (("BLEU", "bleu"), ("chrF", "chrf")):
        drawn, bands = {}, {}
        for system, (sources, outputs, references) in systems.items():
            if not len(sources) == len(outputs) == len(references):
                sizes = f"{len(sources)} sources, {len(outputs)} outputs"
                raise ConfigError(f"{system}: {sizes}, {len(references)} references; give as many")
            groups = grouped(sources)
            counts = np.maximum(counts, [len(group) for group in groups])
            cut = (tokenizers or {}).get(system) or tokenizer_for(references)
            found = [scored(metric, outputs, references, group, cut) for group in groups]
            drawn[system] = np.array([middle for middle, _, _ in found])
            bands[system] = (
                np.array([low for _, low, _ in found]), np.array([high for _, _, high in found])
            )  # fmt: skip
        some = counts > 0
        labels = [f"{n} (n={c})" for n, c, s in zip(names, counts, some, strict=True) if s]
        panels.append(
            CurvesView(
                np.arange(1.0, 1 + len(labels)), {n: line[some] for n, line in drawn.items()},
                "words of the source", title, labels=labels,
                bands={n: (low[some], high[some]) for n, (low, high) in bands.items()},
                caption="bands: 95 % of draws of the sentences (bootstrap)",
            )
        )  # fmt: skip
    return PanelsView(panels, "Scores by the length of the source")


def group_names() -> list[str]:
    """What the groups are called."""
    starts = [1, *(end + 1 for end in ENDS)]
    return [*(f"{a}–{b}" for a, b in zip(starts, ENDS, strict=False)), f"over {ENDS[-1]}"]


def grouped(sources: Texts) -> list[list[int]]:
    """The sentences of each group, by the words between blanks."""
    number = np.searchsorted(ENDS, [len(source.split()) for source in sources])
    return [np.flatnonzero(number == group).tolist() for group in range(len(ENDS) + 1)]


def scored(
    metric: str,
    outputs: Texts,
    references: References,
    group: Sequence[int],
    bleu_tokenizer: BleuTokenizer | None = None,
) -> tuple[float, float, float]:
    """The figure of some sentences and the ends of its interval; NaN for too few."""
    if len(group) < FEWEST:
        return np.nan, np.nan, np.nan
    some = [outputs[i] for i in group], [references[i] for i in group]
    return interval(metric, *some, bleu_tokenizer=bleu_tokenizer)
