"""The engine of a model that PyTorch holds, or of several.

Searches on a processor are those of the engine in C (`foveate.engine.packed`) over the weights of
the model, wherever it computes what the modules do; else the modules compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from foveate.align.aer import Head, Links
from foveate.data.tokenizer import Tokenizer
from foveate.decode.beam import LexicalBeam
from foveate.decode.constraints import (
    Banned,
    Constraints,
    RequiredPhrases,
    Steps,
    byte_table,
)
from foveate.decode.phrases import phrases_of, word_pieces
from foveate.decode.search import EnsembleSteps, Positions, Search, log_mean_p
from foveate.engine.base import (
    ALL,
    Engine,
    EngineError,
    Ids,
    Module,
    Picture,
    Result,
    Room,
    SearchRequest,
    Source,
    check_lists,
)
from foveate.engine.compiled import CompiledModel
from foveate.engine.packed import PackedEngine, TaskKind
from foveate.engine.program import Program
from foveate.errors import UserError
from foveate.inspect.records import AttentionRecord, Units
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.native.kernels import WeightCache, library
from foveate.nn.attention import BaseAttention
from foveate.nn.context import as_written
from foveate.nn.scores import Location

M = TypeVar("M", bound=nn.Module)
Vocabularies = Mapping[str, Sequence[str]]  # the tokens of each part of a model by their ids


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


@dataclass(frozen=True)
class DecodingBatch:
    """Sources that are decoded together, by their places among all sources.

    ``lengths`` are those that limits of the output go by; ``vocabulary`` are the ids of the tokens
    that the steps know, None for all.
    """

    places: Sequence[int]
    steps: Steps
    lengths: Sequence[int]
    vocabulary: Int[Tensor, "W"] | None = None


class Decodes(Protocol):
    """The part of a task that the engine needs (`foveate.tasks.base.Generates`)."""

    start: int
    end: int

    @property
    def output_tokenizer(self) -> Tokenizer: ...

    def decoding_batches(
        self, model: Module, sources: Sequence[Source], request: SearchRequest
    ) -> Iterator[DecodingBatch]: ...

    def text_of(self, ids: Sequence[int]) -> str: ...


def built(request: SearchRequest, tokenizer: Tokenizer) -> tuple[Search, Constraints]:
    """The search of a request and what its outputs keep to, over the tokens of a vocabulary.

    Raises ``ConfigError`` for required terms without a plain beam.
    """
    search, required = request.search, list[RequiredPhrases]()
    if any(request.required):
        phrases = phrases_of(request.required, search.config.kind, tokenizer)
        required = [RequiredPhrases(tuple(each), word_pieces(tokenizer)) for each in phrases]
        search = LexicalBeam(search.config)
    rules = [Banned(request.banned, tokenizer)] if request.banned else []
    table = byte_table(tokenizer)
    return search, Constraints(request.prefixes, rules, required, table, request.stop)


def descendants(module: nn.Module) -> list[nn.Module]:
    """A module and all modules in it; ten times as fast as ``modules()``."""
    modules = [module]
    for each in modules:
        modules += [part for part in each._modules.values() if part is not None]
    return modules


def observed(module: nn.Module) -> bool:
    """Whether a tap, hook or method of its own reads or changes what a module computes."""
    tapped = isinstance(module, BaseAttention) and module.observed
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    return tapped or hooked or not as_written(module)


def in_single_precision(modules: Sequence[nn.Module]) -> bool:
    """Whether all weights are fp32 in main memory."""
    each = (weights for part in modules for weights in (part._parameters, part._buffers))
    tensors = (tensor for weights in each for tensor in weights.values() if tensor is not None)
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)


_COMPILED = WeightCache[tuple[CompiledModel | None]]()


def compiled(model: nn.Module) -> CompiledModel | None:
    """A model for the engine in C, with its present weights; made again once these have changed.

    None where it is in training, has taps or hooks, weights that are not finite numbers of fp32 in
    main memory or a part that the engine lacks, and without native kernels, which notice changes.
    """
    modules = descendants(model)
    if library() is None or any(module.training or observed(module) for module in modules):
        return None
    return _COMPILED.get(model, modules, lambda: (_compiled(model, modules),))[0]


def _compiled(model: nn.Module, modules: Sequence[nn.Module]) -> CompiledModel | None:
    if not in_single_precision(modules):
        return None
    try:
        return compile_model(model)
    except UserError:  # the engine lacks a part, or a library for this processor
        return None


def compile_model(model: nn.Module, int8: bool = False) -> CompiledModel:
    """A model for the engine in C; ``int8`` rounds its matrices. Raises `UserError`."""
    program = Program(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise UserError("the model holds numbers that are not finite")
    return CompiledModel(program.numbers, tensors, frozenset(program.maps if int8 else ()))


def packed_engine(task: Any, kind: TaskKind, model: Module, own: CompiledModel) -> PackedEngine:
    """The engine in C for a task and what was compiled of its model."""
    tokenizers = list(task.tokenizers_by_name().values())
    return PackedEngine(own, kind, tokenizers, torch.get_num_threads(), task.reach(model))


class TorchEngine(Engine):
    """A task and its model, or several models together."""

    name, can = "torch", ALL

    def __init__(self, task: Any, model: Module) -> None:
        self.task, self._model = task, model

    @property
    def model(self) -> Module:
        return self._model

    @torch.inference_mode()
    def search(self, sources: Sequence[Source], request: SearchRequest) -> Iterator[Result]:
        task: Decodes = self.task
        check_lists(len(sources), request.prefixes, request.required)
        if (packed := self._packed(request)) is not None:
            yield from packed.search(sources, request)
            return
        search, constraints = built(request, task.output_tokenizer)
        end, room = task.end if request.end is None else request.end, self.room
        sources = [ids[: room.source] if isinstance(ids, list) else ids for ids in sources]
        for batch in task.decoding_batches(self.model, sources, request):
            constraints = replace(constraints, longest=room.left(max(batch.lengths)))
            outputs = search(
                batch.steps, batch.lengths, task.start, end, batch.places, constraints,
                batch.vocabulary,
            )  # fmt: skip
            ranked = [search.decide(each, task.text_of)[: request.num] for each in outputs]
            yield Result(batch.places, ranked)

    @property
    def room(self) -> Room:
        """Known by the parts that have a ``max_length``: tables of positions, scores by place."""
        if self.task.packed_kind == "language":  # it reads past its reach anew
            return Room()
        limits: dict[bool, list[int]] = {True: [], False: []}
        for name, module in self._model.named_modules():
            most = getattr(getattr(module, "config", None), "max_length", None)
            if isinstance(most, int) and not getattr(module, "gives_weights", False):
                reads = "encoder" in name.split(".") or isinstance(module, Location)
                limits[reads].append(most)
        encodes = any("encoder" in name.split(".") for name, _ in self._model.named_modules())
        encoder, decoder = (min(limits[reads], default=2**24) for reads in (True, False))
        ends = 2 if self.task.gives == "label" else 1
        return Room.of(encoder if encodes else 0, decoder, ends)

    def _packed(self, request: SearchRequest) -> PackedEngine | None:
        """The engine in C with the weights of the model; None where PyTorch answers a request."""
        task, kind = self.task, self.task.packed_kind
        alone = request.search.width == 1 and any(request.required)  # no beam, to the engine in C
        if kind is None or alone or (model := compiled(self.model)) is None:
            return None
        engine = packed_engine(task, kind, self.model, model)
        try:
            engine.check(request)
        except EngineError:
            return None
        if kind == "translation" and request.shortens:
            engine.shortlist = task.shortlist().arrays
        return engine

    @torch.inference_mode()
    def positions(self, source: Source, request: SearchRequest) -> Positions:
        task: Decodes = self.task
        search, constraints = built(request, task.output_tokenizer)
        end = task.end if request.end is None else request.end
        for batch in task.decoding_batches(self.model, [source], request):
            (outputs,) = yield from search.positions(
                batch.steps, batch.lengths, task.start, end, batch.places, constraints,
                batch.vocabulary,
            )  # fmt: skip
            return [search.decide(outputs, task.text_of)[: request.num]]
        return [[]]

    def score(self, pairs: Sequence[tuple[Source, Ids]]) -> list[list[float]]:
        scores: list[list[float]] = self.task.force(self.model, pairs)
        return scores

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        links: list[Links] = self.task.links(self.model, pairs, head)
        return links

    def explain(self, source: Picture, target: str | Ids | None, units: Units) -> AttentionRecord:
        record: AttentionRecord = self.task.explain(self.model, source, target, units=units)
        return record
