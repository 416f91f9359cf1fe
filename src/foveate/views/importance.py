"""Which heads align, which are sure, which look broadly: figures of each head over some pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from foveate.align.aer import rank_heads, read_gold, read_links
from foveate.config import ConfigError
from foveate.look import measure
from foveate.look.sheets import Sheet, SheetsView
from foveate.run import Run
from foveate.tasks.base import WordMaps
from foveate.views import examples
from foveate.views.question import Question

PAIRS = 100  # of the split, where no text is given


def importance(runs: Sequence[Run], question: Question) -> SheetsView:
    """Layers down, heads across: entropy, confidence, diagonality and, against gold, the AER.

    Of the cross-attention between words (`foveate.look.measure`, `foveate.align.aer`). Raises
    `ConfigError` where gold links and pairs differ in number.
    """
    [run] = runs
    pairs = asked(run, question)
    maps = [found for found in run.can("word_maps", "align")(run.model, pairs) if found]
    names = list(maps[0])
    figures = {
        "entropy, bits": mean(maps, measure.entropy),
        "confidence": mean(maps, measure.confidence),
        "diagonality": mean(maps, measure.diagonality),
    }
    if question.gold is not None:
        figures["alignment error rate"] = errors(maps, question, names)
    sheets = [
        Sheet(
            title, values, [f"layer {n}" for n in range(len(names))],
            [f"head {n}" for n in range(values.shape[1])], least=0.0,
            most=1.0 if title != "entropy, bits" else None, aspect=0.6, written=True,
        )
        for title, values in figures.items()
    ]  # fmt: skip
    many = "1 pair" if len(maps) == 1 else f"{len(maps)} pairs"
    return SheetsView(sheets, f"Heads of the cross-attention over {many}")


def asked(run: Run, question: Question) -> list[tuple[str, str]]:
    """The pair that is asked for, else the first of the split; with gold as many as it has."""
    if question.gold is None and question.text is not None:
        text = examples.text(run, question)
        return [(text, question.target or run.translate([text])[0].hypotheses[0])]
    both = zip(*run.pairs(question.split), strict=True)
    return list(islice(both, None if question.gold else PAIRS))


def mean(maps: Sequence[WordMaps], figure: measure.Judge) -> NDArray[np.float64]:
    """The mean over pairs of a figure of each layer and head, (L, H)."""
    found = [np.stack([figure(heads) for heads in pair.values()]) for pair in maps]
    together: NDArray[np.float64] = np.mean(found, axis=0)
    return together


def errors(maps: Sequence[WordMaps], question: Question, names: list[str]) -> NDArray[np.float64]:
    """The alignment error rate of each layer and head against gold, (L, H)."""
    assert question.gold is not None
    gold = read_gold(question.gold)
    if len(gold) != len(maps):
        raise ConfigError(
            f"{question.gold}: gold links of {len(gold)} sentences for {len(maps)} pairs of the "
            f"split {question.split}; give as many"
        )
    table = np.full((len(names), len(maps[0][names[0]])), np.nan)
    for name, head, found in rank_heads(maps, gold, read_links):
        table[names.index(name), head] = found.aer
    return table
