"""Language modelling: every token of a text predicted from those before it.

    loss = −Σ_t log p(x_t | x_<t),   perplexity = exp(loss / T)

A text is its lines, each followed by ``</s>``, which stands for the end of the line. Lives here:
blocks, the loss, the measures. Does not live here: continuing a text (`foveate.tasks.generation`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.data.columns import taken
from foveate.data.plain import LINES, SPLITS, PreparedText, Shares, Text, read_text, read_text_split
from foveate.data.prepared import learn_tokenizer, prepare_ids, sample
from foveate.data.text import DataError, TextData
from foveate.data.tokenizer import BPE, EOS, UNK, Tokenizer
from foveate.decode.forced import token_log_probabilities
from foveate.decode.steps import Search
from foveate.models.encoder_decoder import Model
from foveate.models.language_model import LanguageModel
from foveate.nn.state import State
from foveate.spec import Tokens
from foveate.tasks.base import Evaluation, Loss, Measures
from foveate.tasks.generation import Generating
from foveate.tasks.objective import CrossEntropy

ROWS = 2048  # places whose logits are held at a time
CHUNK = 512  # tokens read at a time where a state is carried over the whole text

Ids = NDArray[np.integer]


@dataclass(frozen=True)
class Stream:
    """A text as one row of ids, and where each of its lines begins in it."""

    ids: Ids
    starts: NDArray[np.int64]
    text: Text

    def __len__(self) -> int:
        return len(self.ids)


class Language(Generating):
    """Plain text: p(x) = Π_t p(x_t | x_<t)."""

    class Config(Generating.Config, kind="language"):
        """Where the text lies, how it becomes tokens, and how long the blocks are.

        ``text`` names files with ``{split}`` for train, valid, test, or one file, which is cut by
        ``shares`` of its characters in this order. In training the text is a ring, cut anew at
        each epoch into blocks of ``block_length`` tokens; ``context`` more before each block are
        read and not predicted, so that a recurrent network starts a block with a state.
        """

        text: str
        shares: Shares = (0.9, 0.1, 0.0)
        tokenizer: Tokenizer.Config = BPE.Config()
        block_length: int = Field(128, gt=0)
        context: int = Field(0, ge=0)

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self._tokenizer: Tokenizer | None = None
        self._texts: dict[str, Text] = {}
        self._streams: dict[str, Stream] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        lines = self._text("train").lines
        some = taken(lines, sample(len(lines), self.data.tokenizer_sample, seed))
        tokenizer = learn_tokenizer(self.config.tokenizer, lambda: some)
        tokenizer.save(folder / "text.tokenizer.json")
        self._tokenizer = tokenizer

    def restore(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.load(folder / "text.tokenizer.json")

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise RuntimeError("the task has no tokenizer yet: call prepare or restore first")
        return self._tokenizer

    def _text(self, split: str) -> Text:
        if split not in self._texts:
            shares = self.config.shares
            self._texts[split] = read_text_split(self.config.text, shares, split, self.data)
        return self._texts[split]

    def stream(self, text: Text) -> Stream:
        """The ids of a text; those of one in files are in files as well."""
        if isinstance(text, PreparedText):
            (found,) = prepare_ids(text.folder, {LINES: self.tokenizer}, end=[EOS])
            return Stream(found.flat if text.ended else found.flat[:-1], found.offsets[:-1], text)
        lines = [[*ids, EOS] for ids in self.tokenizer.encode_ids(text.lines)]
        starts = np.cumsum([0, *map(len, lines)])[:-1]
        ids = np.fromiter((i for line in lines for i in line), dtype=np.int32)
        return Stream(ids if text.ended else ids[:-1], starts, text)

    def examples(self, split: str) -> Stream:
        if split not in self._streams:
            self._streams[split] = self.stream(self._text(split))
        return self._streams[split]

    def read(self, source: Path, reference: Path | None = None) -> Stream:
        if reference is not None:
            raise DataError(f"--reference {reference}: a language model reads one text, no pairs")
        text = read_text(source, TextData())
        if not text.characters:
            raise DataError(f"{source} is empty: nothing to evaluate on")
        return self.stream(text)

    def given(self, text: str) -> Stream:
        """A text of the user's own."""
        return self.stream(Text(text.removesuffix("\n").split("\n"), text.endswith("\n")))

    def lengths(self, split: str) -> NDArray[np.int32]:
        config, tokens = self.config, len(self.examples(split))
        count = tokens // config.block_length
        if count == 0:
            raise DataError(
                f"{config.text}: {tokens} tokens of {split} make no block of "
                f"{config.block_length}; lower task.block_length, or take more text"
            )
        return np.full((count, 1), config.context + config.block_length, dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> Tensor:
        """Ids (B, context + k + 1): block i of the ring, which ``noise`` turns by up to k."""
        config, ids = self.config, self.examples(split).ids
        turn = int(np.random.default_rng(noise).integers(config.block_length))
        first = turn + np.asarray(indices)[:, None] * config.block_length
        places = first + np.arange(-config.context - 1, config.block_length)
        return torch.from_numpy(ids[places % len(ids)].astype(np.int64))

    def describe_data(self) -> list[str]:
        """What each split holds, and how it is cut."""
        lines = []
        for split in SPLITS:
            with contextlib.suppress(DataError):  # a run may do without validation and test
                lines.append(self._described(split))
        count, config = len(self.lengths("train")), self.config
        after = f", each after {config.context} of context" if config.context else ""
        lines.append(f"an epoch: {count:,} blocks of {config.block_length} tokens{after}")
        kind, size = config.tokenizer.kind, self.tokenizer.vocab_size
        seen, there = self.data.tokenizer_sample, len(self._text("train").lines)
        some = f", learnt from {seen:,} of {there:,} lines" if seen < there else ""
        return [*lines, f"vocabulary: {size:,} {kind} pieces{some}"]

    def _described(self, split: str) -> str:
        stream = self.examples(split)
        unknown = np.mean(stream.ids == UNK)
        return (
            f"{split}: {len(stream.text.lines):,} lines, {stream.text.characters:,} characters, "
            f"{len(stream):,} tokens with the ends of lines, {100 * unknown:.2g} % unknown"
        )

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        built: nn.Module = model.build(Tokens(self.tokenizer.vocab_size))
        return built

    def loss(self, model: LanguageModel, batch: Tensor, objective: CrossEntropy) -> Loss:
        ids = batch.to(model.output.weight.device)
        hidden = model.decode(ids[:, :-1])[:, self.config.context :]  # (B, k, D)
        wanted = ids[:, 1 + self.config.context :]
        return objective(hidden.flatten(0, 1), model.output.weight, wanted.flatten())

    @torch.inference_mode()
    def measure(
        self, model: LanguageModel, split: str, search: Search, samples: int = 3
    ) -> Measures:
        stream = self.examples(split)
        return Measures(
            figures_of(stream, self.log_probabilities(model, stream.ids)),
            self.samples(model, stream, samples) if samples else [],
        )

    def better(self, name: str) -> int:
        return -1

    # ---- answers

    @torch.inference_mode()
    def evaluate(
        self, model: LanguageModel, examples: Stream, search: Search, batch_tokens: int = 8192
    ) -> Evaluation:
        """The figures of a text; the outputs are log-probabilities of its lines."""
        log_p = self.log_probabilities(model, examples.ids, batch_tokens)
        lines = np.add.reduceat(log_p, examples.starts[examples.starts < len(log_p)])
        reach = self.reach(model)
        how = (
            "one pass over the text, the state carried from its beginning"
            if reach is None
            else f"windows of {reach} tokens, each predicted after at least {reach // 2}"
        )
        figures = figures_of(examples, log_p) | {"tokens": float(len(examples))}
        return Evaluation(figures, {"loss": how}, [f"{value:.4f}" for value in lines])

    @torch.inference_mode()
    def log_probabilities(
        self, model: LanguageModel, ids: Ids, batch_tokens: int = 8192
    ) -> NDArray[np.float64]:
        """Log p(x_t | those before) of each token of a text; the first follows the end of a line.

        A model that remembers in constant memory reads the text once from its beginning to its
        end. Another reads windows of a block's length, of which it predicts the second half.
        """
        device, reach = model.output.weight.device, self.reach(model)
        text = torch.from_numpy(np.concatenate(([EOS], ids)).astype(np.int64)).to(device)
        if reach is None:
            state = State()
            parts = ((p[:-1], p[1:]) for p in _overlapping(text, CHUNK))
            found = [
                _log_p(model, model.decode(read[None], state)[0], wanted) for read, wanted in parts
            ]
        else:
            rows = max(1, batch_tokens // reach)
            found = list(_windowed(model, text, reach, rows))
        return torch.cat(found).double().cpu().numpy()


def figures_of(stream: Stream, log_p: NDArray[np.float64]) -> dict[str, float]:
    """Nats a token, perplexity, bits a character (the ends of lines are characters)."""
    nll = -float(log_p.sum())
    loss = nll / len(log_p)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
        "bits_per_character": nll / math.log(2) / max(1, stream.text.characters),
    }


def _overlapping(text: Tensor, size: int) -> Iterator[Tensor]:
    """Pieces of a row that share a token with the next: ``size`` to be read, as many wanted."""
    for start in range(0, len(text) - 1, size):
        yield text[start : start + size + 1]


def _windowed(model: LanguageModel, text: Tensor, reach: int, rows: int) -> Iterator[Tensor]:
    """Log p of the tokens after the first: all of the first window, the new ones of each later."""
    last = len(text) - 1
    reach, stride = min(reach, last), max(1, reach - reach // 2)
    ends = torch.tensor([*range(reach, last, stride), last])
    new = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))  # wanted tokens of each
    places = (ends[:, None] + torch.arange(-reach, 1)).to(text.device)  # (W, reach + 1)
    for some, counts in zip(places.split(rows), new.split(rows), strict=True):
        ids = text[some]
        kept = torch.arange(reach)[None] >= reach - counts[:, None]
        hidden = model.decode(ids[:, :-1])
        yield _log_p(model, hidden[kept.to(text.device)], ids[:, 1:][kept.to(text.device)])


def _log_p(model: LanguageModel, hidden: Tensor, wanted: Tensor) -> Tensor:
    """Log p of N wanted tokens, the logits of a few at a time."""
    parts = zip(hidden.split(ROWS), wanted.split(ROWS), strict=True)
    return torch.cat([token_log_probabilities(model.logits(h)[None], y[None])[0] for h, y in parts])
