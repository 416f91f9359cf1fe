"""foveate's search over an untrained model of a shape, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from foveate.bench.decoding import WHOLE, forced
from foveate.bench.training import workload
from foveate.data.corpus import Arrays, Work, Workers
from foveate.engine.base import SearchRequest
from foveate.nn.linear import quantized
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
    if values["numbers"] == "int8":
        model = quantized(model)
    precision = resolve("bf16" if values["numbers"] == "bf16" else "fp32", torch.device("cpu"))

    def search(sentences: Ids, beam: int, rows: int | None) -> Arrays:
        with precision.context():
            request = SearchRequest(forced(beam), batch_tokens=beam * (ALONE if rows else WHOLE))
            result = task.engine(model).outputs(sentences, request)
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
