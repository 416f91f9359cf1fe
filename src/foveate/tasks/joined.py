"""Translation by a language model: source and target in one sequence, ``<s> x </s> y </s>``.

loss   = −Σ_t log p(y_t | x, y_<t): the tokens of the source are read and not predicted
answer = search for what goes on after ``<s> x </s>``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.pad import pad
from foveate.data.plan import sorted_batches
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.decode.forced import token_log_probabilities
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Hypothesis, Search
from foveate.look.forced import ForcedPass
from foveate.models.encoder_decoder import Model
from foveate.models.language_model import LanguageSteps
from foveate.spec import Tokens
from foveate.tasks.base import Loss
from foveate.tasks.ensemble import steps_of
from foveate.tasks.labels import END, START, TokenizedText, joined_record, namer
from foveate.tasks.text_batch import Ids
from foveate.tasks.translation import Translation


@dataclass(frozen=True)
class JoinedBatch:
    """Sequences side by side: ``read`` (B, L), ``wanted`` (B, L) the tokens after them, ``real``
    the flat places after which a token of the target, or its end, comes.
    """

    read: Tensor
    wanted: Tensor
    real: Tensor

    def to(self, device: torch.device) -> JoinedBatch:
        """The same on a device."""
        return JoinedBatch(*(part.to(device) for part in (self.read, self.wanted, self.real)))


def join(sources: Sequence[Ids], targets: Sequence[Ids]) -> JoinedBatch:
    """Tensors of some pairs: padding stands on the right, where no place before can see it."""
    rows = [[BOS, *s, EOS, *t, EOS] for s, t in zip(sources, targets, strict=True)]
    ids = torch.from_numpy(pad(rows))
    places = torch.arange(ids.shape[1] - 1)[None]
    first = torch.tensor([[len(s) + 1] for s in sources])
    last = torch.tensor([[len(row) - 2] for row in rows])
    real = ((places >= first) & (places <= last)).flatten().nonzero().flatten()
    return JoinedBatch(ids[:, :-1], ids[:, 1:], real)


class JoinedTranslation(Translation):
    """Translation without an encoder: a language model reads the source and goes on with the target
    (as GPT-2 was asked to; Radford et al., 2019).
    """

    class Config(Translation.Config, kind="joined_translation"):
        """As of a translation; one vocabulary serves both sides."""

        @pydantic.field_validator("joint")
        @classmethod
        def _joint(cls, joint: bool) -> bool:
            if not joint:
                raise ValueError("one sequence has one vocabulary: leave joint = true")
            return joint

    config: Config
    own_tokens = False

    def lengths(self, split: str) -> NDArray[np.int32]:
        sides = super().lengths(split)  # each with its end
        return sides.sum(axis=1, keepdims=True).astype(np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> Any:
        examples = self._tokens(split)
        return join(*([ids[i] for i in indices] for ids in (examples.sources, examples.targets)))

    def build(self, model: Model.Config) -> nn.Module:
        built: nn.Module = model.build(Tokens(self.target_tokenizer.vocab_size))
        return built

    def loss(self, model: Any, batch: Any, objective: Any) -> Loss:
        batch = batch.to(model.output.weight.device)
        hidden = model.decode(batch.read).flatten(0, 1)[batch.real]
        loss: Loss = objective(hidden, model.output.weight, batch.wanted.flatten()[batch.real])
        return loss

    def _searched(
        self, model: Any, sources: Sequence[Ids], search: Search, batch_tokens: int
    ) -> Iterator[tuple[Ids, list[list[Hypothesis]]]]:
        """Sources of one length at a time: a prompt is not padded."""
        device = model.output.weight.device
        by_length: dict[int, list[int]] = {}
        for i, ids in enumerate(sources):
            by_length.setdefault(len(ids), []).append(i)
        for length, rows in sorted(by_length.items()):
            most = max(1, batch_tokens // (length + 2))
            for start in range(0, len(rows) if length else 0, most):
                some = rows[start : start + most]
                prompts = torch.tensor([[*sources[i], EOS] for i in some], device=device)
                begin = partial(LanguageSteps, prompts=prompts, never=(PAD, BOS))
                yield some, search(steps_of(model, begin), [length] * len(some), BOS, EOS, some)

    @torch.inference_mode()
    def force(self, model: Any, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in pairs]
        lengths = np.array([[len(s) + len(t) + 2] for s, t in pairs]).reshape(-1, 1)
        for indices in sorted_batches(lengths, 4096):
            some = [pairs[i] for i in indices]
            batch = join([s for s, _ in some], [t for _, t in some])
            batch = batch.to(model.output.weight.device)
            log_p = token_log_probabilities(model(batch.read), batch.wanted)
            for row, index in enumerate(indices.tolist()):
                source, target = pairs[index]
                first = len(source) + 1
                found[index] = log_p[row, first : first + len(target) + 1].tolist()
        return found

    def forced(
        self,
        model: Any,
        source: str,
        target: Ids | str | None = None,
        search: Search | None = None,
    ) -> ForcedPass:
        """One sequence of both sides: rows are what is produced, columns what was read before it.

        Scores are of the target's tokens alone.
        """
        if target is None:
            found = self.answer(model, [source], search or Greedy.Config().build())[0].found
            target = found[0].ids if found else []
        pieces = self.target_tokenizer
        read = pieces.encode(source)
        output = pieces.encode_ids([target])[0] if isinstance(target, str) else target
        batch = join([read.ids], [output]).to(model.output.weight.device)

        def run() -> Tensor:
            found = token_log_probabilities(model(batch.read), batch.wanted)[0]
            return found[batch.real]

        first = TokenizedText.of(pieces, source, read)
        second = TokenizedText.written(pieces, output)
        written = [*first.labels, END, *second.labels]
        return ForcedPass(
            model,
            run,
            partial(joined_record, source=first, target=second),
            [*second.labels, END],
            {"decoder": [START, *written]},
            first=len(read.ids) + 1,
            token=namer(pieces),
        )
