"""Language modelling and generation: every token of a text predicted from those before it.

    loss = −Σ_t log p(x_t | x_<t),   perplexity = exp(loss / T)

A text is its lines, each followed by ``</s>``, which stands for the end of the line.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.data.catalogue import DataError
from foveate.data.corpus import (
    LINES,
    SPLITS,
    Shares,
    Text,
    content_of,
    learn_tokenizer,
    prepare_ids,
    read_text_split,
    sample,
)
from foveate.data.text import portions, taken
from foveate.data.tokenizer import BOS, BPE, EOS, PAD, UNK, Tokenizer, lines_of
from foveate.decode.beam import another
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import SearchRequest
from foveate.decode.sample import Sample as Sampling
from foveate.decode.search import Search, token_log_probabilities
from foveate.models.encoder_decoder import Model
from foveate.models.language_model import LanguageModel, LanguageSteps
from foveate.nn.context import DecoderState
from foveate.nn.spec import Tokens
from foveate.tasks.abilities import Generates, Vocabulary
from foveate.tasks.base import (
    DecoderBatch,
    Loss,
    Measures,
    Task,
    ValidationSample,
    by_split,
    of_nll,
)
from foveate.tasks.engine import TorchEngine, log_mean, members_of, steps_of
from foveate.tasks.objectives import CrossEntropy, token_loss
from foveate.tasks.text import OneTokenizer, by_length, namer, vocabulary_line

SHOWN = 60  # tokens of a sample
SHORT = {"max_ratio": 0.0, "max_extra": SHOWN, "temperature": 0.8}  # how samples are drawn
LENGTH = 100  # tokens that are added at most where no search says how many
TEXTS_A_BATCH = 64  # texts continued together
LOGIT_ROWS = 2048  # places whose logits are held at a time
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


class Language(OneTokenizer, Vocabulary[Tensor], Generates[str]):
    """Plain text: p(x) = Π_t p(x_t | x_<t)."""

    class Config(Task.Config, kind="language"):
        """The text, its tokenizer, and the length of training blocks.

        ``text`` names files with ``{split}`` for train, valid, test, or one file, which is cut by
        ``shares`` of its characters in this order. In training the text is a ring, cut anew at
        each epoch into blocks of ``block_length`` tokens; ``context`` more before each block are
        read and not predicted, so that a recurrent network starts a block with a state.
        """

        text: str  # file of plain text, with {split}, or one file that is cut by shares
        shares: Shares = (0.9, 0.1, 0.0)  # of the characters of one file for train, valid and test
        tokenizer: Tokenizer.Config = BPE.Config()  # how text becomes tokens
        block_length: int = Field(128, gt=0)  # tokens of a training example
        context: int = Field(0, ge=0)  # tokens before a block that are read but not predicted

    start, end = EOS, PAD  # of lines; a published model has others
    figures = ("loss", "perplexity", "bits_per_character")
    silent = frozenset((PAD, BOS))  # an end of line is text
    continues = True
    own_outputs = True
    config: Config

    def prepare(self, folder: Path, seed: int) -> None:
        lines = self.text("train").lines
        some = taken(lines, sample(len(lines), self.data.tokenizer_sample, seed))
        self.tokenizer = learn_tokenizer(self.config.tokenizer, lambda: some)
        self.tokenizer.save(folder / "text.tokenizer.json")

    def restore(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.load(folder / "text.tokenizer.json")
        self.start, self.end = self.tokenizer.text_ends

    def pieces(self) -> dict[str, list[str]]:
        return {"decoder": self.tokenizer.pieces, "output": self.tokenizer.pieces}

    @by_split
    def text(self, split: str) -> Text:
        return read_text_split(self.config.text, self.config.shares, split, self.data)

    def stream(self, text: Text) -> Stream:
        """The ids of a text; those of one in files are in files as well."""
        if text.folder is not None:
            (column,) = prepare_ids(text.folder, {LINES: self.tokenizer}, end=[EOS])
            ids = cast(Ids, column.flat if text.ended else column.flat[:-1])
            return Stream(ids, column.offsets[:-1], text)
        lines = [[*ids, EOS] for ids in self.tokenizer.encode_ids(text.lines)]
        starts = np.cumsum([0, *map(len, lines)])[:-1]
        ids = np.fromiter((i for line in lines for i in line), dtype=np.int32)
        return Stream(ids if text.ended else ids[:-1], starts, text)

    @by_split
    def stream_of(self, split: str) -> Stream:
        """Return the ids of a split, read once."""
        return self.stream(self.text(split))

    def digest(self, split: str) -> str:
        folder = self.text(split).folder
        if folder is None or split != "train":
            return super().digest(split)
        return content_of(folder)

    def lengths(self, split: str) -> NDArray[np.int32]:
        config, tokens = self.config, len(self.stream_of(split))
        count = tokens // config.block_length
        if count == 0:
            raise DataError(
                f"{config.text}: {tokens} tokens of {split} do not fill a block of "
                f"{config.block_length}; lower task.block_length, or add text"
            )
        return np.full((count, 1), config.context + config.block_length, dtype=np.int32)

    def target_counts(self, split: str) -> NDArray[np.int32]:
        return self.lengths(split)[:, 0] - np.int32(self.config.context)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> Tensor:
        """Ids (B, context + k + 1): block i of the ring, which ``noise`` turns by up to k."""
        config, ids = self.config, self.stream_of(split).ids
        turn = int(np.random.default_rng(noise).integers(config.block_length))
        first = turn + np.asarray(indices)[:, None] * config.block_length
        places = first + np.arange(-config.context - 1, config.block_length)
        return torch.from_numpy(ids[places % len(ids)].astype(np.int64))

    def describe_data(self) -> list[str]:
        """Describe the contents of each split, and how it is cut."""
        lines = []
        for split in SPLITS:
            with contextlib.suppress(DataError):  # a run may do without validation and test
                stream = self.stream_of(split)
                unknown = np.mean(stream.ids == UNK)
                lines.append(
                    f"{split}: {len(stream.text.lines):,} lines, "
                    f"{stream.text.characters:,} characters, {len(stream):,} tokens with the ends "
                    f"of lines, {100 * unknown:.2g} % unknown"
                )
        count, config = len(self.lengths("train")), self.config
        after = f", each after {config.context} of context" if config.context else ""
        lines.append(f"an epoch: {count:,} blocks of {config.block_length} tokens{after}")
        kind, size = config.tokenizer.kind, self.tokenizer.vocab_size
        there = len(self.text("train").lines)
        return [*lines, vocabulary_line(self.data, f"{size:,} {kind}", there, "lines")]

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(Tokens(self.tokenizer.vocab_size))

    def decoder_batch(self, model: LanguageModel, batch: Tensor) -> DecoderBatch:
        ids = batch.to(model.output.weight.device, non_blocking=True)
        context = self.config.context
        inputs, targets = ids[:, :-1], ids[:, 1:]
        positions = torch.arange(inputs.numel(), device=ids.device).view(inputs.shape)[:, context:]
        counted = positions.flatten() if context else None
        return DecoderBatch(inputs, targets, counted, prompt=context + 1)

    def loss(self, model: LanguageModel, batch: Tensor, objective: CrossEntropy) -> Loss:
        return token_loss(model, self.decoder_batch(model, batch), objective)

    @torch.inference_mode()
    def measure(
        self, model: LanguageModel, split: str, search: Search, samples: int = 3
    ) -> Measures:
        stream = self.stream_of(split)
        return Measures(
            figures_of(stream, self.log_probabilities(model, stream.ids)),
            self.samples(model, stream, samples) if samples else [],
        )

    @torch.inference_mode()
    def log_probabilities(
        self, model: LanguageModel, ids: Ids, batch_tokens: int = 8192
    ) -> NDArray[np.float64]:
        """Log p(x_t | those before) of each token of a text; the first follows the start.

        A model that remembers in constant memory reads the text once from its beginning to its
        end. Another reads windows of a block's length, of which it predicts the second half.
        """
        text = torch.from_numpy(np.concatenate(([self.start], ids)).astype(np.int64))
        text, done, members = text.to(model.output.weight.device), 1, members_of(model)
        read = (_even(self._read(each, text, batch_tokens)) for each in members)
        pieces = []
        for vectors in zip(*read, strict=True):  # of each member, as it reads alone
            token = text[done : done + len(vectors[0])]
            log_p = [
                token_log_probabilities(each.logits(h)[None], token[None])[0]
                for each, h in zip(members, vectors, strict=True)
            ]
            pieces.append(log_mean(log_p))
            done += len(token)
        return torch.cat(pieces).double().cpu().numpy()

    def _read(self, model: LanguageModel, text: Tensor, batch_tokens: int) -> Iterator[Tensor]:
        """The vectors that predict the tokens after the first."""
        reach = self.reach(model)
        if reach is None:
            return _whole(model, text)
        return _windowed(model, text, reach, max(1, batch_tokens // reach))

    def search_config(
        self, config: Search.Config, kind: str | None = None, **fields: object
    ) -> Search.Config:
        """The search "sample" unless another is named; at most `LENGTH` tokens more."""
        own = config if isinstance(config, Sampling.Config) else Sampling.Config.like(config)
        return another(own, kind, {"max_ratio": 0.0, "max_extra": LENGTH} | fields)

    def prefix_ids(self, text: str) -> list[int]:
        return self.tokenizer.encode_lines(text)

    def token_text(self, ids: Sequence[int], token: int) -> str:
        return self.tokenizer.line_end if token == EOS else super().token_text(ids, token)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        texts: list[str] = []
        for _, line in lines_of(ids):
            texts += ["\n"[: self.start == EOS]] if line == [EOS] else super().token_texts(line)
        return texts

    def reach(self, model: LanguageModel) -> int | None:
        """Return how many tokens the model may read at once, or None if its state does not grow."""
        constant = all(each.decoder.constant_memory for each in members_of(model))
        return None if constant else self.config.block_length

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        return self.tokenizer.decode_lines(ids)

    def encode(self, inputs: Sequence[str]) -> list[list[int]]:
        return list(map(self.tokenizer.encode_lines, inputs))

    def decoding_batches(
        self, model: LanguageModel, sources: Sequence[list[int]], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        """Prompts of one length at a time: none is padded, so that none changes another."""
        parts = (portions(alike, TEXTS_A_BATCH) for alike in by_length(sources).values())
        for rows in chain.from_iterable(parts):
            prompt = torch.tensor([sources[r] for r in rows], dtype=torch.long)
            prompt = prompt.reshape(len(rows), -1).to(model.output.weight.device)
            steps = steps_of(model, partial(self._steps, prompt))
            yield DecodingBatch(rows, steps, [0] * len(rows))

    def _steps(self, prompts: Tensor, model: LanguageModel) -> LanguageSteps:
        bare = self.tokenizer.startless and prompts.shape[1] > 0
        return LanguageSteps(model, prompts, self.reach(model), never=(PAD, BOS), bare=bare)

    def samples(self, model: LanguageModel, stream: Stream, count: int) -> list[ValidationSample]:
        """Beginnings from all over a text, how the text goes on, and how the model does."""
        config = Sampling.Config.parse(SHORT)
        step = max(1, (len(stream) - 2 * SHOWN) // count)
        places = range(0, max(1, len(stream) - 2 * SHOWN), step)[:count]
        pieces = [stream.ids[p : p + 2 * SHOWN].tolist() for p in places]
        starts = [self.text_of(piece[:SHOWN]) for piece in pieces]
        prompts = self.encode(starts)
        outputs = TorchEngine(self, model).outputs(prompts, SearchRequest(config.build()))
        added = self.tokenizer.added
        return [
            ValidationSample(start, added(piece[:SHOWN], piece[SHOWN:]), added(ids, best.ids))
            for start, ids, piece, (best, *_) in zip(starts, prompts, pieces, outputs, strict=True)
        ]

    def name_of(self, i: int) -> str:
        """The text of an id; an end of line has a sign."""
        return self.tokenizer.line_end if i == EOS else namer(self.tokenizer)(i)


def figures_of(stream: Stream, log_p: NDArray[np.float64]) -> dict[str, float]:
    """Nats a token, perplexity, bits a character (the ends of lines are characters)."""
    nll = -float(log_p.sum())
    bits = nll / math.log(2) / max(1, stream.text.characters)
    return of_nll(nll / len(log_p)) | {"bits_per_character": bits}


def _whole(model: LanguageModel, text: Tensor) -> Iterator[Tensor]:
    """The state is carried from the beginning of the text to its end."""
    state = DecoderState()
    for piece in text[:-1].split(CHUNK):
        yield model.decode(piece[None], state=state)[0]


def _windowed(model: LanguageModel, text: Tensor, reach: int, rows: int) -> Iterator[Tensor]:
    """Yield the vectors of the new tokens of each window."""
    last = len(text) - 1
    reach, stride = min(reach, last), max(1, reach - reach // 2)
    ends = torch.tensor([*range(reach, last, stride), last])
    new = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))  # target tokens of each
    places = (ends[:, None] + torch.arange(-reach, 1)).to(text.device)  # (W, reach + 1)
    for some, counts in zip(places.split(rows), new.split(rows), strict=True):
        ids = text[some]
        new_places = torch.arange(reach)[None] >= reach - counts[:, None]
        yield model.decode(ids[:, :-1])[new_places.to(text.device)]


def _even(pieces: Iterator[Tensor]) -> Iterator[Tensor]:
    """The same vectors, `LOGIT_ROWS` at a time."""
    rest: list[Tensor] = []
    for piece in pieces:
        *whole, last = torch.cat((*rest, piece)).split(LOGIT_ROWS)
        yield from whole
        rest = [last]
    yield from rest
