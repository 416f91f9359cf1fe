"""Word links by a run's attention, as passages ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foveate.passages.passage import Aligner

if TYPE_CHECKING:
    from foveate.align.heads import Head
    from foveate.run import Run


def aligner(run: Run, head: Head | None = None) -> Aligner:
    """Links by a head, else that of the run: ``foveate align RUN … --save`` chooses one.

    A run that cannot align gives no links; what is to be placed goes in proportion then.
    """
    if not hasattr(run.task, "word_maps"):
        return lambda pairs: [[] for _ in pairs]
    return lambda pairs: [sorted(links) for links in run.links(pairs, head)]
