"""Translation: the only file that knows both text and model.

loss   = −Σ_t log p(y_t | y_<t, x), y the target with its end, x the source with its end
answer = search for the y of the highest score
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.pad import pad
from foveate.data.plan import sorted_batches
from foveate.data.report import report
from foveate.data.text import Corpus, DataError, TextData, keep, read_split
from foveate.data.tokenizer import BOS, BPE, EOS, PAD, Tokenizer
from foveate.decode.forced import token_log_probabilities
from foveate.decode.steps import Hypothesis, Search
from foveate.look.capture import capture
from foveate.look.record import AttentionRecord
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.spec import Tokens
from foveate.tasks.base import Loss, Measures, Sample, Task
from foveate.tasks.labels import attention_record
from foveate.tasks.metrics import translation_figures
from foveate.tasks.objective import Objective

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


class Translation(Task[TextBatch]):
    """Text in, text out: translation and whatever else maps one line to another."""

    class Config(Task.Config, kind="translation"):
        """Where the pairs lie and how they become tokens.

        ``source`` and ``target`` name line-aligned files with ``{split}`` for train, valid, test;
        without ``target``, ``source`` is one TSV or JSONL file that holds both sides.
        """

        source: str
        target: str | None = None
        tokenizer: Tokenizer.Config = BPE.Config()
        joint: bool = True  # one vocabulary for both sides, which a model may then tie

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self.tokenizers: tuple[Tokenizer, Tokenizer] | None = None
        self._read: dict[str, Corpus] = {}
        self._corpora: dict[str, tuple[Corpus, list[Ids], list[Ids]]] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        corpus = self.corpus("train")
        sides = [corpus.sources, corpus.targets]
        source = self.config.tokenizer.build()
        source.train(sides[0] + sides[1] if self.config.joint else sides[0])
        target = source
        if not self.config.joint:
            target = self.config.tokenizer.build()
            target.train(sides[1])
        source.save(folder / "source.tokenizer.json")
        target.save(folder / "target.tokenizer.json")
        self.tokenizers = source, target

    def restore(self, folder: Path) -> None:
        source = Tokenizer.load(folder / "source.tokenizer.json")
        joint = self.config.joint
        self.tokenizers = (
            source,
            source if joint else Tokenizer.load(folder / "target.tokenizer.json"),
        )

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._both()[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self._both()[1]

    def _both(self) -> tuple[Tokenizer, Tokenizer]:
        if self.tokenizers is None:
            raise RuntimeError("the task has no tokenizers yet: call prepare or restore first")
        return self.tokenizers

    def corpus(self, split: str) -> Corpus:
        """The pairs of a split as text, without those that the config drops."""
        if split not in self._read:
            source, target = self.config.source, self.config.target
            self._read[split] = read_split(source, target, split, self.data)
        return self._read[split]

    def _tokens(self, split: str) -> tuple[Corpus, list[Ids], list[Ids]]:
        if split not in self._corpora:
            corpus = self.corpus(split)
            sources = self.source_tokenizer.encode_ids(corpus.sources)
            targets = self.target_tokenizer.encode_ids(corpus.targets)
            if split == "train":
                kept, dropped = keep(_lengths(sources, targets), self.data)
                corpus = corpus.take([int(i) for i in kept], dropped)
                sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
            self._corpora[split] = corpus, sources, targets
        return self._corpora[split]

    def lengths(self, split: str) -> NDArray[np.int32]:
        _, sources, targets = self._tokens(split)
        return (_lengths(sources, targets) + 1).astype(np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        _, sources, targets = self._tokens(split)
        return collate([sources[i] for i in indices], [targets[i] for i in indices])

    def describe_data(self) -> list[str]:
        """The report on the data in short: what is there, what is odd, what is dropped and why."""
        corpora = {"train": self.corpus("train")}
        for split in ("valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpora[split] = self.corpus(split)
        source, target = self._both()

        def count(tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[int]]:
            return lambda texts: [len(ids) for ids in tokenizer.encode_ids(texts)]

        sizes = " and ".join(f"{side.vocab_size:,}" for side in dict.fromkeys((source, target)))
        found = report(corpora, self.data, (count(source), count(target)))
        return [*found.lines(), f"vocabulary: {sizes} {self.config.tokenizer.kind} pieces"]

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        sizes = [Tokens(t.vocab_size) for t in self._both()]
        built: nn.Module = model.build(*sizes)
        return built

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: Objective) -> Loss:
        batch = batch.to(model.output.weight.device)
        memory = model.encode(batch.source, batch.keys)
        hidden = model.decode(batch.read, memory).flatten(0, 1)  # (B, T, D) -> (B·T, D)
        wanted = batch.wanted.flatten()
        if batch.real is not None:
            hidden, wanted = hidden[batch.real], wanted[batch.real]
        return objective(hidden, model.output.weight, wanted)

    @torch.inference_mode()
    def measure(
        self,
        model: EncoderDecoder,
        split: str,
        search: Search,
        samples: int = 3,
    ) -> Measures:
        corpus, sources, targets = self._tokens(split)
        plain = Objective.Config.parse({"label_smoothing": 0.0}).build()
        total, count = 0.0, 0
        for indices in sorted_batches(_lengths(sources, targets) + 1, 4096):
            loss = self.loss(model, self.batch(split, indices.tolist()), plain)
            total, count = total + float(loss.total), count + loss.count
        outputs = [
            self.target_tokenizer.decode(found[0].ids) if found else ""
            for found in self.search(model, sources, search)
        ]
        figures, _ = translation_figures(outputs, corpus.targets)
        nll = total / max(count, 1)
        step = max(1, len(outputs) // max(1, samples))
        shown = range(0, len(outputs), step)[:samples]
        return Measures(
            {"loss": nll, "perplexity": float(np.exp(min(nll, 700.0))), **figures},
            [Sample(corpus.sources[i], corpus.targets[i], outputs[i]) for i in shown],
        )

    # ---- answers

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
                found[index] = outputs
            if progress is not None:
                progress(len(indices))
        return found

    def _searched(
        self, model: EncoderDecoder, sources: Sequence[Ids], search: Search, batch_tokens: int
    ) -> Iterator[tuple[Ids, list[list[Hypothesis]]]]:
        device = model.output.weight.device
        filled = np.array([i for i, ids in enumerate(sources) if ids], dtype=np.int64)
        lengths = np.array([[len(sources[i]) + 1] for i in filled]).reshape(-1, 1)
        for batch in sorted_batches(lengths, batch_tokens):
            indices = [int(filled[i]) for i in batch]
            ids, keys = _source([sources[i] for i in indices])
            memory = model.encode(ids.to(device), None if keys is None else keys.to(device))
            sizes = [len(sources[i]) for i in indices]
            yield indices, search(DecoderSteps(model, memory), sizes, BOS, EOS)

    @torch.inference_mode()
    def force(self, model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """Log p of each token of each given target, its end included."""
        found: list[list[float]] = [[] for _ in pairs]
        lengths = _lengths([s for s, _ in pairs], [t for _, t in pairs]) + 1
        for indices in sorted_batches(lengths, 4096):
            batch = collate([pairs[i][0] for i in indices], [pairs[i][1] for i in indices])
            batch = batch.to(model.output.weight.device)
            logits = model(batch.source, batch.read, batch.keys)
            log_p = token_log_probabilities(logits, batch.wanted)
            for row, index in enumerate(indices.tolist()):
                found[index] = log_p[row, : len(pairs[index][1]) + 1].tolist()
        return found

    @torch.inference_mode()
    def explain(self, model: EncoderDecoder, source: str, target: Ids | str) -> AttentionRecord:
        """What every attention saw when the target was produced: one forced pass, tapped."""
        tokens = self.source_tokenizer.encode_ids([source])[0]
        output = (
            self.target_tokenizer.encode_ids([target])[0] if isinstance(target, str) else target
        )
        batch = collate([tokens], [output]).to(model.output.weight.device)
        with capture(model) as maps:
            model.decode(batch.read, model.encode(batch.source, batch.keys))
        return attention_record(
            {name: weights[0].cpu().numpy() for name, weights in maps.items()},
            (source, self.source_tokenizer.encode(source).offsets),
            (self.target_tokenizer.decode(output), self.target_tokenizer.spans(output)),
        )


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> TextBatch:
    """Tensors of some pairs of ids: ends and starts added, padded on the right."""
    source, keys = _source(sources)
    read = torch.from_numpy(pad([[BOS, *ids] for ids in targets]))
    wanted = torch.from_numpy(pad([[*ids, EOS] for ids in targets]))
    lengths = torch.tensor([len(ids) + 1 for ids in targets])
    ragged = len(set(lengths.tolist())) > 1
    places = torch.arange(read.shape[1])[None] < lengths[:, None]
    real = places.flatten().nonzero().flatten() if ragged else None
    return TextBatch(source, keys, read, wanted, real)


def _source(sources: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    ids = torch.from_numpy(pad([[*s, EOS] for s in sources]))
    keys = ids != PAD
    return ids, None if bool(keys.all()) else keys


def _lengths(sources: Sequence[Ids], targets: Sequence[Ids]) -> NDArray[np.int64]:
    """(N, 2) numbers of tokens."""
    return np.array([list(map(len, sources)), list(map(len, targets))], dtype=np.int64).T
