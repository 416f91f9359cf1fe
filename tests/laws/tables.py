"""Toy models given by tables, for the laws of search: `Steps` with nothing learnt."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from foveate.decode.search import Hypothesis, Search
from tolerances import MODEL, near

START, A, B, C, END = 9, 0, 1, 2, 3
Prefix = tuple[int, ...]
Table = Callable[[Prefix], Sequence[float]]


class Tables:
    """A batch of sources, each with a table p(next | written): `Steps` with nothing learnt."""

    device, enters = torch.device("cpu"), False

    def __init__(self, tables: Sequence[Table]) -> None:
        self.sources = list(tables)
        self.written: list[Prefix] = [()] * len(tables)
        self.begun = False

    def step(self, ids: Tensor) -> Tensor:
        assert len(ids) == len(self.written), "a row for each hypothesis"
        if self.begun:
            rows = zip(self.written, ids.tolist(), strict=True)
            self.written = [(*prefix, token) for prefix, token in rows]
        else:
            assert set(ids.tolist()) == {START}
        self.begun = True
        each = len(ids) // len(self.sources)
        result = [self.sources[i // each](prefix) for i, prefix in enumerate(self.written)]
        return torch.tensor(result).log() + 0.7  # logits may stand anywhere

    def reorder(self, rows: Tensor) -> None:
        self.written = [self.written[row] for row in rows.tolist()]

    def select(self, sources: Tensor) -> None:
        self.sources = [self.sources[source] for source in sources.tolist()]


def random_table(seed: int, vocabulary: int = 4, ending: float = 1.0) -> Table:
    """A table of chance; ``ending`` makes ends more probable, or less."""

    def table(prefix: Prefix) -> Sequence[float]:
        generator = torch.Generator().manual_seed(hash((seed, prefix)) % 2**31)
        probabilities: list[float] = torch.rand(vocabulary, generator=generator).add(0.01).tolist()
        probabilities[END] *= ending
        return [p / sum(probabilities) for p in probabilities]

    return table


def log_p(table: Table, output: Prefix) -> float:
    return sum(math.log(table(output[:t])[token]) for t, token in enumerate(output))


def everything(table: Table, limit: int) -> list[tuple[float, Prefix, bool]]:
    """Every output of at most ``limit`` tokens, its end included: log p, ids, whether it ended."""
    result = []
    for length in range(limit):
        for prefix in itertools.product((A, B, C), repeat=length):
            result.append((log_p(table, (*prefix, END)), prefix, True))
    for prefix in itertools.product((A, B, C), repeat=limit):
        result.append((log_p(table, prefix), prefix, False))
    return result


def search(
    config: Search.Config,
    tables: Sequence[Table],
    lengths: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    built: Search = config.build().after(prefixes)
    return built(Tables(tables), lengths or [1] * len(tables), START, END, rows)


def alike(left: Sequence[Hypothesis], right: Sequence[Hypothesis]) -> None:
    assert [h.ids for h in left] == [h.ids for h in right]
    assert [h.ended for h in left] == [h.ended for h in right]
    for item, other in zip(left, right, strict=True):
        assert item.log_probability == near(other.log_probability, terms=MODEL)
        assert item.score == near(other.score, terms=MODEL)


def limit(extra: int, ratio: float = 0.0) -> dict[str, Any]:
    return {"max_ratio": ratio, "max_extra": extra}
