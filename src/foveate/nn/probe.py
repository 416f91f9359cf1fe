"""Probes: what a module computes on its way to its output, stage by stage, as it computes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from torch import Tensor

Probe = Callable[[str, Tensor, FrameType], None]  # name of a stage, its values, where it is made


class Probed:
    """A module that passes the stages of its computation to a ``probe``, where one is set.

    A probe reads and changes nothing. While it is set the module computes by its equation, not by
    a fused kernel: what the probe reads is what the output is made of.
    """

    probe: Probe | None = None

    def _stage(self, name: str, x: Tensor) -> Tensor:
        """X itself; a probe is called with it and the frame of the caller."""
        if self.probe is not None:
            self.probe(name, x, sys._getframe(1))
        return x


@contextmanager
def probed(module: Probed, probe: Probe | None) -> Iterator[None]:
    """Set the probe of a module for the context; None passes its stages to nobody."""
    before, module.probe = module.probe, probe
    try:
        yield
    finally:
        module.probe = before
