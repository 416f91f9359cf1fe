"""What a search found for a text: the n best outputs, and how they differ from the best."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from foveate.look.sheets import Cell, TableView
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question


def nbest(runs: Sequence[Run], question: Question) -> TableView:
    """The n best outputs for a text, with their scores, lengths and differences to the first."""
    [run], text = runs, examples.text(runs[0], question)
    width = max(question.num, question.beam_size or 0)
    answer = run.translate([text], beam_size=width, num_hypotheses=question.num)[0]
    best = answer.hypotheses[0].split()
    rows: list[list[Cell]] = [
        [
            rank,
            found.score,
            found.log_probability,
            len(found.ids),
            hypothesis,
            ", ".join(differences(best, hypothesis.split())),
        ]
        for rank, (hypothesis, found) in enumerate(
            zip(answer.hypotheses, answer.outputs, strict=True), start=1
        )
    ]
    names = ["rank", "score", "log p", "tokens", "output", "against the first"]
    return TableView(names, rows, text, f"beam of {width}; a score is log p over the length's part")


def differences(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """What must be done to make ``after`` of ``before``: ``a → b``, ``−a``, ``+b``, in order."""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        old, new = " ".join(before[a:b]), " ".join(after[c:d])
        if kind != "equal":
            yield f"{old} → {new}" if old and new else f"−{old}" if old else f"+{new}"
