"""Captioning: a picture in, a sentence out.

loss   = −Σ_t log p(y_t | y_<t, x), and what `foveate.tasks.attention_losses` adds
answer = search for the y of the highest score; figures: loss, BLEU-4 against all references
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from foveate.data.corpus import learn_tokenizer
from foveate.data.image import Album
from foveate.data.tokenizer import PAD, UNK, Tokenizer, WordTokenizer
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import Engine, Picture, SearchRequest
from foveate.decode.search import Search, token_log_probabilities
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.nn.normalizers import choices
from foveate.nn.spec import Tokens
from foveate.tasks import metrics
from foveate.tasks.abilities import Generates
from foveate.tasks.attention_losses import (
    add_choices,
    advantage,
    attentions,
    doubly_stochastic,
    drawn_by_position,
    watched,
)
from foveate.tasks.base import (
    DecoderBatch,
    Loss,
    Measures,
    ValidationSample,
    by_split,
    spread,
)
from foveate.tasks.engine import TorchEngine
from foveate.tasks.image_classification import PictureTask
from foveate.tasks.metrics import BleuTokenizer
from foveate.tasks.objectives import CrossEntropy, loss_at, outputs_of
from foveate.tasks.teacher_forcing import tokens_of
from foveate.tasks.text import OneTokenizer, TextBatch, decoder_sides, mean_nll

SIDE = 8  # cells of the thumbnails by which pictures are compared
TOKENIZER = "caption.tokenizer.json"
ROWS = 32  # pictures that are described together
Ids = list[int]


def nearest_captions(known: Album, pictures: Album) -> list[str]:
    """The first caption of the most similar known picture: nearest thumbnail, mean removed."""
    known_cells, cells = _thumbnails(known.pixels), _thumbnails(pictures.pixels)
    distances = (known_cells**2).sum(axis=1) - 2 * cells @ known_cells.T  # less |cells|², per row
    return [known.texts[int(row)][0] for row in distances.argmin(axis=1)]


def _thumbnails(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(N, C, H, W) to (N, C·8·8): means of cells, of equal length without their mean."""
    count, channels, height, width = pixels.shape
    rows, columns = (np.linspace(0, n, SIDE + 1).astype(int)[:-1] for n in (height, width))
    sums = np.add.reduceat(np.add.reduceat(pixels.astype(np.float32), rows, 2), columns, 3)
    cells = sums.reshape(count, channels * SIDE * SIDE)
    cells -= cells.mean(axis=1, keepdims=True)
    return cells / np.maximum(np.linalg.norm(cells, axis=1, keepdims=True), 1e-6)


class Captioning(OneTokenizer, PictureTask[TextBatch], Generates[Picture]):
    """A sentence for each picture; training sees each of its captions once an epoch."""

    class Config(PictureTask.Config, kind="captioning"):
        """``doubly_stochastic`` is λ; 0 leaves attention free to look where it wants.

        ``bleu_tokenizer`` is as of a translation.
        """

        tokenizer: Tokenizer.Config = WordTokenizer.Config(lowercase=True, min_frequency=3)
        """Of the captions."""
        doubly_stochastic: float = Field(0.0, ge=0)
        """Weight of the penalty that spreads attention over the picture (Xu et al., 2015)."""
        bleu_tokenizer: BleuTokenizer | None = None  # by the references' script where absent

    figures = ("loss", "bleu")
    gives = "text"
    own_outputs = True
    config: Config

    def prepare(self, folder: Path, seed: int) -> None:
        self.measure_pixels(folder)
        captions = [text for texts in self.album("train").texts for text in texts]
        self.tokenizer = learn_tokenizer(self.config.tokenizer, lambda: captions)
        self.tokenizer.save(folder / TOKENIZER)

    def restore(self, folder: Path) -> None:
        self.restore_pixels(folder)
        self.tokenizer = Tokenizer.load(folder / TOKENIZER)

    @by_split
    def pairs(self, split: str) -> list[tuple[int, Ids]]:
        """Every caption of a split with the number of its picture."""
        texts = self.album(split).texts
        rows = [row for row, captions in enumerate(texts) for _ in captions]
        ids = self.tokenizer.encode_ids([text for captions in texts for text in captions])
        return list(zip(rows, ids, strict=True))

    def lengths(self, split: str) -> NDArray[np.int32]:
        """Tokens of each caption, its end included; a picture counts nothing."""
        return np.array([[len(ids) + 1] for _, ids in self.pairs(split)], dtype=np.int32)

    def target_counts(self, split: str) -> NDArray[np.int32]:
        return self.lengths(split)[:, 0]

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        chosen = [self.pairs(split)[i] for i in indices]
        pixels = self.pixels(split, [row for row, _ in chosen], noise)
        return TextBatch(pixels, None, *decoder_sides([ids for _, ids in chosen]))

    def describe_data(self) -> list[str]:
        captions = len(self.pairs("train"))
        unknown = sum(ids.count(UNK) for _, ids in self.pairs("train"))
        return [
            *self.describe_pixels(),
            f"{captions:,} captions of a vocabulary of {self.tokenizer.vocab_size:,} "
            f"{self.config.tokenizer.kind} pieces; {unknown:,} unknown",
        ]

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(self.source, Tokens(self.tokenizer.vocab_size))

    def decoder_batch(self, model: EncoderDecoder, batch: TextBatch) -> DecoderBatch:
        batch = batch.to(model.output.weight.device)
        return DecoderBatch(batch.inputs, batch.targets, batch.counted, model.encode(batch.source))

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: CrossEntropy) -> Loss:
        sides = self.decoder_batch(model, batch)
        memory, target_mask = sides.memory, sides.targets != PAD
        read = objective.read(lambda: tokens_of(model, memory), sides.inputs)
        with choices(model) as made, watched(attentions(model, "cross_attention")) as weights:
            outputs = outputs_of(model, read, memory)
        loss = loss_at(model, outputs, sides, objective)
        if self.config.doubly_stochastic and any(weights):
            cost = doubly_stochastic([calls for calls in weights if calls], target_mask)
            total = loss.total + self.config.doubly_stochastic * cost
            loss = Loss(total, loss.count, loss.logged | {"places": cost.detach()})
        if not made:
            return loss
        with torch.no_grad():
            drawn_log_p, log_p = (
                token_log_probabilities(
                    model.logits(each) if model.scores_are_product else each, sides.targets
                )
                for each in (outputs, outputs_of(model, read, memory))
            )
            reward = advantage(drawn_log_p, log_p, target_mask)
        return add_choices(loss, drawn_by_position(made, target_mask.shape[1]), reward, objective)

    @torch.inference_mode()
    def measure(
        self, model: EncoderDecoder, split: str, search: Search, samples: int = 3
    ) -> Measures:
        nll, album = mean_nll(self, model, split, self.lengths(split), 1024), self.album(split)
        outputs = self.described(TorchEngine(self, model), split, SearchRequest(search))
        return Measures(
            {"loss": nll, "bleu": self.bleu(outputs, album)[0]},
            [
                ValidationSample(album.names[i], album.texts[i][0], outputs[i])
                for i in spread(len(album), samples)
            ],
        )

    def bleu(self, outputs: Sequence[str], album: Album) -> tuple[float, str]:
        """BLEU-4, in lower case, against all captions of each picture."""
        return metrics.bleu(outputs, album.texts, self.config.bleu_tokenizer, lowercase=True)

    def encode(self, inputs: Sequence[Picture]) -> list[NDArray[np.uint8]]:
        return [self.shown(source)[0] for source in inputs]

    def decoding_batches(
        self, model: EncoderDecoder, sources: Sequence[NDArray[np.uint8]], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        for start in range(0, len(sources), ROWS):
            pictures = sources[start : start + ROWS]
            memory = model.encode(self.tensor(pictures).to(model.output.weight.device))
            steps = DecoderSteps(model, memory, never=(UNK,))
            yield DecodingBatch(range(start, start + len(pictures)), steps, [0] * len(pictures))

    def described(self, engine: Engine, split: str, request: SearchRequest) -> list[str]:
        """The caption of each picture of a split."""
        pictures = [self.seen(split, row) for row in range(len(self.album(split)))]
        return [self.tokenizer.decode(best.ids) for best, *_ in engine.outputs(pictures, request)]
