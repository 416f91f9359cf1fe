"""The engine of a model that PyTorch holds, or of several.

An engine that computes the same sooner registers itself in `substitutes`: on a processor that of
`foveate.run` searches in C over the weights of the model.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.data.tokenizer import Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import Banned, Constraints, RequiredPhrases, Steps, byte_table
from foveate.decode.engine import (
    ALL,
    Engine,
    Ids,
    Module,
    Outputs,
    Result,
    Room,
    SearchRequest,
    Source,
    check_lists,
)
from foveate.decode.lexical_beam import LexicalBeam
from foveate.decode.phrases import phrases_of, word_pieces
from foveate.decode.search import Followed, Positions, Search
from foveate.errors import UserError
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.nn.scores import Location
from foveate.tasks.abilities import Generates

M = TypeVar("M", bound=nn.Module)
Vocabularies = Mapping[str, Sequence[str]]  # the tokens of each part of a model by their ids


LIMITS = WeakKeyDictionary[nn.Module, tuple[int, int]]()  # of models, once they are known


def limits_of(model: nn.Module) -> tuple[int, int]:
    """Return how many tokens an encoder reads, 0 without one, and a decoder, by their parts."""
    limits: dict[bool, list[int]] = {True: [], False: []}
    encodes = False
    for name, module in model.named_modules():
        encodes |= (inside := "encoder" in name.split("."))
        most = getattr(getattr(module, "config", None), "max_length", None)
        if isinstance(most, int) and not getattr(module, "gives_weights", False):
            limits[inside or isinstance(module, Location)].append(most)
    encoder, decoder = (min(limits[reads], default=2**24) for reads in (True, False))
    return (encoder if encodes else 0), decoder


def log_mean_p(logits: Sequence[Float[Tensor, "*B V"]]) -> Float[Tensor, "*B V"]:
    """Return log 1/M Σ_m p_m(v), p_m the softmax of member m's logits (Sutskever et al., 2014)."""
    return log_mean([each.float().log_softmax(dim=-1) for each in logits])


def log_mean(log_p: Sequence[Float[Tensor, "*B"]]) -> Float[Tensor, "*B"]:
    """Return log 1/M Σ_m p_m, as log Σ_m exp(log p_m) − log M, so that nothing underflows."""
    return torch.stack(list(log_p)).logsumexp(dim=0) - math.log(len(log_p))


class EnsembleSteps:
    """Steps of several models over the same sources, all of which read the same tokens."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members, self.device = list(members), members[0].device

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Return the log of the members' mean p of each next token."""
        return log_mean_p([member.step(ids) for member in self.members])

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``, in every member."""
        for member in self.members:
            member.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only."""
        for member in self.members:
            member.select(sources)


class Ensemble(nn.Module):
    """Models of any kinds that read the same tokens, and answer with the mean of their p.

    Raises `UserError` where one reads source and target apart and another joined.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        for family in (EncoderDecoder, LanguageModel):
            if 0 < sum(isinstance(member, family) for member in members) < len(members):
                raise UserError("an encoder–decoder and a language model cannot decode together")
        self.members = nn.ModuleList(members)

    @property
    def output(self) -> nn.Linear:
        """The output projection of the first member; it says where all compute."""
        return members_of(self)[0].output

    def forward(self, *inputs: Tensor | None) -> Tensor:
        """Log of the mean p of every next token (B, T, V)."""
        return log_mean_p([member(*inputs) for member in self.members])

    def decode(self, *inputs: object) -> Tensor:
        """Refuse: members have states and attention of their own. Raises `UserError`."""
        raise UserError(
            "models that decode together have no single map to draw; look at a run by itself"
        )

    encode = decode


def members_of(model: M) -> list[M]:
    """The members of an ensemble, or the one model."""
    return cast("list[M]", list(model.members)) if isinstance(model, Ensemble) else [model]


def steps_of(model: M, begin: Callable[[M], Steps]) -> Steps:
    """The steps that ``begin`` makes of a model, or of all members of an ensemble together."""
    steps = [begin(member) for member in members_of(model)]
    return EnsembleSteps(steps) if isinstance(model, Ensemble) else steps[0]


def together(
    vocabularies: Sequence[Vocabularies], models: Sequence[nn.Module], names: Sequence[str]
) -> Ensemble:
    """The models of several runs as one. Raises ``ConfigError`` where they read other tokens."""
    first, *others = vocabularies
    for other, name in zip(others, names[1:], strict=True):
        check_pieces(first, other, (names[0], name))
    return Ensemble(models).eval()


def check_pieces(own: Vocabularies, other: Vocabularies, names: tuple[str, str]) -> None:
    """Raise `UserError` where two runs read other tokens, with what differs and the remedy.

    ``own`` and ``other`` are the tokens of each part of a model by their ids, ``names`` the runs.
    """
    for part, pieces in own.items():
        others = other.get(part, [])
        if list(pieces) == list(others):
            continue
        differs = f"{len(pieces):,} and {len(others):,} tokens in the {part}"
        if len(pieces) == len(others):
            row = next(
                i for i, both in enumerate(zip(pieces, others, strict=True)) if len(set(both)) > 1
            )
            differs += f", and token {row} is {pieces[row]!r} and {others[row]!r}"
        raise UserError(
            f"{names[0]} and {names[1]} cannot be combined: they have {differs}; give them one "
            "vocabulary: the same task, data and seed, or the tokens of the first run by [start]"
        )


def built(request: SearchRequest, tokenizer: Tokenizer) -> tuple[Search, Constraints]:
    """The search of a request and what its outputs keep to, over the tokens of a vocabulary.

    Raises ``ConfigError`` for required terms without a plain beam.
    """
    search, required = request.search, list[RequiredPhrases]()
    assert isinstance(search, Search)
    if any(request.required):
        phrases = phrases_of(request.required, search.config.kind, tokenizer)
        required = [RequiredPhrases(tuple(each), word_pieces(tokenizer)) for each in phrases]
        assert isinstance(search, Beam)
        search = LexicalBeam(search.config)
    rules = [Banned(request.banned, tokenizer)] if request.banned else []
    table = byte_table(tokenizer)
    constraints = Constraints(request.prefixes, rules, required, table, request.stop)
    return search, replace(constraints, certain=tokenizer.certain)


Substitute = Callable[["TorchEngine", SearchRequest], Engine | None]
substitutes: list[Substitute] = []  # each returns an engine that answers a request sooner, or None


class TorchEngine(Engine):
    """A task and its model, or several models together."""

    name, can = "torch", ALL
    substituted = True  # whether `substitutes` may answer in its place

    def __init__(self, task: Any, model: Module) -> None:
        self.task, self._model = task, model

    @property
    def model(self) -> Module:
        return self._model

    @torch.inference_mode()
    def search(self, sources: Sequence[Source], request: SearchRequest) -> Iterator[Result]:
        task: Generates[Any] = self.task
        check_lists(len(sources), request.prefixes, request.required)
        for substitute in substitutes if self.substituted else ():
            if (sooner := substitute(self, request)) is not None:
                yield from sooner.search(sources, request)
                return
        search, constraints = built(request, task.output_tokenizer)
        end, room = task.end if request.end is None else request.end, self.room
        sources = [ids[: room.source] if isinstance(ids, list) else ids for ids in sources]
        for batch in task.decoding_batches(self.model, sources, request):
            constraints = replace(constraints, longest=room.left(max(batch.lengths)))
            outputs = search(batch, task.start, end, constraints)
            ranked = [search.decide(each, task.text_of)[: request.num] for each in outputs]
            yield Result(batch.places, ranked)

    @property
    def room(self) -> Room:
        """Known by the parts that have a ``max_length``: tables of positions, scores by place."""
        if getattr(self.task, "continues", False):  # it reads past its reach anew
            return Room()
        if (known := LIMITS.get(self._model)) is None:
            known = LIMITS[self._model] = limits_of(self._model)
        return Room.of(*known, 2 if self.task.gives == "label" else 1)

    @torch.inference_mode()
    def positions(self, source: Source, request: SearchRequest) -> Positions:
        task: Generates[Any] = self.task
        search, constraints = built(request, task.output_tokenizer)
        end = task.end if request.end is None else request.end
        for batch in task.decoding_batches(self.model, [source], request):
            (outputs,) = yield from search.positions(batch, task.start, end, constraints)
            return [search.decide(outputs, task.text_of)[: request.num]]
        return [[]]

    def heard(
        self, source: Source, request: SearchRequest, listen: Callable[[Ids], None]
    ) -> Outputs:
        written: Ids = []
        followed = Followed(self.positions(source, request))
        for position in followed:
            written.append(int(position.token[0, 0]))
            listen(written)
        return followed.outputs

    def score(self, pairs: Sequence[tuple[Source, Ids]]) -> list[list[float]]:
        return self.task.force(self.model, pairs)
