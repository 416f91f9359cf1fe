"""Whether every part of a model learns: gradient norms and sizes of updates, module by module.

    ratio = ‖w_{n+1} − w_n‖ / ‖w_n‖ over the parameters of a module

About 1/1000 is the rule of thumb: far below, a part stands still; far above, it is shaken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from foveate.train.journal import Journal


class Health:
    """Writes an event ``health`` every so many steps; between them it does nothing at all.

    The line has ``gradient``, the norm of each module's gradient as the optimiser gets it (mean
    over targets, clipped), and ``ratio``.
    """

    def __init__(self, model: nn.Module, every: int, journal: Journal) -> None:
        self.every, self.journal = every, journal
        self.modules: dict[str, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            self.modules.setdefault(module_of(name), []).append(parameter)

    @contextlib.contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Stands around the update of a step; takes a copy of the weights where it is due."""
        if step % self.every:
            yield
            return
        before = {
            name: [p.detach().clone() for p in parameters]
            for name, parameters in self.modules.items()
        }
        gradient = {
            name: norm([p.grad for p in parameters if p.grad is not None])
            for name, parameters in self.modules.items()
        }
        yield
        ratio = {
            name: norm([p.detach() - old for p, old in zip(self.modules[name], olds, strict=True)])
            / max(norm(olds), 1e-12)
            for name, olds in before.items()
        }
        self.journal.write("health", step, gradient=gradient, ratio=ratio)


def module_of(parameter: str) -> str:
    """The module that a parameter is counted to: its layer, or the part that stands alone.

    ``decoder.layers.3.cross_attention.query.weight`` is of ``decoder.layers.3``,
    ``encoder.stem.embedding.weight`` of ``encoder.stem``.
    """
    parts = parameter.split(".")[:-1]
    numbered = next((n for n, part in enumerate(parts) if part.isdecimal()), None)
    return ".".join(parts[: 2 if numbered is None else numbered + 1]) or parameter


def norm(tensors: list[Tensor]) -> float:
    """The Euclidean norm of all numbers together."""
    if not tensors:
        return 0.0
    return float(torch.stack([t.float().norm() for t in tensors]).norm())
