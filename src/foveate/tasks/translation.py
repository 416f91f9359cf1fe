"""Translation by an encoder–decoder: text in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from foveate.align.aer import Head, Rows
from foveate.data.batches import sorted_batches, source_batch
from foveate.data.tokenizer import EOS, bare
from foveate.data.words import behind_tag, between_words, split_words
from foveate.decode.search import token_log_probabilities
from foveate.engine.base import SearchRequest
from foveate.engine.pytorch import DecodingBatch, steps_of
from foveate.inspect.hooks import ForcedPass, capture
from foveate.inspect.records import END, START, TokenizedText, attention_record
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.spec import Tokens
from foveate.tasks.base import Aligns, Cut, DecoderBatch, WordMaps
from foveate.tasks.shortlist import Shortlist
from foveate.tasks.text import Ids, TextBatch, collate, namer
from foveate.tasks.text_to_text import TextToText

AT_ONCE = 32  # pairs in one forced pass of `Translation.word_maps`


class Translation(TextToText[TextBatch], Aligns):
    """Text in, text out: translation and other maps from one line to another."""

    class Config(TextToText.Config, kind="translation"):
        """Where the pairs lie and how they become tokens."""

    config: Config
    packs_as = "translation"
    own_outputs = True
    never: ClassVar[tuple[int, ...]] = ()  # ids that no output holds
    _shortlist: Shortlist | None = None

    @property
    def head(self) -> Head:
        """Where word links are read unless the run has saved another choice."""
        return Head()

    def shortlist(self) -> Shortlist:
        """That of the run, read once. Raises ``ConfigError`` where it has none."""
        if self._shortlist is None:
            self._shortlist = Shortlist.load(self.folder)
        return self._shortlist

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        examples = self.tokens(split)
        corpus = examples.corpus
        sides = [[ids[i] for i in indices] for ids in (examples.sources, examples.targets)]
        texts = corpus.sources, corpus.targets
        for side, tokenizer in enumerate(self.tokenizers if split == "train" else ()):
            if tokenizer.noisy:
                drawn = tokenizer.encode_noisy(
                    [texts[side][i] for i in indices], [(noise, side, i) for i in indices]
                )
                both = zip(drawn, sides[side], strict=True)
                sides[side] = [d if len(d) <= self.data.max_length else ids for d, ids in both]
        return collate(*sides)

    def build(self, model: Model.Config) -> nn.Module:
        sizes = [Tokens(t.vocab_size) for t in self.tokenizers]
        return model.build(*sizes)

    def decoder_batch(self, model: EncoderDecoder, batch: TextBatch) -> DecoderBatch:
        batch = batch.to(model.output.weight.device)
        memory = model.encode(batch.source, batch.keys)
        return DecoderBatch(batch.read, batch.target, batch.real, memory)

    def decoding_batches(
        self, model: EncoderDecoder, sources: Sequence[Ids], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        device = model.output.weight.device
        budget = max(1, request.batch_tokens // request.search.width)
        shortlist = self.shortlist() if request.shortens else None
        filled = np.array([i for i, ids in enumerate(sources) if ids], dtype=np.int64)
        lengths = np.array([[len(sources[i]) + 1] for i in filled]).reshape(-1, 1)
        for batch in sorted_batches(lengths, budget):
            places = [int(filled[i]) for i in batch]
            ids, keys = source_batch([sources[i] for i in places], device)
            tokens = None if shortlist is None else shortlist.tokens(ids)
            steps = steps_of(model, partial(self._begun, source=ids, keys=keys, tokens=tokens))
            yield DecodingBatch(places, steps, [len(sources[i]) for i in places], tokens)

    @torch.inference_mode()
    def _log_p(self, model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        batch = collate([s for s, _ in pairs], [t for _, t in pairs])
        batch = batch.to(model.output.weight.device)
        log_p = token_log_probabilities(model(batch.source, batch.read, batch.keys), batch.target)
        rows = zip(log_p, pairs, strict=True)
        return [row[: len(target) + 1].tolist() for row, (_, target) in rows]

    def word_maps(
        self,
        model: EncoderDecoder,
        pairs: Sequence[tuple[str, str | Ids]],
        rows: Rows = "produced",
        cut: Cut = split_words,
    ) -> Iterator[WordMaps]:
        """For each pair the maps (H, T, S + 1) by layer: T target words, S source words, the end.

        One forced pass over (source, target). Step t reads y_{t−1} and produces y_t: a word's row
        is the mean of its pieces' steps, or of the steps that follow them (``rows = "read"``).
        ``cut`` says where the words of a text stand; the tag of a language is none. A target may be
        given as ids.
        """
        later = rows == "read"
        for start in range(0, len(pairs), AT_ONCE):
            chosen = pairs[start : start + AT_ONCE]
            lines = self.sources([line for line, _ in chosen])
            chosen = [(source, target) for source, (_, target) in zip(lines, chosen, strict=True)]
            sides = [self.tokenizers_of(source) for source, _ in chosen]
            sources = [
                reads.encode(source) for (source, _), (reads, _) in zip(chosen, sides, strict=True)
            ]
            targets = [
                writes.written(target)
                for (_, target), (_, writes) in zip(chosen, sides, strict=True)
            ]
            batch = collate([s.ids for s in sources], [encoded.ids for _, encoded in targets])
            batch = batch.to(model.output.weight.device)
            with (
                torch.inference_mode(),
                capture(model, lambda name: name.endswith("cross_attention")) as weights,
            ):
                model.decode(batch.read, model.encode(batch.source, batch.keys))
            maps = {name: w.cpu().numpy() for name, w in weights.items()}
            for row, (read, (target, encoded)) in enumerate(zip(sources, targets, strict=True)):
                source = chosen[row][0]
                plain = bare(source, self.source_tokenizer.tags)
                reading = behind_tag(source, plain, read.offsets, cut)
                own = {name: w[row] for name, w in maps.items()}
                yield between_words(own, reading, (encoded.offsets, cut(target)), later)

    def forced_pass(self, model: EncoderDecoder, source: str, target: Ids | str) -> ForcedPass:
        """A target being produced; without one, the search's best output."""
        source = self.addressed([source])[0]
        reads, writes = self.tokenizers_of(source)
        output = writes.encode_ids([target])[0] if isinstance(target, str) else target
        tokens = reads.encode_ids([source])[0]
        batch = collate([tokens], [output]).to(model.output.weight.device)
        read, written = TokenizedText.read(reads, source), TokenizedText.written(writes, output)

        def run() -> Tensor:
            memory = model.encode(batch.source, batch.keys)  # which several models refuse
            logits = model.predict(batch.read, memory)
            return token_log_probabilities(logits, batch.target)[0]

        return ForcedPass(
            model,
            run,
            partial(attention_record, source=read, target=written),
            [*written.labels, END],
            {"encoder": [*read.labels, END], "decoder": [START, *written.labels]},
            token=namer(writes),
            target=[*output, EOS],
        )

    def _begun(
        self, model: EncoderDecoder, source: Tensor, keys: Tensor | None, tokens: Tensor | None
    ) -> DecoderSteps:
        """The steps of a search over sources."""
        return DecoderSteps(model, model.encode(source, keys), tokens, self.never)
