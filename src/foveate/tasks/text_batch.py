"""Batches of text: ids with their ends, side by side, and where they are real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.columns import TokenIds
from foveate.data.pad import pad
from foveate.data.tokenizer import BOS, EOS, PAD

Ids = list[int]


@dataclass(frozen=True)
class TextBatch:
    """Pairs side by side: ``source`` (B, S) with ends, ``keys`` true at real source tokens or None,
    ``read`` (B, T) the target behind its start, ``wanted`` (B, T) the target with its end, ``real``
    the flat places of real targets or None where all are.
    """

    source: Tensor
    keys: Tensor | None
    read: Tensor
    wanted: Tensor
    real: Tensor | None

    def to(self, device: torch.device) -> TextBatch:
        """The same on a device."""
        parts = (self.source, self.keys, self.read, self.wanted, self.real)
        return TextBatch(*(p if p is None else p.to(device) for p in parts))  # type: ignore[arg-type]


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> TextBatch:
    """Tensors of some pairs of ids: ends and starts added, padded on the right."""
    source, keys = source_batch(sources)
    read = torch.from_numpy(pad([[BOS, *ids] for ids in targets]))
    wanted = torch.from_numpy(pad([[*ids, EOS] for ids in targets]))
    lengths = torch.tensor([len(ids) + 1 for ids in targets])
    ragged = len(set(lengths.tolist())) > 1
    places = torch.arange(read.shape[1])[None] < lengths[:, None]
    real = places.flatten().nonzero().flatten() if ragged else None
    return TextBatch(source, keys, read, wanted, real)


def source_batch(sources: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """Ids (B, S) of some sources with their ends, and where they are real, None if everywhere."""
    ids = torch.from_numpy(pad([[*s, EOS] for s in sources]))
    keys = ids != PAD
    return ids, None if bool(keys.all()) else keys


def lengths_of(*sides: Sequence[Ids]) -> NDArray[np.int32]:
    """(N, sides) numbers of tokens."""
    return np.stack([sizes_of(side).astype(np.int32) for side in sides], axis=1)


def sizes_of(texts: Sequence[Ids]) -> NDArray[np.int64]:
    """(N,) numbers of tokens."""
    if isinstance(texts, TokenIds):
        return texts.lengths()
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
