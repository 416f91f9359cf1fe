"""The engine that computes in PyTorch and in the kernels of `foveate.native`: any model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from foveate.align.aer import Head, Links
from foveate.data.tokenizer import Tokenizer
from foveate.decode.constraints import Steps
from foveate.decode.search import Positions
from foveate.engine.base import (
    ALL,
    Engine,
    Ids,
    Module,
    Picture,
    Result,
    SearchRequest,
    Source,
)
from foveate.inspect.records import AttentionRecord, Units


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
        search, constraints = request.built(task.output_tokenizer)
        end = task.end if request.end is None else request.end
        for batch in task.decoding_batches(self.model, sources, request):
            outputs = search(
                batch.steps, batch.lengths, task.start, end, batch.places, constraints,
                batch.vocabulary,
            )  # fmt: skip
            ranked = [search.decide(each, task.text_of)[: request.num] for each in outputs]
            yield Result(batch.places, ranked)

    @torch.inference_mode()
    def positions(self, source: Source, request: SearchRequest) -> Positions:
        task: Decodes = self.task
        search, constraints = request.built(task.output_tokenizer)
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
