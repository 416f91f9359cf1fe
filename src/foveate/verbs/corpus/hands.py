"""Who translates the parts of a folder: processes of this machine, or those of a cluster.

Lives here: what all of them are told and give back, and the processes. Does not live here: Ray
(`cluster`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from foveate.data.corpus import Arrays, Work, cores, in_order
from foveate.documents.documents import BY_LINES, Choices, read_document
from foveate.documents.spans import Rules
from foveate.run import device
from foveate.tasks.base import CUT
from foveate.verbs import DAMAGED
from foveate.verbs.corpus.parts import Part
from foveate.verbs.crew import Loading

Noted = dict[str, list[int]]  # what happened → to which lines of a part, from 1; 0: nobody knows
Answer = tuple[bytes, Noted]  # the translation of a part


@dataclass(frozen=True)
class Order:
    """What is to be done: each part, as `translator` of the plain ``values`` does it.

    ``needed`` are files that whoever works must see, ``say`` tells the user something.
    """

    values: Mapping[str, Any]
    parts: Sequence[Part]
    needed: Sequence[str]
    processes: int | None  # None: as many as there is room for
    threads: int  # of each
    say: Callable[[str], None]


Hands = Callable[[Order], Generator[Answer, None, None]]  # the answers in the order of the parts


def hands_of(loading: Loading) -> tuple[Hands, Loading]:
    """Who does the work by the engine, and how each of them loads the run.

    Raises `ExchangeError` where a package is missing.
    """
    if loading.engine == "ray":
        from foveate.verbs.corpus.cluster import through_ray

        return through_ray(), loading._replace(engine="torch")
    return by_processes, loading


def by_processes(order: Order) -> Generator[Answer, None, None]:
    """Done by this process alone, or by several more that end when it ends, however it does."""
    if not order.parts:
        return
    room = 1 if device() == "cuda" else max(1, cores() // order.threads)
    count = order.processes or room
    for arrays in in_order(translator, order.values, order.parts, count):
        yield opened(arrays["answers"].tobytes())


def translator(values: Mapping[str, Any]) -> Work:
    """What each of them does: translate parts with a run of its own, on so many threads."""
    import torch

    from foveate.documents.memory import Aided
    from foveate.verbs.documents import from_known, translated

    torch.set_num_threads(values["threads"])
    run = Aided(Loading(**values["loading"]).load())
    said = Choices(Rules(tuple(values["protect"])), values["to"], values["again"])
    choices = from_known(run.run, said)

    def work(*fields: Any) -> Arrays:
        part = Part(*fields)
        data, damaged = _readable(part)
        read = BY_LINES.get(part.kind) or partial(read_document, part.kind)
        document = read(data, choices, part.file)
        text, answers = translated(run, document, values["search"])
        lines = document.lines or [0] * len(document.passages)
        places = (n for n, p in zip(lines, document.passages, strict=True) for _ in p.sentences)
        long = {place for place, answer in zip(places, answers, strict=True) if answer.cut}
        noted = {DAMAGED: damaged, CUT: sorted(long)}
        return {"answers": np.frombuffer(closed(text, noted), dtype=np.uint8)}

    return work


def closed(text: bytes, noted: Noted) -> bytes:
    """An answer as bytes: what happened on a line, and the translation after it."""
    return (
        json.dumps({what: lines for what, lines in noted.items() if lines}).encode() + b"\n" + text
    )


def opened(data: bytes) -> Answer:
    """An answer of such bytes."""
    noted, _, text = data.partition(b"\n")
    return text, json.loads(noted)


def _readable(part: Part) -> tuple[bytes, list[int]]:
    """The part, in formats of lines with U+FFFD for what is not UTF-8, and the lines with it."""
    data = part.read()
    if part.kind not in BY_LINES:
        return data, []
    damaged = [n for n, line in enumerate(data.split(b"\n"), start=1) if not _sound(line)]
    return data.decode(errors="replace").encode() if damaged else data, damaged


def _sound(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
