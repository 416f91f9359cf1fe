"""Toy models given by tables, for the laws of search: `Steps` with nothing learnt."""

import itertools
from collections.abc import Sequence
from typing import Any

from foveate.decode.constraints import Constraints, DecodingBatch
from foveate.decode.engine import Hypothesis
from foveate.decode.search import Search
from foveate.measure.laws.searches import END, START, A, B, C, Prefix, Table, Tables, log_p
from tolerances import MODEL, near


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
    built: Search = config.build()
    lengths = lengths or [1] * len(tables)
    batch = DecodingBatch(rows or range(len(tables)), Tables(tables), lengths)
    return built(batch, START, END, Constraints(prefixes))


def alike(left: Sequence[Hypothesis], right: Sequence[Hypothesis]) -> None:
    assert [h.ids for h in left] == [h.ids for h in right]
    assert [h.ended for h in left] == [h.ended for h in right]
    for item, other in zip(left, right, strict=True):
        assert item.log_probability == near(other.log_probability, terms=MODEL)
        assert item.score == near(other.score, terms=MODEL)


def limit(extra: int, ratio: float = 0.0) -> dict[str, Any]:
    return {"max_ratio": ratio, "max_extra": extra}
