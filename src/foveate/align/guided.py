"""Guided alignment: one head of the decoder is trained to look where given links point.

    L = CE − w Σ_t Σ_s G_ts log α_ts   (Chen et al., 2016; Garg et al., 2019)

α is the guided head's map and G the links between pieces, each row divided by its links. All
other heads stay free; the model, its attention and the trainer are as ever: the weights come by
the head's tap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pydantic
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.align.ibm import AgreementAligner, Aligner
from foveate.data.catalogue import DataError
from foveate.data.text import TextData, at
from foveate.data.words import CUTS, pieces_of
from foveate.engine.links import Links, link_lines, read_pharaoh, write_pharaoh
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.models.encoder_decoder import EncoderDecoder, Model
from foveate.nn.attention import Attention
from foveate.run import PACKED
from foveate.tasks.attention_losses import attentions, watched
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.text import TextBatch
from foveate.tasks.translation import Translation

FILE = "guide.align"  # the links of the training pairs, in the run


@dataclass(frozen=True)
class GuidedBatch(TextBatch):
    """Pairs and what their guided head should see: weights G (N,) at the places (N, 3) of b, t, s.

    Batches that guide nothing, of validation, have no places.
    """

    places: Tensor
    guide: Tensor


class GuidedTranslation(Translation):
    """Translation with one head trained towards links between words."""

    class Config(Translation.Config, kind="guided_translation"):
        """``links`` are Pharaoh files, one for each corpus, with a line for each of its lines.

        Where unlinked words are trained towards the end of the source, the head's weight there
        means that a word has no counterpart.
        """

        links: str | tuple[str, ...] | None = None
        """Files of word links with {split}; absent: made by the aligner."""
        aligner: Aligner.Config = AgreementAligner.Config()  # what makes the links
        layer: int = -1  # decoder layer of the guided head; -1: the last
        head: int = Field(0, ge=0)  # number of the guided head
        weight: float = Field(0.05, gt=0)  # of the guidance in the loss
        rows: Literal["produced", "read"] = "produced"
        """Whether a row of attention belongs to the token produced, or to the one read."""
        unlinked: Literal["free", "end"] = "free"
        """What target words without links attend to: whatever helps, or the end of the source."""
        words: Literal["text", "blanks"] = "text"
        """What links count: words of the text, or what stands between blanks."""

        @pydantic.model_validator(mode="after")
        def _as_many(self) -> Self:
            if self.links is not None and len(self.files()) != len(self.parts()):
                raise UserError("give a file of links for each of the corpora, in their order")
            return self

        def files(self) -> tuple[str, ...]:
            """The files of links, in the order of the corpora."""
            return (self.links,) if isinstance(self.links, str) else self.links or ()

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        super().__init__(config, data)
        self.head = config.layer, config.head, config.rows

    def prepare(self, folder: Path, seed: int) -> None:
        super().prepare(folder, seed)
        made = self._links_of_files() if self.config.links is not None else self._links_of_aligner()
        replace_file(folder / FILE, "".join(write_pharaoh(links) + "\n" for links in made))
        self._guide = link_lines(folder / FILE)

    def restore(self, folder: Path) -> None:
        super().restore(folder)
        self._guide = link_lines(folder / FILE)

    def _links_of_files(self) -> Iterator[Links]:
        """The links of each pair of the training corpus, from the files."""
        corpus = self.corpus("train")
        lines, parts = np.asarray(corpus.lines), corpus.parts
        for number, name in enumerate(self.config.files()):
            path = at(name, "train", self.data.splits)
            own = lines if parts is None else lines[parts == number]
            lines_of_links = link_lines(path)
            if len(lines_of_links) < max(own, default=0):
                raise DataError(
                    f"{path} has {len(lines_of_links)} lines; give one for each training pair"
                )
            for line in own.tolist():
                yield read_pharaoh(lines_of_links[line - 1], f"{path}:{line}")

    def _links_of_aligner(self) -> list[Links]:
        """The links of each pair of the training corpus, by the aligner."""
        corpus, cut = self.corpus("train"), CUTS[self.config.words]
        pairs = [
            ([s[a:b] for a, b in cut(s)], [t[a:b] for a, b in cut(t)])
            for s, t in zip(corpus.sources, corpus.targets, strict=True)
        ]
        aligner = self.config.aligner.build()
        aligner.train(pairs)
        return aligner.align(pairs)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        plain = super().batch(split, indices, noise)
        if split != "train":
            return plain
        examples = self.tokens(split)
        corpus = examples.corpus
        cut, later = CUTS[self.config.words], self.config.rows == "read"
        texts = [corpus.sources[i] for i in indices], [corpus.targets[i] for i in indices]
        sides = [
            [pieces_of(e.offsets, cut(x)) for e, x in zip(t.encode_batch(side), side, strict=True)]
            for t, side in zip(self.tokenizers, texts, strict=True)
        ]
        entries = []
        for row, (index, (source, target)) in enumerate(
            zip(indices, zip(*sides, strict=True), strict=True)
        ):
            where = f"the links of pair {corpus.lines[index]}"
            links = read_pharaoh(self._guide[examples.row(index)], where)
            end = len(examples.sources[index]) if self.config.unlinked == "end" else None
            weights = piece_links(links, source, target, where, end)
            entries += [(row, t + later, s, g) for (t, s), g in weights.items()]
        places = torch.tensor([entry[:3] for entry in entries], dtype=torch.long).reshape(-1, 3)
        return GuidedBatch(
            **vars(plain), places=places, guide=torch.tensor([e[3] for e in entries])
        )

    def build(self, model: Model.Config) -> nn.Module:
        built = super().build(model)
        guided_attention(built, self.config)
        return built

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: CrossEntropy) -> Loss:
        if not isinstance(batch, GuidedBatch):
            return super().loss(model, batch, objective)
        with watched([guided_attention(model, self.config)]) as weights:
            loss = super().loss(model, batch, objective)
        steps = batch.inputs.shape[1]  # the last pass; those before chose what it reads
        alpha = torch.cat(weights[0], dim=2)[:, self.config.head, -steps:]  # (B, T, S)
        b, t, s = batch.places.to(alpha.device).unbind(dim=1)
        likely = alpha[b, t, s].float().clamp_min(1e-9).log()
        guide = -(batch.guide.to(alpha.device) * likely).sum()
        total = loss.total + self.config.weight * guide
        return Loss(total, loss.count, loss.logged | {"guide": guide.detach()})


PACKED[GuidedTranslation] = "translation"


def piece_links(
    links: Links,
    source: list[list[int]],
    target: list[list[int]],
    where: str = "links",
    end: int | None = None,
) -> dict[tuple[int, int], float]:
    """G between pieces (t, s) from links between words, whose pieces are given.

    Every piece of a word is linked with every piece of its partners; rows sum to 1. A target word
    without partners has no rows, or links with ``end``, the place of the source's end.
    Raises ``DataError`` for a link to a word that is not there.
    """
    partners: dict[int, set[int]] = {}
    for i, j in links:
        if i >= len(source) or j >= len(target):
            raise DataError(
                f"{where}: {i}-{j}, but there are {len(source)} and {len(target)} words; "
                'count words as task.words says ("text" or "blanks")'
            )
        for t in target[j]:
            partners.setdefault(t, set()).update(source[i])
    if end is not None:
        for t in (t for word in target for t in word):
            partners.setdefault(t, {end})
    return {(t, s): 1 / len(partners[t]) for t in sorted(partners) for s in sorted(partners[t])}


def guided_attention(model: nn.Module, config: GuidedTranslation.Config) -> Attention:
    """The attention whose head is guided. Raises `UserError` naming what exists."""
    layers = [a for a in attentions(model, "cross_attention") if isinstance(a, Attention)]
    if not -len(layers) <= config.layer < len(layers):
        raise UserError(f"task.layer = {config.layer}: {len(layers)} layers attend to the source")
    if config.head >= layers[config.layer].num_heads:
        heads = layers[config.layer].num_heads
        raise UserError(f"task.head = {config.head}: the layer has {heads} heads, counted from 0")
    return layers[config.layer]
