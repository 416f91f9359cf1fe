"""What all routes share: the runs, the desk where computations wait, the arrays that are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Request

from foveate.look.drawing import Drawing
from foveate.run import Run, load
from foveate.studio.asking import FILES, MOST_CHARACTERS, Ask, FilmAsk, Head
from foveate.studio.describing import answerer
from foveate.studio.desk import Desk, Say
from foveate.studio.errors import Refused
from foveate.studio.evaluating import Evaluated, Progress, evaluated
from foveate.studio.pictures import opened
from foveate.studio.shelf import Shelf
from foveate.studio.silence import silenced
from foveate.studio.tensors import Tensors
from foveate.studio.told import Drawings, Film, Frame
from foveate.train.checkpoint import steps
from foveate.views.question import Question
from foveate.views.registry import Entry, find


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
        runs = [self.shelf.run(name) for name in names]
        return self.drawings(drawn(find(view), runs, question, heads), began)

    def film(self, name: str, ask: FilmAsk, say: Say) -> Film:
        """A view at checkpoints from all over a training."""
        folder, entry = self.shelf.folder(name), find(ask.view)
        frames: list[Frame] = []
        kept = steps(folder)
        for place in np.linspace(0, len(kept) - 1, min(ask.most, len(kept))).round().astype(int):
            say(Progress(done=len(frames), total=ask.most))
            run = load(folder, str(kept[place]))
            shown: list[Any] = [self.tensors.outside(d) for d in drawn(entry, [run], ask.question)]
            frames.append(Frame.model_construct(step=kept[place], drawings=shown))
        return Film.model_construct(frames=frames)

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


def drawn(
    entry: Entry, runs: Sequence[Run], question: Question, heads: Sequence[Head] = ()
) -> list[Drawing]:
    """The drawings of a view, with heads silenced. Pictures are no paths."""
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(silenced(run, heads))
        if question.image is not None:
            picture = stack.enter_context(opened(question.image))
            question = question.model_copy(update={"image": str(picture)})
        return entry.draw(runs, question).drawings()


def check(question: Question) -> None:
    """Raise `Refused` for a question that names files of this machine, or is too long."""
    check_length(question.text, question.target)
    if named := sorted(question.model_fields_set & FILES):
        raise Refused(422, "no_files", f"{named[0]}: a page names no files", "use the command line")


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
