"""foveate's searches over an untrained model of a shape: PyTorch's, and the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import common
import numpy as np
import torch
from common import Job

from foveate.bench.decoding import WHOLE, forced
from foveate.bench.training import workload
from foveate.data.corpus import Arrays, Work, Workers
from foveate.data.tokenizer import BOS, EOS
from foveate.engine.base import SearchRequest
from foveate.engine.compiled import CompiledModel, CompiledSearch, Settings
from foveate.engine.program import Program
from foveate.engine.pytorch import compile_model, packed_engine
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.presets import TransformerSSRU
from foveate.models.transformer import SSRUDecoder, TransformerEncoder
from foveate.spec import Tokens
from foveate.train.config import resolve

ALONE = 10**9  # source tokens: a batch is not cut up
CHUNK = 128  # sentences of the whole corpus that a process is given at once
Ids = list[list[int]]
Call = Callable[[Ids, int, int | None], Any]


def searcher(values: Mapping[str, Any]) -> Work:
    """The work of one process: ``numbers`` is fp32, bf16 or int8."""
    torch.set_num_threads(values["threads"])
    with workload(values["shape"]) as work:
        model, task = work.model().eval(), work.task
    engine = task.engine(model)
    if values["numbers"] == "int8":
        engine = packed_engine(task, task.packed_kind, model, compile_model(model, int8=True))
    precision = resolve("bf16" if values["numbers"] == "bf16" else "fp32", torch.device("cpu"))

    def search(sentences: Ids, beam: int, rows: int | None) -> Arrays:
        with precision.context():
            request = SearchRequest(forced(beam), batch_tokens=beam * (ALONE if rows else WHOLE))
            result = engine.outputs(sentences, request)
        return {"lengths": np.array([len(each[0].ids) for each in result])}

    return search


@contextmanager
def searching(values: Mapping[str, Any], processes: int) -> Iterator[Call]:
    """A search over so many sentences by so many processes; batches have ``rows`` sentences."""
    if processes == 1:
        yield searcher(values)
        return
    with Workers(searcher, values, processes) as workers, ThreadPoolExecutor(processes) as threads:

        def call(sentences: Ids, beam: int, rows: int | None) -> None:
            size = rows or CHUNK
            spans = range(0, len(sentences), size)
            parts = [(sentences[n : n + size], beam, rows) for n in spans]
            list(threads.map(workers, parts))

        yield call


def model_of(job: Job) -> EncoderDecoder:
    """The untrained model of a shape; tiny11 is that of Bergamot, with 32,000 pieces."""
    if job.shape != "tiny11":
        with workload(job.shape) as work:
            return work.model().eval()
    sizes = job.sizes
    each = {"num_heads": sizes["heads"], "ffn_size": sizes["ffn"], "hidden_size": sizes["size"]}
    config = TransformerSSRU(
        encoder=TransformerEncoder.Config(num_layers=sizes["layers"], **each),
        decoder=SSRUDecoder.Config(num_layers=job.layers_that_write, **each),
    )
    tokens = Tokens(common.TINY11_PIECES)
    return config.build(tokens, tokens).eval()


class EngineSearch:
    """The engine on so many threads, each of which takes its share of a batch."""

    def __init__(self, job: Job, numbers: str, threads: int) -> None:
        program = Program(model_of(job))
        tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
        maps = frozenset(program.maps if numbers == "int8" else ())
        self.model, self.threads = CompiledModel(program.numbers, tensors, maps), threads
        self.pool = ThreadPoolExecutor(threads)
        self.shortlist = common.shortlist(job) if job.shape == "tiny11" else None

    def __call__(self, sentences: Ids, beam: int, rows: int | None) -> None:
        size = -(-len(sentences) // self.threads)
        shares = [sentences[n : n + size] for n in range(0, len(sentences), size)]
        list(self.pool.map(lambda share: self._search(share, beam), shares))

    def _search(self, share: Ids, beam: int) -> None:
        settings = Settings(
            BOS, EOS, beam, length_penalty=0.6 if beam > 1 else 0.0, min_length=common.OUTPUT
        )
        limits = [common.OUTPUT] * len(share)
        sources = [[*ids, EOS] for ids in share]
        allowed = [self._allowed(ids) for ids in sources] if self.shortlist else ()
        CompiledSearch(self.model, settings).outputs(sources, limits, (), allowed)

    def _allowed(self, ids: list[int]) -> list[int]:
        assert self.shortlist is not None
        often, likely = self.shortlist
        return sorted({*often, *(partner for i in ids for partner in likely[i])})
