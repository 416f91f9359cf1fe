"""Which state turns the answer: the states of one text are put into the run on another.

Activation patching, or causal tracing (Vig et al., 2020; Meng et al., 2022).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.hooks import Call, ForcedPass, calls_of
from foveate.look.perturbations import side_of
from foveate.look.stages import backwards, called
from foveate.nn.context import probed
from foveate.nn.recurrent import Cell

Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """A module whose output is a state at each position: a stem, a layer, or a cell.

    A cell is called once for each position, from the last one if ``reverse``.
    """

    name: str
    module: nn.Module
    reverse: bool = False

    @torch.inference_mode()
    def recorded(self, forced: ForcedPass) -> list[Call]:
        """Return the calls of the module in a run."""
        with stepwise(self.module), calls_of(self.module) as calls:
            forced.run()
        return calls

    @contextmanager
    def patched(self, theirs: Sequence[Call], positions: Collection[int]) -> Iterator[None]:
        """Put the states of another run at some positions into one run of the model."""
        steps, at = count(), list(positions)

        def hook(module: nn.Module, args: object, output: Tensor | tuple[Tensor, ...]) -> object:
            if isinstance(module, Cell):
                step = next(steps)
                place = len(theirs) - 1 - step if self.reverse else step
                return theirs[step].output if place in at else output
            own = output if isinstance(output, Tensor) else output[0]
            changed = own.clone()
            changed[:, at] = theirs[0].gave[0][:, at]
            return changed if isinstance(output, Tensor) else (changed, *output[1:])

        with stepwise(self.module), self.module.register_forward_hook(hook):
            yield


@contextmanager
def stepwise(module: nn.Module) -> Iterator[None]:
    """Make a cell run step by step, not by a kernel."""
    with ExitStack() as stack:
        if isinstance(module, Cell):
            stack.enter_context(probed(module, lambda *stage: None))
        yield


def streams(model: nn.Module) -> list[Stream]:
    """Return the states of the side that reads the text, in order.

    They are the input of the first layer, then the output of each layer, or the state of each cell.
    Raises ``ConfigError`` for a model without such a side.
    """
    name = side_of(model)
    if not name:
        raise ConfigError("this model has no states at positions that could be exchanged")
    side = model.get_submodule(name)
    layers = dict(side.named_children()).get("layers", nn.ModuleList())
    cells = {n: m for n, m in side.named_modules(prefix=name) if isinstance(m, Cell)}
    return [
        Stream("input", side.get_submodule("stem")),
        *(Stream(f"layer {n}", layer) for n, layer in enumerate(layers.children())),
        *(Stream(called(n), cell, backwards(n)) for n, cell in cells.items()),
    ]


@dataclass(frozen=True)
class Answers:
    """One text with two answers: A and B, which a model weighs against each other."""

    first: ForcedPass
    second: ForcedPass

    def margin(self, patch: Callable[[], AbstractContextManager[None]] = nullcontext) -> float:
        """Return log p(A) − log p(B), each run within a patch."""
        log_p = []
        for forced in (self.first, self.second):
            with patch():
                log_p.append(forced.scores().sum())
        return float(log_p[0] - log_p[1])

    def read(self) -> list[str]:
        """Return what the model reads of the text itself, before the answers differ."""
        side = next(iter(self.first.read))
        pairs = zip(self.first.read[side], self.second.read[side], strict=False)
        return [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def restored(ours: Answers, theirs: Answers) -> Figures:
    """Return how much of B's answer each state of B's text brings into the run on A's, (L, S).

    (m(patched) − m(A)) / (m(B) − m(A)), with the margin m = log p(A) − log p(B): 0 is the answer as
    on A, 1 as on B. Raises ``ConfigError`` for texts of different lengths, or with equal margins.
    """
    low, high = ours.margin(), theirs.margin()
    lengths = len(ours.read()), len(theirs.read())
    if lengths[0] != lengths[1]:
        raise ConfigError(
            f"the model reads {lengths[0]} tokens of one text and {lengths[1]} of the other: "
            "states are exchanged position by position, so give texts with as many tokens"
        )
    if low == high:
        raise ConfigError("both texts give the answers the same log p: there is nothing to restore")
    rows = []
    for stream in streams(ours.first.model):
        calls, row = stream.recorded(theirs.second), []
        for position in range(lengths[0]):
            margin = ours.margin(partial(stream.patched, calls, [position]))
            row.append((margin - low) / (high - low))
        rows.append(row)
    return np.array(rows)
