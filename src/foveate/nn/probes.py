"""Probes: what looks into a module reads each stage of its computation, with its equation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

Probe = Callable[[str, Tensor, str], None]  # gets the name of a stage, its values, its equation


class Probed:
    """A module that passes the stages of its computation to a ``probe``, if one is set.

    A probe reads and changes nothing. While it is set, the module computes by its equation, not by
    a fused kernel: the output is made of what the probe reads.
    """

    probe: Probe | None = None

    def equations(self) -> dict[str, str]:
        """Return the equation of each stage, with every term that this module computes."""
        return {}

    def _stage(self, name: str, x: Tensor, equation: str | None = None) -> Tensor:
        """Return x itself, after calling a probe with the name, x and the equation.

        ``equation`` is passed for a stage of another module, such as a position encoding.
        """
        if self.probe is not None:
            written = self.equations().get(name, "") if equation is None else equation
            self.probe(name, x, written)
        return x


@contextmanager
def probed(module: Probed, probe: Probe | None) -> Iterator[None]:
    """Set the probe of a module for the context; None removes it."""
    before, module.probe = module.probe, probe
    try:
        yield
    finally:
        module.probe = before
