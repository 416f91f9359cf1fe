"""Translation by an encoder–decoder: text in, text out.

Files, tokenizers, loss and measures are those of all tasks from text to text (its base,
`foveate.tasks.text`); this module adds the model, and what it reads and predicts.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from foveate.data.batches import sorted_batches, source_batch
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import SearchRequest
from foveate.decode.search import token_log_probabilities
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.nn.spec import Tokens
from foveate.tasks.abilities import Aligns
from foveate.tasks.base import DecoderBatch
from foveate.tasks.engine import steps_of
from foveate.tasks.shortlist import Shortlist
from foveate.tasks.text import Ids, TextBatch, TextToText, collate


class Translation(TextToText[TextBatch], Aligns, kind="translation"):
    """Text in, text out: translation and other maps from one line to another."""

    own_outputs = True

    @cached_property
    def shortlist(self) -> Shortlist:
        """The run's shortlist, read once. Raises ``ConfigError`` if it has none."""
        return Shortlist.load(self.folder)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        examples = self.tokens(split)
        sides = [[ids[i] for i in indices] for ids in (examples.sources, examples.targets)]
        texts = examples.corpus.sources, examples.corpus.targets
        for side, tokenizer in enumerate(self.tokenizers if split == "train" else ()):
            if tokenizer.noisy:  # splits each text anew in every epoch
                seeds = [(noise, side, i) for i in indices]
                drawn = tokenizer.encode_noisy([texts[side][i] for i in indices], seeds)
                both = zip(drawn, sides[side], strict=True)
                sides[side] = [d if len(d) <= self.data.max_length else ids for d, ids in both]
        for n, opening in enumerate(self.target_tokenizer.begun(texts[0][i] for i in indices)):
            sides[1][n] = [*opening, *sides[1][n]]
        return collate(*sides)

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(*[Tokens(t.vocab_size) for t in self.tokenizers])

    def decoder_batch(self, model: EncoderDecoder, batch: TextBatch) -> DecoderBatch:
        """Return what the decoder reads and predicts, shifted by `collate`, and the memory."""
        batch = batch.to(model.output.weight.device)
        memory = model.encode(batch.source, batch.source_mask)
        return DecoderBatch(batch.inputs, batch.targets, batch.counted, memory)

    def decoding_batches(
        self, model: EncoderDecoder, sources: Sequence[Ids], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        device = model.output.weight.device
        budget = max(1, request.batch_tokens // request.search.width)
        shortlist = self.shortlist if request.shortens else None
        filled = np.array([i for i, ids in enumerate(sources) if ids], dtype=np.int64)  # not empty
        lengths = np.array([[len(sources[i]) + 1] for i in filled]).reshape(-1, 1)
        for batch in sorted_batches(lengths, budget):
            places = [int(filled[i]) for i in batch]
            source, source_mask = source_batch([sources[i] for i in places], device)
            tokens = None if shortlist is None else shortlist.tokens(source)
            steps = steps_of(model, partial(self._begin, source, source_mask, tokens))
            yield DecodingBatch(places, steps, [len(sources[i]) for i in places], tokens)

    def _begin(
        self, source: Tensor, mask: Tensor | None, tokens: Tensor | None, model: EncoderDecoder
    ) -> DecoderSteps:
        return DecoderSteps(model, model.encode(source, mask), tokens)

    @torch.inference_mode()
    def _log_p(self, model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        batch = collate([s for s, _ in pairs], [t for _, t in pairs])
        batch = batch.to(model.output.weight.device)
        logits = model(batch.source, batch.inputs, batch.source_mask)
        rows = zip(token_log_probabilities(logits, batch.targets), pairs, strict=True)
        return [row[: len(target) + 1].tolist() for row, (_, target) in rows]
