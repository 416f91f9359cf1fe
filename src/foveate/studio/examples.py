"""Something to try: the first, the middle and other examples of a run's own test data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foveate.data.series import labels as date_labels
from foveate.errors import is_for_the_user, message_of
from foveate.run import Run
from foveate.studio.pictures import data_uri
from foveate.studio.told import Example, Examples
from foveate.train.journal import last_samples

SIDE = 56  # least pixels of a small picture
LONG = 300  # characters of a prompt


def examples(run: Run, most: int) -> Examples:
    """Examples from all over the test data; those of the last validation where it is not here."""
    try:
        return Examples(examples=_own(run)(run.task, most))
    except Exception as error:
        if not is_for_the_user(error):
            raise
        found = [
            Example(text=sample["source"], wanted=sample["reference"])
            for sample in last_samples(run.path)
        ]
        note = f"the run's own data are not here: {message_of(error)}"
        return Examples(examples=found if hasattr(run.task, "answer") else [], note=note)


def _own(run: Run) -> Callable[[Any, int], list[Example]]:
    ways = {"shown": _pictures, "forecast": _dates, "corpus": _texts, "ids_of": _prompts}
    return next(way for method, way in ways.items() if hasattr(run.task, method))


def spread(count: int, most: int) -> Sequence[int]:
    """At most so many numbers from 0 to ``count``, evenly."""
    return range(0, count, max(1, count // max(1, most)))[:most]


def _texts(task: Any, most: int) -> list[Example]:
    corpus = task.corpus("test")
    places = spread(len(corpus), most)
    return [Example(text=corpus.sources[i], wanted=corpus.targets[i]) for i in places]


def _prompts(task: Any, most: int) -> list[Example]:
    stream = task.examples("valid")
    lines = [line for line in stream.text.lines if line.strip()]
    found = []
    for i in spread(len(lines), most):
        words = lines[i][:LONG].split(" ")
        half = max(1, len(words) // 2)
        found.append(Example(text=" ".join(words[:half]), wanted=" ".join(words[half:])))
    return found


def _pictures(task: Any, most: int) -> list[Example]:
    album = task.album("test")
    return [
        Example(
            text=album.names[i],
            picture=str(i),
            thumbnail=data_uri(task.seen("test", i), SIDE),
            wanted=album.texts[i][0] if album.texts[i] else "",
        )
        for i in spread(len(album), most)
    ]


def _dates(task: Any, most: int) -> list[Example]:
    windows = task.some("test")
    asked = windows.asked()[list(spread(len(windows), most))]
    return [Example(date=date) for date in date_labels(asked, windows.table.dates)]
