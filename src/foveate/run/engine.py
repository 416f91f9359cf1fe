"""The engine of a run in PyTorch, whose answers can be explained."""

from __future__ import annotations

from collections.abc import Sequence

import foveate.engine.live  # noqa: F401  it searches in C where it can
from foveate.decode.engine import Ids
from foveate.engine.answers import ModelEngine, Picture
from foveate.engine.links import Head, Links
from foveate.inspect.records import AttentionRecord, Units
from foveate.run.linking import links_of_pairs
from foveate.run.passes import explain
from foveate.tasks.engine import TorchEngine


class RunEngine(TorchEngine, ModelEngine):
    """The engine of a run in PyTorch."""

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        return links_of_pairs(self.task, self.model, pairs, head)

    def explain(self, source: Picture, target: str | Ids | None, units: Units) -> AttentionRecord:
        return explain(self.task, self.model, source, target, units=units)
