"""Word links by a run's attention, as passages ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foveate.align.heads import Head
from foveate.passages.passage import Aligner, Pair

if TYPE_CHECKING:
    from foveate.run import Run


def aligner(run: Run, head: Head | None = None) -> Aligner:
    """Links by a head: the given one, that which the run has saved, or its task's own.

    ``foveate align RUN … --save`` chooses one. A run that cannot align gives no links; what is to
    be placed goes in proportion then.
    """
    chosen = head or Head.load(run.path, getattr(run.task, "head", Head()))
    word_maps = getattr(run.task, "word_maps", None)

    def align(pairs: Sequence[Pair]) -> list[list[tuple[int, int]]]:
        if word_maps is None:
            return [[] for _ in pairs]
        maps = word_maps(run.model, pairs, rows=chosen.rows)
        return [sorted(chosen.links(found)) if found else [] for found in maps]

    return align
