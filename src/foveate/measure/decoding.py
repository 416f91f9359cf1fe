"""Decoding speed in sentences per second, with every output forced to the same length.

An untrained model then does the work of a trained one, and every program the same work. Single
sentences and batches of 32 are timed over batches of the test data, short and long ones mixed;
the whole corpus is passed to the task at once, as ``foveate translate`` does.
"""

import itertools
import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import cast, get_args

from foveate.config import ConfigError, Tree
from foveate.decode.beam import Beam
from foveate.decode.engine import Engine, SearchRequest
from foveate.decode.search import Greedy, Search
from foveate.engine.program import compile_model
from foveate.measure.machine import ceilings, describe
from foveate.measure.training import Say, Workload, mute
from foveate.nn.native.kernels import sleep_at_barriers, without_kernels
from foveate.run import device, packed_engine, packed_kind
from foveate.tasks.engine import TorchEngine
from foveate.tasks.text import TextToText
from foveate.train.config import Name, Precision, resolve
from foveate.train.journal import peak_memory

LENGTH = 20  # tokens in each output
WHOLE = 4096  # source tokens per batch when the whole corpus is decoded
Ids = list[int]


# By the names used in tables: the beam size, and the sentences per batch (None: all at once).
CASES: dict[str, tuple[int, int | None]] = {
    "beam 5, batch 32": (5, 32),
    "greedy, batch 32": (1, 32),
    "beam 5, one by one": (5, 1),
    "greedy, one by one": (1, 1),
    "beam 5, whole corpus": (5, None),
}


def measure(
    work: Workload, seconds: float, sentences: int = 1000, precision: str = "fp32", say: Say = mute
) -> Tree:
    """Return sentences/s of each case, timed for about ``seconds`` and at least one whole corpus.

    fp32 and int8 run in the C engine if it supports the model, bf16 in PyTorch.
    ``say`` gets each stage as a sentence.

    Raises ``ConfigError`` if the task does not search for outputs of sources.
    """
    task, place = work.task, device()
    if not isinstance(task, TextToText):
        kind = work.config.task.kind
        raise ConfigError(f"bench decode needs a task with sources and a search, not {kind}")
    if precision not in (known := (*get_args(Name), "int8")):
        raise ConfigError(f"no precision {precision!r}; there are: {', '.join(known)}")
    before = ceilings(1.0, place)
    model = work.model().eval()
    numbers = resolve("fp32" if precision == "int8" else cast(Name, precision), place)
    engine: Engine = TorchEngine(task, model)
    if precision == "int8":
        if (kind := packed_kind(task)) is None:
            raise ConfigError(f"the engine, which has int8, lacks the task {work.config.task.kind}")
        engine = packed_engine(task, kind, model, compile_model(model, int8=True))
    by = nullcontext if numbers.name == "fp32" else without_kernels
    tested = task.source_tokenizer.encode_ids(task.corpus("test").sources[:sentences])
    sources = [ids[: work.config.data.max_length] for ids in tested]
    speeds = dict[str, float]()
    for name, case in CASES.items():
        say(f"{name}: {len(sources):,} sentences, for {seconds:g} s or more")
        with by():
            speeds[name] = round(speed(engine, sources, case, seconds, numbers), 2)
    return {
        "what": "decoding",
        **work.summary(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "precision": "int8" if precision == "int8" else numbers.name,
        "output_tokens": LENGTH,
        "sentences": len(sources),
        "sentences_per_second": speeds,
        "peak_memory_mib": peak_memory(place),
        "ceilings_gflops": {"before": before, "after": ceilings(1.0, place)},
        "machine": describe(),
    }


def speed(
    engine: Engine,
    sources: Sequence[Ids],
    case: tuple[int, int | None],
    seconds: float,
    precision: Precision,
) -> float:
    """Return sentences/s of a case over whole batches, after a warm-up batch."""
    sleep_at_barriers()
    beam_size, rows = case
    batches = batches_of(sources, rows)
    budget = WHOLE if rows is None else 10**9  # tokens; a single batch is not split
    request = SearchRequest(forced(beam_size), batch_tokens=budget * beam_size)
    done = 0
    with precision.context():
        engine.outputs(list(sources[: rows or 64]), request)
        started = time.perf_counter()
        for batch in itertools.cycle(batches):
            engine.outputs(batch, request)
            done += len(batch)
            if (passed := time.perf_counter() - started) >= seconds:
                break
    return done / passed


def batches_of(sources: Sequence[Ids], rows: int | None) -> list[list[Ids]]:
    """Return batches of ``rows`` sentences of similar length, in a fixed random order.

    A measurement that ends early has then seen both short and long ones.
    """
    if rows is None:
        return [list(sources)]
    ordered = sorted(sources, key=len)
    batches = [ordered[n : n + rows] for n in range(0, len(ordered), rows)]
    random.Random(1).shuffle(batches)
    return batches


def forced(beam_size: int, length: int = LENGTH) -> Search:
    """Return a search whose outputs all have ``length`` tokens: a rule and limits ensure it."""
    rules = [{"kind": "min_length", "length": length}]
    limits: Tree = {"max_ratio": 0.0, "max_extra": length, "rules": rules}
    wide = {"beam_size": beam_size} if beam_size > 1 else {}
    return (Beam if wide else Greedy).Config.parse({**wide, **limits}).build()
