"""One forced pass: what a model says of an example that is given whole, asked again and again.

Every task makes one of its examples (`foveate.tasks.base.Task.forced`); whoever looks inside needs
to know no more of the task. Does not live here: what is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.look.capture import capture
from foveate.look.record import AttentionRecord
from foveate.look.seams import Where
from foveate.look.words import Units

Maps = Mapping[str, NDArray[np.float32]]  # by name (H, T, S), between the pieces that are read


def everywhere(name: str) -> bool:
    """Every attention of a model."""
    return True


@dataclass(frozen=True)
class ForcedPass:
    """A model and an example, made ready to be read as often as is wanted.

    ``run`` reads it and gives (N,) scores of what is said of it: log p of each token of the target,
    of the label, or (``told``) the numbers of a forecast; with a graph where gradients are on.
    ``label`` makes a record of maps between tokens, with the ``units`` asked for on its axes.
    ``read`` are the pieces that "encoder" and "decoder" read, ``produced`` what the scores are of.
    ``row`` is the row of the batch that holds the example; ``answer_at`` the place of the encoder's
    output that a label is read from, None where it is all of them. ``first`` is the place of the
    first score among those that are read. ``token`` names what the output chooses from.
    """

    model: nn.Module
    run: Callable[[], Tensor]
    label: Callable[[Maps, Units], AttentionRecord]
    produced: Sequence[str]
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    row: int = 0
    first: int = 0
    answer_at: int | None = None
    token: Callable[[int], str] | None = None
    told: str = "log p"
    units: Units = "auto"

    @torch.inference_mode()
    def scores(self) -> NDArray[np.float64]:
        """What the model says, as numbers (N,)."""
        found: NDArray[np.float64] = self.run().double().cpu().numpy()
        return found

    def difference(
        self, before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What each score has lost; of a forecast how far it has moved."""
        return before - after if self.told == "log p" else np.abs(before - after)

    @torch.inference_mode()
    def maps(self, where: Where = everywhere) -> Maps:
        """The weights of every attention, (H, T, S), between pieces."""
        with capture(self.model, where) as found:
            self.run()
        return {name: weights[self.row].cpu().numpy() for name, weights in found.items()}

    def record(self) -> AttentionRecord:
        """The weights of every attention, with labels on both axes."""
        return self.label(self.maps(), self.units)

    def labelled(self, maps: Maps, note: str) -> AttentionRecord:
        """Maps that were made of others, with labels on their axes, and how they were made."""
        made = self.label(maps, self.units)
        return replace(made, notes=[*made.notes, note])
