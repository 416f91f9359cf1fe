"""Translation: the only file that knows both text and model.

loss   = −Σ_t log p(y_t | y_<t, x), y the target with its end, x the source with its end
answer = search for the y of the highest score
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate.align.heads import Head
from foveate.data.plan import sorted_batches
from foveate.data.text import Corpus
from foveate.data.tokenizer import BOS, EOS
from foveate.decode.forced import token_log_probabilities
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Hypothesis, Search
from foveate.look.forced import ForcedPass
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.models.native_encoder import native_memory
from foveate.spec import Tokens
from foveate.tasks.base import CUT, Evaluation, Loss, Measures, Sample
from foveate.tasks.ensemble import steps_of
from foveate.tasks.labels import END, START, TokenizedText, attention_record, namer
from foveate.tasks.metrics import SLOW, figures_of
from foveate.tasks.objective import CrossEntropy
from foveate.tasks.pairs import PairTask
from foveate.tasks.shortlist import Shortlist, in_full
from foveate.tasks.text_batch import Ids, TextBatch, collate, lengths_of, source_batch
from foveate.tasks.word_maps import WordMaps, word_maps


@dataclass(frozen=True)
class Answer:
    """What a search found for one line, best first; ``cut`` counts source tokens left out."""

    found: list[Hypothesis]
    texts: list[str]
    cut: int


class Translation(PairTask):
    """Text in, text out: translation and whatever else maps one line to another."""

    class Config(PairTask.Config, kind="translation"):
        """Where the pairs lie and how they become tokens."""

    config: Config
    own_tokens = True
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

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        sizes = [Tokens(t.vocab_size) for t in self._both()]
        built: nn.Module = model.build(*sizes)
        return built

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: CrossEntropy) -> Loss:
        batch = batch.to(model.output.weight.device)
        memory = model.encode(batch.source, batch.keys)
        read = objective.teacher_forcing.read(model, batch.read, memory, objective.step)
        hidden = model.decode(read, memory).flatten(0, 1)  # (B, T, D) -> (B·T, D)
        wanted = batch.wanted.flatten()
        if batch.real is not None:
            hidden, wanted = hidden[batch.real], wanted[batch.real]
        return objective(hidden, model.output.weight, wanted, model.output.bias)

    @torch.inference_mode()
    def measure(
        self,
        model: EncoderDecoder,
        split: str,
        search: Search,
        samples: int = 3,
    ) -> Measures:
        examples = self._tokens(split)
        corpus, sources, targets = examples.corpus, examples.sources, examples.targets
        plain = CrossEntropy.Config(label_smoothing=0.0).build()
        total, count = 0.0, 0
        for indices in sorted_batches(lengths_of(sources, targets) + 1, 4096):
            loss = self.loss(model, self.batch(split, indices.tolist()), plain)
            total, count = total + float(loss.total), count + loss.count
        outputs = [
            self.target_tokenizer.decode(found[0].ids) if found else ""
            for found in self.search(model, sources, search)
        ]
        names = [name for name in self.config.metrics if name not in SLOW]
        figures, _ = figures_of(outputs, corpus.references, names)
        nll = total / max(count, 1)
        step = max(1, len(outputs) // max(1, samples))
        shown = range(0, len(outputs), step)[:samples]
        return Measures(
            {"loss": nll, "perplexity": float(np.exp(min(nll, 700.0))), **figures},
            [Sample(corpus.sources[i], corpus.targets[i], outputs[i]) for i in shown],
        )

    # ---- answers

    def evaluate(
        self, model: EncoderDecoder, examples: Corpus, search: Search, batch_tokens: int = 8192
    ) -> Evaluation:
        answers = self.answer(model, examples.sources, search, batch_tokens)
        outputs = [answer.texts[0] if answer.texts else "" for answer in answers]
        figures, signatures = figures_of(outputs, examples.references, self.config.metrics)
        for tag in self.source_tokenizer.tags:
            chosen = [i for i, text in enumerate(examples.sources) if text.startswith(tag)]
            right = [examples.references[i] for i in chosen]
            part, _ = figures_of([outputs[i] for i in chosen], right, self.config.metrics)
            figures |= {f"{name} {tag}": value for name, value in part.items()}
        cut = [line for line, answer in zip(examples.lines, answers, strict=True) if answer.cut]
        return Evaluation(figures, signatures, outputs, {CUT: cut} if cut else {})

    def answer(
        self,
        model: EncoderDecoder,
        lines: Sequence[str],
        search: Search,
        batch_tokens: int = 8192,
        progress: Callable[[int], None] | None = None,
    ) -> list[Answer]:
        """The outputs for each line, in their order; none for an empty line.

        ``batch_tokens`` bounds source tokens × hypotheses; lines longer than ``data.max_length``
        tokens are cut, and their answers say by how many.
        """
        limit = self.data.max_length
        encoded = self.source_tokenizer.encode_ids(self.addressed(lines))
        ids = [i if line.strip() else [] for i, line in zip(encoded, lines, strict=True)]
        budget = max(1, batch_tokens // search.width)
        found = self.search(model, [i[:limit] for i in ids], search, budget, progress)
        decode = self.target_tokenizer.decode
        return [
            Answer(hypotheses, [decode(h.ids) for h in hypotheses], max(0, len(i) - limit))
            for i, hypotheses in zip(ids, found, strict=True)
        ]

    @torch.inference_mode()
    def search(
        self,
        model: EncoderDecoder,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int = 4096,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs for each source, in the order of the sources; none for an empty one."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for indices, hypotheses in self._searched(model, sources, search, batch_tokens):
            for index, outputs in zip(indices, hypotheses, strict=True):
                found[index] = search.decide(outputs, self.target_tokenizer.decode)
            if progress is not None:
                progress(len(indices))
        return found

    def _searched(
        self, model: EncoderDecoder, sources: Sequence[Ids], search: Search, batch_tokens: int
    ) -> Iterator[tuple[Ids, list[list[Hypothesis]]]]:
        device = model.output.weight.device
        shortlist = self.shortlist() if search.shortens() else None
        filled = np.array([i for i, ids in enumerate(sources) if ids], dtype=np.int64)
        lengths = np.array([[len(sources[i]) + 1] for i in filled]).reshape(-1, 1)
        for batch in sorted_batches(lengths, batch_tokens):
            indices = [int(filled[i]) for i in batch]
            ids, keys = source_batch([sources[i] for i in indices])
            read = ids.to(device), None if keys is None else keys.to(device)
            tokens = None if shortlist is None else shortlist.tokens(read[0])
            steps = steps_of(model, partial(_begun, source=read[0], keys=read[1], tokens=tokens))
            sizes = [len(sources[i]) for i in indices]
            found = search(steps, sizes, BOS, EOS, indices)
            yield indices, found if tokens is None else in_full(found, tokens)

    @torch.inference_mode()
    def force(self, model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """Log p of each token of each given target, its end included."""
        found: list[list[float]] = [[] for _ in pairs]
        lengths = lengths_of([s for s, _ in pairs], [t for _, t in pairs]) + 1
        for indices in sorted_batches(lengths, 4096):
            batch = collate([pairs[i][0] for i in indices], [pairs[i][1] for i in indices])
            batch = batch.to(model.output.weight.device)
            logits = model(batch.source, batch.read, batch.keys)
            log_p = token_log_probabilities(logits, batch.wanted)
            for row, index in enumerate(indices.tolist()):
                found[index] = log_p[row, : len(pairs[index][1]) + 1].tolist()
        return found

    def word_maps(self, model: EncoderDecoder, pairs: Any, **choices: Any) -> Iterator[WordMaps]:
        """Cross-attention between the words of pairs; see `foveate.tasks.word_maps`."""
        return word_maps(model, self._both(), pairs, **choices)

    def forced(
        self,
        model: EncoderDecoder,
        source: str,
        target: Ids | str | None = None,
        search: Search | None = None,
    ) -> ForcedPass:
        """A target being produced; without one, the search's best output."""
        if target is None:
            found = self.answer(model, [source], search or Greedy.Config().build())[0].found
            target = found[0].ids if found else []
        tokens = self.source_tokenizer.encode_ids(self.addressed([source]))[0]
        output = (
            self.target_tokenizer.encode_ids([target])[0] if isinstance(target, str) else target
        )
        batch = collate([tokens], [output]).to(model.output.weight.device)
        read = TokenizedText.read(self.source_tokenizer, source)
        written = TokenizedText.written(self.target_tokenizer, output)

        def run() -> Tensor:
            memory = model.encode(batch.source, batch.keys)
            logits = model.logits(model.decode(batch.read, memory))
            return token_log_probabilities(logits, batch.wanted)[0]

        return ForcedPass(
            model,
            run,
            partial(attention_record, source=read, target=written),
            [*written.labels, END],
            {"encoder": [*read.labels, END], "decoder": [START, *written.labels]},
            token=namer(self.target_tokenizer),
        )


def _begun(
    model: EncoderDecoder, source: Tensor, keys: Tensor | None, tokens: Tensor | None
) -> DecoderSteps:
    memory = native_memory(model.encoder, source, keys) or model.encode(source, keys)
    return DecoderSteps(model, memory, tokens=tokens)
