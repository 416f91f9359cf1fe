"""Find the state that turns the answer: the states of one text are put into the run on another.

Activation patching, or causal tracing (Vig et al., 2020; Meng et al., 2022).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

import numpy as np
import torch
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.flow import Figures
from foveate.look.hooks import Call, ForcedPass, calls_of
from foveate.look.perturbations import layers_of, stems_of
from foveate.look.stages import backwards, called
from foveate.nn.context import probed
from foveate.nn.recurrent import Cell


@dataclass(frozen=True)
class StateStream:
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


def stepwise(module: nn.Module) -> AbstractContextManager[None]:
    """Make a cell run step by step, not by a kernel."""
    return probed(module, lambda *stage: None) if isinstance(module, Cell) else nullcontext()


def streams(model: nn.Module) -> list[StateStream]:
    """Return the states of the side that reads the text, in order.

    They are the input of the first layer, then the output of each layer, or the state of each cell.
    Raises ``ConfigError`` for a model without such a side.
    """
    for name, stem in stems_of(model).items():
        side = dict(model.named_children()).get(name, model)
        cells = [(n, m) for n, m in side.named_modules(prefix=name) if isinstance(m, Cell)]
        layers = None if cells else layers_of(side)
        return [
            StateStream("input", stem),
            *(StateStream(f"layer {n}", layer) for n, layer in enumerate(layers or ())),
            *(StateStream(called(n), cell, backwards(n)) for n, cell in cells),
        ]
    raise ConfigError("this model has no states at positions that could be exchanged")


Answers = Sequence[ForcedPass]  # one text with the answers A and B, or with A alone


def margin(of: Answers, patch: Callable[[], AbstractContextManager[None]] = nullcontext) -> float:
    """Return log p(A) − log p(B) after a text, or log p(A) alone, each run within a patch."""
    log_p = []
    for forced in of:
        with patch():
            log_p.append(forced.scores().sum())
    return float(log_p[0] - sum(log_p[1:]))


def shared(of: Answers) -> list[str]:
    """Return what the model reads of the text itself, before the answers differ."""
    first, second = (next(iter(forced.read.values())) for forced in (of[0], of[-1]))
    pairs = zip(first, second, strict=False)
    return [a for a, b in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def restored(ours: Answers, theirs: Answers) -> Figures:
    """Return how much of B's answer each state of B's text brings into the run on A's, (L, S).

    (m(patched) − m(A)) / (m(B) − m(A)), with the margin m = log p(A) − log p(B): 0 is the answer as
    on A, 1 as on B. Raises ``ConfigError`` for texts of different lengths, or with equal margins.
    """
    low, high = margin(ours), margin(theirs)
    lengths = len(shared(ours)), len(shared(theirs))
    if lengths[0] != lengths[1]:
        raise ConfigError(
            f"the model reads {lengths[0]} tokens of one text and {lengths[1]} of the other: "
            "states are exchanged position by position, so give texts with as many tokens"
        )
    if low == high:
        raise ConfigError("both texts give the answers the same log p: there is nothing to restore")
    rows = []
    for stream in streams(ours[0].model):
        calls = stream.recorded(theirs[-1])
        patches = (partial(stream.patched, calls, [at]) for at in range(lengths[0]))
        rows.append([(margin(ours, patch) - low) / (high - low) for patch in patches])
    return np.array(rows)
