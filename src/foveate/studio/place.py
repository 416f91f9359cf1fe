"""What all routes share: the runs, the desk where computations wait, the arrays that are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from foveate.look.drawing import Drawing
from foveate.studio.asking import MOST_CHARACTERS, Ask, Head
from foveate.studio.describing import answerer
from foveate.studio.desk import Desk, Say
from foveate.studio.errors import Refused
from foveate.studio.evaluating import Evaluated, evaluated
from foveate.studio.pictures import opened
from foveate.studio.shelf import Shelf
from foveate.studio.silence import silenced
from foveate.studio.tensors import Tensors
from foveate.studio.told import Drawings
from foveate.views.question import Question
from foveate.views.registry import find


class Studio:
    """The runs of a studio, one computation at a time, and the arrays that were drawn last."""

    def __init__(self, runs: Sequence[Path], waiting: int = 8) -> None:
        self.shelf, self.desk, self.tensors = Shelf(runs), Desk(waiting), Tensors()
        self._judged: dict[tuple[str, str, str, int], Evaluated] = {}

    def answer(self, name: str, ask: Ask, say: Say) -> None:
        """Answer a question with events, the first "start", the last "done"."""
        began = time.perf_counter()
        run = self.shelf.run(name)
        who = answerer(run.task)
        say(who.start(run, name, ask))
        with silenced(run, ask.silenced):
            done = who.answer(run, ask, say)
        drawings = list(map(self.tensors.outside, done.drawings))
        spent = 1000 * (time.perf_counter() - began)
        say(done.model_copy(update={"drawings": drawings, "milliseconds": spent}))

    def view(
        self, view: str, names: Sequence[str], question: Question, heads: Sequence[Head] = ()
    ) -> Drawings:
        """A view of some runs, the big arrays of its drawings kept here."""
        began = time.perf_counter()
        entry, runs = find(view), [self.shelf.run(name) for name in names]
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(silenced(run, heads))
            if question.image is not None:
                picture = stack.enter_context(opened(question.image))
                question = question.model_copy(update={"image": str(picture)})
            drawings = entry.draw(runs, question).drawings()
        return self.drawings(drawings, began)

    def evaluate(self, name: str, split: str, most: int, say: Say) -> Evaluated:
        """The scores of a run's examples; those of the same weights are computed once."""
        run = self.shelf.run(name)
        key = name, run.checkpoint, split, most
        if key not in self._judged:
            self._judged[key] = evaluated(run, name, split, most, say)
        return self._judged[key]

    def drawings(self, drawings: Sequence[Drawing], began: float) -> Drawings:
        """Drawings as they are sent, with the time since the work began."""
        spent = 1000 * (time.perf_counter() - began)
        sent: list[Any] = [self.tensors.outside(one) for one in drawings]
        return Drawings.model_construct(drawings=sent, milliseconds=spent)


def check_length(*texts: str | None) -> None:
    """Raise `Refused` for a text that is too long for a model and a page."""
    for text in texts:
        if text is not None and len(text) > MOST_CHARACTERS:
            message = f"a text of {len(text):,} characters"
            hint = f"the studio reads at most {MOST_CHARACTERS:,}; use the command line"
            raise Refused(413, "too_long", message, hint)


def studio(request: Request) -> Studio:
    """The studio of an application."""
    found: Studio = request.app.state.studio
    return found


Here = Annotated[Studio, Depends(studio)]
