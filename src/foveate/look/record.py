"""What was seen: weights over keys with the words of both axes. No drawing, no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Labels = Sequence[str]
LAYERS = "layers", "blocks", "layer", "block", "h"  # what a list of layers is called


def block_of(name: str) -> str:
    """The name of a module without its layer.

    ``decoder.layers.3.cross_attention`` is of the block ``decoder.cross_attention``.
    """
    parts = name.split(".")
    return ".".join(p for p in parts if p not in LAYERS and not p.isdecimal())


def tails(block: str) -> list[str]:
    """A dotted name and its endings, the longest first: ``a.b`` gives ``a.b`` and ``b``."""
    parts = block.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of one sentence (or image, or series) through a whole model.

    ``maps`` holds, by the dotted name of the module that formed them, weights of shape (H, T, S):
    head, query, key; exactly 0 where masked. ``rows`` and ``columns`` label queries and keys by
    the map's name, by its block (``encoder.self_attention``), by the end of the block's name
    (``cross_attention``), or under ``""`` for every other block.
    Row t of a decoder's map belongs to the label *produced* at t.
    """

    maps: dict[str, NDArray[np.float32]]
    rows: dict[str, list[str]]
    columns: dict[str, list[str]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        maps: Mapping[str, Tensor],
        source: Labels = (),
        target: Labels = (),
        title: str = "",
        row: int = 0,
    ) -> AttentionRecord:
        """What `foveate.look.capture` has seen of one row of a batch, with the tokens of its axes.

        ``source`` is what an encoder read, ``target`` what a decoder read, its start included: it
        produced the one after, and after the last what nobody told (``…``).
        """
        read, before = list(source), list(target)
        produced = [*before[1:], "…"] if before else []
        own, cross = (produced, before), (produced, read)
        labels = {name: cross if name.endswith("cross_attention") else own for name in maps} | {
            name: (read, read) for name in maps if name.startswith("encoder")
        }
        return cls(
            {name: weights[row].detach().float().cpu().numpy() for name, weights in maps.items()},
            {name: rows for name, (rows, _) in labels.items() if rows},
            {name: keys for name, (_, keys) in labels.items() if keys},
            title,
        )

    def axes(self, name: str) -> tuple[list[str], list[str]]:
        """Labels of the queries (T) and keys (S) of one map; empty where none were given."""
        keys = [name, *tails(block_of(name)), ""]
        return (
            next((self.rows[key] for key in keys if key in self.rows), []),
            next((self.columns[key] for key in keys if key in self.columns), []),
        )

    def row_means(self, name: str) -> str:
        """What a row of a map stands for: the word a decoder is *producing*, or one it is *at*."""
        return "at" if block_of(name).startswith("encoder") else "producing"

    def blocks(self) -> dict[str, list[str]]:
        """Names of the maps of each block, both in the order of the model."""
        found: dict[str, list[str]] = {}
        for name in self.maps:
            found.setdefault(block_of(name), []).append(name)
        return found

    def names(self, block: str | None = None) -> list[str]:
        """Names of the maps of a block, which may be given by the end of its name.

        ``cross_attention`` is enough where only the decoder has one; empty where there is none.
        Raises ``KeyError`` naming the blocks where several would fit.
        """
        if block is None:
            return list(self.maps)
        blocks = self.blocks()
        fitting = [block] if block in blocks else [b for b in blocks if block in tails(b)]
        if len(fitting) > 1:
            raise KeyError(f"{block!r} could be any of: {', '.join(fitting)}")
        return blocks[fitting[0]] if fitting else []

    def layers(self, block: str) -> list[str]:
        """Names of the maps of a block. Raises ``KeyError`` naming the blocks that exist."""
        found = self.names(block)
        if not found:
            known = ", ".join(self.blocks()) or "none: this model has no attention"
            raise KeyError(f"no block {block!r} here; there are: {known}")
        return found

    def drawn(self, name: str) -> NDArray[np.float32]:
        """One map (H, T, S) without the padding that has no label.

        Raises ``ValueError`` where there are more labels than weights, where a weight would be
        cut away with the padding, or where a weight is not a number.
        """
        weights = self.maps[name]
        if not np.isfinite(weights).all():
            raise ValueError(f"{name}: weights that are not numbers; has the training diverged?")
        rows, columns = self.axes(name)
        height, width = len(rows) or weights.shape[1], len(columns) or weights.shape[2]
        kept = weights[:, :height, :width]
        if kept.shape[1:] != (height, width):
            raise ValueError(
                f"{name}: weights of shape {weights.shape} for {height} rows and {width} columns; "
                "give one label for each query and key"
            )
        lost = float(np.sum(weights[:, :height, width:]))
        if lost > 1e-6:
            raise ValueError(
                f"{name}: keys without a label carry a weight of {lost:.3g}; label every key that "
                "is not padding, and mask padding"
            )
        return kept

    def select(
        self, block: str = "cross_attention", layer: int = -1, head: int | None = None
    ) -> NDArray[np.float32]:
        """One map of shape (T, S): a layer of a block, one head or the mean of all.

        Raises ``KeyError`` naming the blocks that exist, ``IndexError`` naming the layers or heads.
        """
        names = self.layers(block)
        if not -len(names) <= layer < len(names):
            raise IndexError(f"layer {layer} of {block}: there are {len(names)}")
        heads = self.drawn(names[layer])
        if head is None:
            mean: NDArray[np.float32] = heads.mean(axis=0, dtype=np.float32)
            return mean
        if not 0 <= head < len(heads):
            raise IndexError(f"head {head} of {names[layer]}: there are {len(heads)}")
        chosen: NDArray[np.float32] = heads[head]
        return chosen
