"""Masked language modelling: some tokens are hidden, and the model predicts them (BERT).

loss = −Σ_{i hidden} log p(x_i | x with the chosen places hidden)

Of each text 15 % of the tokens are chosen; of the chosen 80 % are hidden, 10 % become another
token and 10 % stay as they are, so that no place can be trusted (Devlin et al., 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.data.batches import sorted_batches
from foveate.data.tokenizer import SPECIALS, UNK
from foveate.decode.search import Search
from foveate.models.encoder_decoder import Model
from foveate.models.language_model import MaskedLanguageModel
from foveate.nn.spec import Tokens
from foveate.tasks.base import Loss, Measures, TensorBatch, ValidationSample, of_nll, spread
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.single_text import EXTRA, SingleText, wrapped
from foveate.tasks.text import Ids, sizes_of

MASKS = ("<mask>", "[MASK]")  # pieces that stand for a hidden token, where a vocabulary has one


@dataclass(frozen=True)
class MaskedBatch(TensorBatch):
    """``source`` (B, S) texts with hidden tokens, ``source_mask`` true at real tokens or None where
    all are, ``places`` (N,) the chosen places in B·S, ``targets`` (N,) what stood there.
    """

    source: Tensor
    source_mask: Tensor | None
    places: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Guesses:
    """The sum of −log p at the chosen places, the ids guessed there by text, how many are right."""

    total: float
    right: int
    guessed: list[list[int]]
    places: list[NDArray[np.int64]]


class MaskedLanguage(SingleText[MaskedBatch]):
    """Text in, guesses of its hidden tokens out."""

    class Config(SingleText.Config, kind="masked_language"):
        """Shares of the tokens that are chosen, and of the chosen that are hidden or replaced.

        A hidden token becomes the piece ``<mask>`` or ``[MASK]`` if the vocabulary has one, else
        ``<unk>``.
        """

        choose: float = Field(0.15, gt=0, le=1)  # share of tokens that are to be guessed
        hide: float = Field(0.8, ge=0, le=1)  # share of these that become the mask
        replace: float = Field(0.1, ge=0, le=1)  # share of these that become a random token

    figures = ("loss", "perplexity", "accuracy")
    gives = "words"
    config: Config

    @property
    def mask_id(self) -> int:
        """The id of a hidden token."""
        pieces = self.tokenizer.pieces
        return next((pieces.index(name) for name in MASKS if name in pieces), UNK)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> MaskedBatch:
        _, ids = self.tokens(split)
        return self.collate([ids[i] for i in indices], [(noise, i) for i in indices])

    def collate(self, texts: Sequence[Ids], seeds: Sequence[tuple[int, int]]) -> MaskedBatch:
        """Tensors of some texts; what is hidden in a text is a function of its seed."""
        masked = [self.hidden(ids, seed) for ids, seed in zip(texts, seeds, strict=True)]
        source, source_mask = wrapped([ids for ids, _ in masked])
        places = [row * source.shape[1] + chosen + 1 for row, (_, chosen) in enumerate(masked)]
        target = [ids[i] for ids, (_, chosen) in zip(texts, masked, strict=True) for i in chosen]
        flat = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        return MaskedBatch(
            source, source_mask, torch.from_numpy(flat), torch.tensor(target, dtype=torch.int64)
        )

    def hidden(self, ids: Ids, seed: tuple[int, int]) -> tuple[Ids, NDArray[np.int64]]:
        """The text with some tokens hidden or replaced, and the places chosen, ascending.

        At least one place is chosen where there is one.
        """
        config, random = self.config, np.random.default_rng(seed)
        count = min(len(ids), max(1, round(config.choose * len(ids))))
        chosen = np.sort(random.permutation(len(ids))[:count])
        fate = random.random(count)
        others = random.integers(len(SPECIALS), self.tokenizer.vocab_size, count)
        changed = list(ids)
        for place, chance, other in zip(chosen.tolist(), fate, others.tolist(), strict=True):
            if chance < config.hide:
                changed[place] = self.mask_id
            elif chance < config.hide + config.replace:
                changed[place] = other
        return changed, chosen

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(Tokens(self.tokenizer.vocab_size))

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch, objective: CrossEntropy) -> Loss:
        return self._judged(model, batch, objective)[0]

    def _judged(
        self, model: MaskedLanguageModel, batch: MaskedBatch, objective: CrossEntropy
    ) -> tuple[Loss, Callable[[], Tensor], Tensor]:
        """The loss at the chosen positions, what gives their scores (N, V), and their tokens."""
        batch = batch.to(model.output.weight.device)
        if not model.scores_are_product:
            scores = model(batch.source, batch.source_mask).flatten(0, 1)[batch.places]
            return objective.of_scores(scores, batch.targets), lambda: scores, batch.targets
        memory = model.encode(batch.source, batch.source_mask)
        values = memory.values.flatten(0, 1)  # (B, S, D) -> (B·S, D)
        hidden, output = model.features(values[batch.places]), model.output
        loss = objective(hidden, output.weight, batch.targets, output.bias)
        return loss, lambda: output(hidden), batch.targets

    def measure(
        self, model: MaskedLanguageModel, split: str, search: Search, samples: int = 3
    ) -> Measures:
        """The figures with the same places hidden at every validation."""
        corpus, ids = self.tokens(split)
        ids = [text[: self.data.max_length] for text in ids]
        guesses = self.guess(model, ids)
        shown = []
        for i in spread(len(corpus), samples):
            question = self.tokenizer.decode(self.hidden(ids[i], (0, i))[0])
            answer = self.filled(ids[i], guesses, i)
            shown.append(ValidationSample(question, corpus.sources[i], answer))
        return Measures(figures_of(guesses), shown)

    @torch.inference_mode()
    def guess(
        self, model: MaskedLanguageModel, texts: Sequence[Ids], batch_tokens: int = 4096
    ) -> Guesses:
        """The most probable token at each place that is hidden in each text by its number."""
        plain = CrossEntropy.Config(label_smoothing=0.0).build()
        total, right = 0.0, 0
        guessed: list[list[int]] = [[] for _ in texts]
        places = [self.hidden(ids, (0, i))[1] for i, ids in enumerate(texts)]
        sizes = sizes_of(texts)
        filled = np.flatnonzero(sizes)  # in the others there is nothing to hide
        for rows in sorted_batches(sizes[filled][:, None] + EXTRA, batch_tokens):
            indices = filled[rows].tolist()
            batch = self.collate([texts[i] for i in indices], [(0, i) for i in indices])
            loss, scores, target = self._judged(model, batch, plain)
            total, best = total + float(loss.total), scores().argmax(dim=-1)
            right += int((best == target).sum())
            parts = best.split([len(places[i]) for i in indices])
            for i, part in zip(indices, parts, strict=True):
                guessed[i] = part.tolist()
        return Guesses(total, right, guessed, places)

    def filled(self, ids: Ids, guesses: Guesses, index: int) -> str:
        """The text with the guesses in the hidden places."""
        filled = list(ids)
        for place, token in zip(guesses.places[index], guesses.guessed[index], strict=True):
            filled[place] = token
        return self.tokenizer.decode(filled)


def figures_of(guesses: Guesses) -> dict[str, float]:
    """Loss and perplexity of a hidden token, and the per cent that are guessed right."""
    count = max(1, sum(map(len, guesses.places)))
    return of_nll(guesses.total / count) | {"accuracy": 100 * guesses.right / count}
