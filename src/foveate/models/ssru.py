"""A Transformer decoder whose layers read the text so far by a recurrence (Kim et al., 2019)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from foveate.models.transformer import DecoderLayer, TransformerDecoder
from foveate.nn.mask import Mask
from foveate.nn.position import Position
from foveate.nn.ssru import SSRU
from foveate.nn.state import State


class SSRULayer(DecoderLayer):
    """An SSRU in place of self-attention; attention to the memory and feed-forward as ever."""

    def _look_back(self, config: TransformerDecoder.Config) -> None:
        self.unit = SSRU(config.hidden_size)

    def back(
        self, x: Tensor, mask: Mask, state: State | None, position: Position
    ) -> Float[Tensor, "B T D"]:
        gathered: Tensor = self.unit(x, state)
        return gathered


class SSRUDecoder(TransformerDecoder):
    """The decoder of "ludicrously fast" translation: a step costs as much at any length."""

    class Config(TransformerDecoder.Config, kind="ssru"):
        """``attention`` is that to the memory alone."""

    config: Config
    layer = SSRULayer
    constant_memory = True
