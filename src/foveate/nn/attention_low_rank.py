"""Attention to a fixed number of mixtures of keys in place of the keys (Linformer)."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.attention import Attention, View
from foveate.nn.fold import fold, unfold
from foveate.nn.mask import Mask, Places


class LowRankAttention(Attention):
    """softmax(Q (E K)ᵀ / √d) (F V), where E and F mix S places into ``rank`` (Wang et al., 2020).

    What is shown to a tap are the weights that the places of V get in this way, softmax(…) F: they
    may be negative and need not sum to 1. Every mixture holds the future, so a decoder cannot use
    it for what it writes. Raises ``ValueError`` for a causal mask, for a source longer than
    ``max_length``, and for a position that adds to scores.
    """

    class Config(Attention.Config, kind="linformer"):
        """E and F are shared by the heads of a layer, as the paper proposes."""

        rank: int = Field(64, gt=0)
        max_length: int = Field(512, gt=0)

    config: Config
    causal: ClassVar[bool] = False

    def _prepare(self, head_size: int) -> None:
        super()._prepare(head_size)
        shape = self.config.rank, self.config.max_length
        self.key_places = nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)  # E
        self.value_places = nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)  # F

    def _mix(
        self,
        queries: Float[Tensor, "M H N K"],
        keys: Float[Tensor, "M H S E"],
        values: Float[Tensor, "M H S V"],
        view: View,
        key_at: Places,
    ) -> Float[Tensor, "M H N V"]:
        self._refuse(view, keys.shape[2])
        short_keys = self._mixtures(self.key_places, view.mask, keys.shape[2]) @ keys
        mixtures = self._mixtures(self.value_places, view.mask, keys.shape[2])
        all_of_them, seen = range(self.config.rank), View(Mask(), view.query_at, None, None)
        if self.tap is None:
            return super()._mix(queries, short_keys, mixtures @ values, seen, all_of_them)
        weights = self._weights(queries, short_keys, seen, all_of_them)
        replaced = self.tap(unfold(weights @ mixtures, len(view.query_at)))
        if replaced is not None:
            return self.dropout(fold(replaced, len(weights))) @ values
        return self.dropout(weights) @ (mixtures @ values)

    def _mixtures(self, places: Tensor, mask: Mask, length: int) -> Tensor:
        """E or F with nothing of what is hidden, (R, S) or (M, 1, R, S)."""
        mixtures = places[:, :length]
        return mixtures if mask.keys is None else mixtures * mask.keys[:, None, None, :]

    def _refuse(self, view: View, length: int) -> None:
        if view.mask.causal or view.mask.window is not None:
            raise ValueError(
                "linformer mixes the whole length, the future included: it cannot take a causal "
                "mask or a window; use another kind of attention in a decoder"
            )
        if length > self.config.max_length:
            raise ValueError(
                f"a sequence of {length} places is longer than linformer's max_length = "
                f"{self.config.max_length}; raise it in the config, or cut the sequence"
            )
        view.refuse_bias("linformer", self.key_places.device)
