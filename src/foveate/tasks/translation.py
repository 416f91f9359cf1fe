"""Translation: encoder–decoder, guided by word links, and as a prefix language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.align.aer import Head, Links, Rows, read_pharaoh, write_pharaoh
from foveate.align.ibm import AgreementAligner, Aligner
from foveate.data.batches import pad, sorted_batches, source_batch
from foveate.data.catalogue import DataError
from foveate.data.text import at, lines_of
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.data.words import CUTS, split_words
from foveate.decode.search import Hypothesis, Search, token_log_probabilities
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.inspect.records import ForcedPass
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Model
from foveate.models.language_model import LanguageModel, LanguageSteps
from foveate.models.native import NativeSteps, decoder_steps, native_memory
from foveate.native.kernels import library
from foveate.nn.attention import Attention
from foveate.spec import Tokens
from foveate.tasks.base import Aligns, Cut, DecoderBatch, Loss, TensorBatch, WordMaps
from foveate.tasks.objectives import CrossEntropy, attentions, token_loss, watched
from foveate.tasks.shortlist import Shortlist, in_full
from foveate.tasks.text import (
    END,
    START,
    Ids,
    TextBatch,
    TokenizedText,
    attention_record,
    collate,
    joined_record,
    namer,
)
from foveate.tasks.text_to_text import TextToText, pieces_of, steps_of, word_maps


class Translation(TextToText[TextBatch], Aligns):
    """Text in, text out: translation and other maps from one line to another."""

    class Config(TextToText.Config, kind="translation"):
        """Where the pairs lie and how they become tokens."""

    config: Config
    own_outputs = True
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

    # ---- data

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        examples = self.tokens(split)
        corpus = examples.corpus
        sides = [[ids[i] for i in indices] for ids in (examples.sources, examples.targets)]
        texts = corpus.sources, corpus.targets
        for side, tokenizer in enumerate(self._both() if split == "train" else ()):
            if tokenizer.noisy:
                drawn = tokenizer.encode_noisy(
                    [texts[side][i] for i in indices], [(noise, side, i) for i in indices]
                )
                both = zip(drawn, sides[side], strict=True)
                sides[side] = [d if len(d) <= self.data.max_length else ids for d, ids in both]
        return collate(*sides)

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        sizes = [Tokens(t.vocab_size) for t in self._both()]
        return model.build(*sizes)

    def decoder_batch(self, model: EncoderDecoder, batch: TextBatch) -> DecoderBatch:
        batch = batch.to(model.output.weight.device)
        memory = model.encode(batch.source, batch.keys)
        return DecoderBatch(batch.read, batch.target, batch.real, memory)

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: CrossEntropy) -> Loss:
        return token_loss(model, self.decoder_batch(model, batch), objective)

    def _searched(
        self, model: EncoderDecoder, sources: Sequence[Ids], search: Search, batch_tokens: int
    ) -> Iterator[tuple[Ids, list[list[Hypothesis]]]]:
        device = model.output.weight.device
        shortlist = self.shortlist() if search.shortens() else None
        filled = np.array([i for i, ids in enumerate(sources) if ids], dtype=np.int64)
        lengths = np.array([[len(sources[i]) + 1] for i in filled]).reshape(-1, 1)
        for batch in sorted_batches(lengths, batch_tokens):
            indices = [int(filled[i]) for i in batch]
            ids, keys = source_batch([sources[i] for i in indices], device)
            tokens = None if shortlist is None else shortlist.tokens(ids)
            steps = steps_of(model, partial(_begun, source=ids, keys=keys, tokens=tokens))
            sizes = [len(sources[i]) for i in indices]
            spelling = search if tokens is None else search.among(tokens)
            outputs = spelling(steps, sizes, BOS, EOS, indices)
            yield indices, outputs if tokens is None else in_full(outputs, tokens)

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
        """Cross-attention between the words of pairs; see `foveate.tasks.text_to_text`."""
        return word_maps(model, self._both(), pairs, rows, cut)

    def forced_pass(self, model: EncoderDecoder, source: str, target: Ids | str) -> ForcedPass:
        """A target being produced; without one, the search's best output."""
        output = self._target_ids(target)
        tokens = self.source_tokenizer.encode_ids(self.addressed([source]))[0]
        batch = collate([tokens], [output]).to(model.output.weight.device)
        read = TokenizedText.read(self.source_tokenizer, source)
        written = TokenizedText.written(self.target_tokenizer, output)

        def run() -> Tensor:
            memory = model.encode(batch.source, batch.keys)
            logits = model.logits(model.decode(batch.read, memory))
            return token_log_probabilities(logits, batch.target)[0]

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
) -> DecoderSteps | NativeSteps:
    """The steps of a search over sources, by the kernels where there are any."""
    if library() is None:
        return DecoderSteps(model, model.encode(source, keys), tokens)
    memory = native_memory(model.encoder, source, keys) or model.encode(source, keys)
    return decoder_steps(model, memory, tokens)


# ------------------------------------------------------------------------------------------ guided
# Guided alignment: one head of the decoder is trained to look where given links point.
#
#     L = CE − w Σ_t Σ_s G_ts log α_ts   (Chen et al., 2016; Garg et al., 2019)
#
# α is the guided head's map and G the links between pieces, each row divided by its links. All
# other heads stay free; the model, its attention and the trainer are as ever: the weights come by
# the head's tap.

FILE = "guide.align"  # the links of the training pairs, in the run


@dataclass(frozen=True)
class GuidedBatch(TextBatch):
    """Pairs and what their guided head should see: weights G (N,) at the places (N, 3) of b, t, s.

    Batches that guide nothing, of validation, have no places.
    """

    places: Tensor
    guide: Tensor


class GuidedTranslation(Translation):
    """Translation with one head trained towards links between words."""

    class Config(Translation.Config, kind="guided_translation"):
        """``links`` names a Pharaoh file, a line for each line of the training data, or such a file
        for each of several corpora; else ``aligner`` makes them.

        ``layer`` and ``head`` say which head is guided, ``weight`` how much; ``rows``, at which
        step: that which produces a word, or that which has just read it. ``words`` says whether
        links count the words of a text (`split_words`) or what stands between blanks.
        """

        links: str | tuple[str, ...] | None = None
        """Files of word links with {split}; absent: made by the aligner."""
        aligner: Aligner.Config = AgreementAligner.Config()  # what makes the links
        layer: int = -1  # decoder layer of the guided head; -1: the last
        head: int = Field(0, ge=0)  # number of the guided head
        weight: float = Field(0.05, gt=0)  # of the guidance in the loss
        rows: Literal["produced", "read"] = "produced"
        """Whether a row of attention belongs to the token produced, or to the one read."""
        words: Literal["text", "blanks"] = "text"
        """What links count: words of the text, or what stands between blanks."""

        @pydantic.model_validator(mode="after")
        def _as_many(self) -> Self:
            if self.links is not None and len(self.files()) != len(self.parts()):
                raise UserError("give a file of links for each of the corpora, in their order")
            return self

        def files(self) -> tuple[str, ...]:
            """The files of links, in the order of the corpora."""
            return (self.links,) if isinstance(self.links, str) else self.links or ()

    config: Config

    @property
    def head(self) -> Head:
        """The guided one."""
        return Head(self.config.layer, self.config.head, self.config.rows)

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        super().prepare(folder, seed)
        made = self._links_of_files() if self.config.links is not None else self._links_of_aligner()
        replace_file(folder / FILE, "".join(write_pharaoh(links) + "\n" for links in made))
        self._guide = lines_of(folder / FILE)

    def restore(self, folder: Path) -> None:
        super().restore(folder)
        self._guide = lines_of(folder / FILE)

    def _links_of_files(self) -> Iterator[Links]:
        """The links of each pair of the training corpus, from the files."""
        corpus = self.corpus("train")
        lines, parts = np.asarray(corpus.lines), corpus.parts
        for number, name in enumerate(self.config.files()):
            path = at(name, "train", self.data.splits)
            own, lines_of_links = lines if parts is None else lines[parts == number], lines_of(path)
            if len(lines_of_links) < max(own, default=0):
                raise DataError(
                    f"{path} has {len(lines_of_links)} lines; give one for each training pair"
                )
            for line in own.tolist():
                yield read_pharaoh(lines_of_links[line - 1], f"{path}:{line}")

    def _links_of_aligner(self) -> list[Links]:
        """The links of each pair of the training corpus, by the aligner."""
        corpus, cut = self.corpus("train"), CUTS[self.config.words]
        pairs = [
            ([s[a:b] for a, b in cut(s)], [t[a:b] for a, b in cut(t)])
            for s, t in zip(corpus.sources, corpus.targets, strict=True)
        ]
        aligner = self.config.aligner.build()
        aligner.train(pairs)
        made: list[Links] = aligner.align(pairs)
        return made

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        plain = super().batch(split, indices, noise)
        if split != "train":
            return plain
        examples = self.tokens(split)
        corpus = examples.corpus
        cut, later = CUTS[self.config.words], self.config.rows == "read"
        texts = [corpus.sources[i] for i in indices], [corpus.targets[i] for i in indices]
        sides = [
            [pieces_of(e, cut(x)) for e, x in zip(t.encode_batch(side), side, strict=True)]
            for t, side in zip(self._both(), texts, strict=True)
        ]
        entries = []
        for row, (index, (source, target)) in enumerate(
            zip(indices, zip(*sides, strict=True), strict=True)
        ):
            where = f"the links of pair {corpus.lines[index]}"
            links = read_pharaoh(self._guide[examples.row(index)], where)
            weights = piece_links(links, source, target, where)
            entries += [(row, t + later, s, g) for (t, s), g in weights.items()]
        places = torch.tensor([entry[:3] for entry in entries], dtype=torch.long).reshape(-1, 3)
        return GuidedBatch(
            **vars(plain), places=places, guide=torch.tensor([e[3] for e in entries])
        )

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        built = super().build(model)
        guided_attention(built, self.config)
        return built

    def loss(self, model: EncoderDecoder, batch: TextBatch, objective: CrossEntropy) -> Loss:
        if not isinstance(batch, GuidedBatch):
            return super().loss(model, batch, objective)
        with watched([guided_attention(model, self.config)]) as weights:
            loss = super().loss(model, batch, objective)
        steps = batch.read.shape[1]  # the last pass; those before chose what it reads
        alpha = torch.cat(weights[0], dim=2)[:, self.config.head, -steps:]  # (B, T, S)
        b, t, s = batch.places.to(alpha.device).unbind(dim=1)
        likely = alpha[b, t, s].float().clamp_min(1e-9).log()
        guide = -(batch.guide.to(alpha.device) * likely).sum()
        total = loss.total + self.config.weight * guide
        return Loss(total, loss.count, loss.logged | {"guide": guide.detach()})


def piece_links(
    links: Links, source: list[list[int]], target: list[list[int]], where: str = "links"
) -> dict[tuple[int, int], float]:
    """G between pieces (t, s) from links between words, whose pieces are given.

    Every piece of a word is linked with every piece of its partners; rows sum to 1.
    Raises ``DataError`` for a link to a word that is not there.
    """
    partners: dict[int, set[int]] = {}
    for i, j in links:
        if i >= len(source) or j >= len(target):
            raise DataError(
                f"{where}: {i}-{j}, but there are {len(source)} and {len(target)} words; "
                'count words as task.words says ("text" or "blanks")'
            )
        for t in target[j]:
            partners.setdefault(t, set()).update(source[i])
    return {(t, s): 1 / len(partners[t]) for t in sorted(partners) for s in sorted(partners[t])}


def guided_attention(model: nn.Module, config: GuidedTranslation.Config) -> Attention:
    """The attention whose head is guided. Raises `UserError` naming what exists."""
    layers = [a for a in attentions(model, "cross_attention") if isinstance(a, Attention)]
    if not -len(layers) <= config.layer < len(layers):
        raise UserError(f"task.layer = {config.layer}: {len(layers)} layers attend to the source")
    if config.head >= layers[config.layer].num_heads:
        heads = layers[config.layer].num_heads
        raise UserError(f"task.head = {config.head}: the layer has {heads} heads, from 0")
    return layers[config.layer]


# ------------------------------------------------------------------------------------------ joined
# Translation by a language model: source and target in one sequence, ``<s> x </s> y </s>``.
#
# loss   = −Σ_t log p(y_t | x, y_<t): the tokens of the source are read and not predicted
# answer = search for what goes on after ``<s> x </s>``


@dataclass(frozen=True)
class JoinedBatch(TensorBatch):
    """Sequences side by side: ``read`` (B, L), ``target`` (B, L) the tokens after them, ``real``
    the flat places after which a token of the target, or its end, comes; ``prompt`` (B, 1) how many
    places stand before the target.
    """

    read: Tensor
    target: Tensor
    real: Tensor
    prompt: Tensor


def join(sources: Sequence[Ids], targets: Sequence[Ids]) -> JoinedBatch:
    """Tensors of some pairs: padding stands on the right, where no place before can see it."""
    rows = [[BOS, *s, EOS, *t, EOS] for s, t in zip(sources, targets, strict=True)]
    ids = torch.from_numpy(pad(rows))
    places = torch.arange(ids.shape[1] - 1)[None]
    first = torch.tensor([[len(s) + 1] for s in sources])
    last = torch.tensor([[len(row) - 2] for row in rows])
    real = ((places >= first) & (places <= last)).flatten().nonzero().flatten()
    return JoinedBatch(ids[:, :-1], ids[:, 1:], real, first + 1)


class PrefixTranslation(TextToText[JoinedBatch]):
    """Translation without an encoder: a language model reads the source and goes on with the target
    (as GPT-2 was asked to; Radford et al., 2019).
    """

    class Config(TextToText.Config, kind="joined_translation"):
        """As of a translation; one vocabulary serves both sides."""

        @pydantic.field_validator("joint")
        @classmethod
        def _joint(cls, joint: bool) -> bool:
            if not joint:
                raise UserError("one sequence has one vocabulary: leave joint = true")
            return joint

    own_outputs = True
    config: Config

    def sizes(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> NDArray[np.int32]:
        sides = super().sizes(sources, targets)
        return sides.sum(axis=1, keepdims=True).astype(np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> JoinedBatch:
        examples = self.tokens(split)
        return join(*([ids[i] for i in indices] for ids in (examples.sources, examples.targets)))

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(Tokens(self.target_tokenizer.vocab_size))

    def decoder_batch(self, model: LanguageModel, batch: JoinedBatch) -> DecoderBatch:
        batch = batch.to(model.output.weight.device)
        return DecoderBatch(batch.read, batch.target, batch.real, prompt=batch.prompt)

    def loss(self, model: LanguageModel, batch: JoinedBatch, objective: CrossEntropy) -> Loss:
        return token_loss(model, self.decoder_batch(model, batch), objective)

    def _searched(
        self, model: LanguageModel, sources: Sequence[Ids], search: Search, batch_tokens: int
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
    def _log_p(self, model: LanguageModel, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        batch = join([s for s, _ in pairs], [t for _, t in pairs])
        batch = batch.to(model.output.weight.device)
        log_p = token_log_probabilities(model(batch.read), batch.target)
        spans = ((len(s) + 1, len(s) + len(t) + 2) for s, t in pairs)
        return [row[a:b].tolist() for row, (a, b) in zip(log_p, spans, strict=True)]

    def forced_pass(self, model: LanguageModel, source: str, target: Ids | str) -> ForcedPass:
        """One sequence of both sides: rows are what is produced, columns what was read before it.

        Scores are of the target's tokens alone.
        """
        output = self._target_ids(target)
        pieces = self.target_tokenizer
        read = pieces.encode(source)
        batch = join([read.ids], [output]).to(model.output.weight.device)

        def run() -> Tensor:
            return token_log_probabilities(model(batch.read), batch.target)[0][batch.real]

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
