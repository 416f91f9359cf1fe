"""Translation by a language model: source and target in one sequence, ``<s> x </s> y </s>``.

loss   = −Σ_t log p(y_t | x, y_<t): the tokens of the source are read and not predicted
answer = search for what goes on after ``<s> x </s>``
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from torch import nn

from foveate.data.batches import pad
from foveate.data.text import portions
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import SearchRequest
from foveate.decode.search import token_log_probabilities
from foveate.errors import UserError
from foveate.models.encoder_decoder import Model
from foveate.models.language_model import LanguageModel, LanguageSteps
from foveate.nn.spec import Tokens
from foveate.tasks.base import DecoderBatch
from foveate.tasks.engine import steps_of
from foveate.tasks.text import Ids, TextToText, by_length


def join(sources: Sequence[Ids], targets: Sequence[Ids]) -> DecoderBatch:
    """Tensors of some pairs, whose ``prompt`` is the source with its start and end.

    Padding stands on the right, where no place before can see it.
    """
    rows = [[BOS, *s, EOS, *t, EOS] for s, t in zip(sources, targets, strict=True)]
    ids = torch.from_numpy(pad(rows))
    places = torch.arange(ids.shape[1] - 1)[None]
    first = torch.tensor([[len(s) + 1] for s in sources])
    last = torch.tensor([[len(row) - 2] for row in rows])
    real = ((places >= first) & (places <= last)).flatten().nonzero().flatten()
    return DecoderBatch(ids[:, :-1], ids[:, 1:], real, prompt=first + 1)


class PrefixTranslation(TextToText[DecoderBatch]):
    """Translation without an encoder: a language model reads the source and goes on with the target
    (as GPT-2 was asked to; Radford et al., 2019).
    """

    class Config(TextToText.Config, kind="prefix_translation"):
        """The pairs and their tokenizer; one vocabulary serves both sides."""

        @pydantic.field_validator("joint")
        @classmethod
        def _joint(cls, joint: bool) -> bool:
            if not joint:
                raise UserError("one sequence has one vocabulary: leave joint = true")
            return joint

    own_outputs = True

    def sizes(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> NDArray[np.int32]:
        return super().sizes(sources, targets).sum(axis=1, keepdims=True).astype(np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> DecoderBatch:
        examples = self.tokens(split)
        return join(*([ids[i] for i in indices] for ids in (examples.sources, examples.targets)))

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(Tokens(self.target_tokenizer.vocab_size))

    def decoder_batch(self, model: LanguageModel, batch: DecoderBatch) -> DecoderBatch:
        return batch.to(model.output.weight.device)

    def decoding_batches(
        self, model: LanguageModel, sources: Sequence[Ids], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        """Sources of one length at a time: a prompt is not padded."""
        device = model.output.weight.device
        budget = max(1, request.batch_tokens // request.search.width)
        for length, rows in sorted(by_length(sources).items()):
            for some in portions(rows, max(1, budget // (length + 2))) if length else ():
                prompts = torch.tensor([[*sources[i], EOS] for i in some], device=device)
                begin = partial(LanguageSteps, prompts=prompts, never=(PAD, BOS))
                yield DecodingBatch(some, steps_of(model, begin), [length] * len(some))

    @torch.inference_mode()
    def _log_p(self, model: LanguageModel, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        batch = join([s for s, _ in pairs], [t for _, t in pairs])
        batch = batch.to(model.output.weight.device)
        log_p = token_log_probabilities(model(batch.inputs), batch.targets)
        spans = ((len(s) + 1, len(s) + len(t) + 2) for s, t in pairs)
        return [row[a:b].tolist() for row, (a, b) in zip(log_p, spans, strict=True)]
