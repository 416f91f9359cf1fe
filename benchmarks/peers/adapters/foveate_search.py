"""foveate's searches over an untrained model of a shape: PyTorch's, and the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import common
import numpy as np
import torch
from common import Job

from foveate.data.corpus import Arrays, Work, worker_processes
from foveate.decode.engine import SearchRequest
from foveate.engine.packed import PackedEngine, PackedSearch
from foveate.engine.program import compile_model
from foveate.measure.decoding import WHOLE, forced
from foveate.measure.training import workload
from foveate.models.mamba import SSRUDecoder
from foveate.models.presets import PRESETS
from foveate.models.transformer import TransformerEncoder
from foveate.nn.spec import Tokens
from foveate.run import packed_engine, packed_kind
from foveate.tasks.engine import TorchEngine
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
    engine = TorchEngine(task, model)
    if values["numbers"] == "int8":
        engine = packed_engine(task, packed_kind(task), model, compile_model(model, int8=True))
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
    with worker_processes(searcher, values, processes) as answers:

        def call(sentences: Ids, beam: int, rows: int | None) -> None:
            size = rows or CHUNK
            spans = range(0, len(sentences), size)
            parts = [(sentences[n : n + size], beam, rows) for n in spans]
            list(answers(parts))

        yield call


def engine_of(job: Job, numbers: str) -> PackedEngine:
    """The engine in C with the untrained model of a shape; tiny11 is Bergamot's, with a shortlist.

    The tokenizers only stand there: what is searched are ids, of any 32,000 pieces for tiny11.
    """
    with workload("small" if job.shape == "tiny11" else job.shape) as work:
        tokenizers = list(work.task.tokenizers_by_name().values())
        model = work.model() if job.shape != "tiny11" else tiny11(job)
    own = compile_model(model.eval(), int8=numbers == "int8")
    engine = PackedEngine(own, "translation", tokenizers, job.threads)
    if job.shape == "tiny11":
        engine.shortlist = [np.array(ids, dtype=np.int32) for ids in common.shortlist(job)]
    return engine


def tiny11(job: Job) -> torch.nn.Module:
    """An encoder of six layers and a recurrent decoder of two."""
    sizes = job.sizes
    each = {"num_heads": sizes["heads"], "ffn_size": sizes["ffn"], "hidden_size": sizes["size"]}
    config = PRESETS["transformer-ssru"](
        encoder=TransformerEncoder.Config(num_layers=sizes["layers"], **each),
        decoder=SSRUDecoder.Config(num_layers=job.layers_that_write, **each),
    )
    tokens = Tokens(common.TINY11_PIECES)
    return config.build(tokens, tokens)


def forced_search(beam: int, shortlist: bool) -> PackedSearch:
    """A search of the engine whose outputs all have as many tokens."""
    return PackedSearch(
        beam_size=beam, length_penalty=0.6 if beam > 1 else 0.0, min_length=common.OUTPUT,
        max_ratio=0.0, max_extra=common.OUTPUT, whole_characters=False, shortlist=shortlist,
    )  # fmt: skip
