"""Several models as one: the mean of p, by hand and through every search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.decode.search import EnsembleSteps, Search, log_mean_p
from laws.conftest import each
from laws.tables import END, START, Prefix, Table, Tables, alike, limit, random_table
from tolerances import ROW, close, near


def mean_of(tables: Sequence[Table]) -> Table:
    def table(prefix: Prefix) -> Sequence[float]:
        each = [item(prefix) for item in tables]
        return [sum(column) / len(each) for column in zip(*each, strict=True)]

    return table


def test_the_mean_is_of_probabilities() -> None:
    """By hand: 1/2 (0.8, 0.2) + 1/2 (0.4, 0.6) = (0.6, 0.4), wherever the logits stand."""
    logits = [torch.tensor([[0.8, 0.2]]).log() + 3, torch.tensor([[0.4, 0.6]]).log() - 70]
    close(log_mean_p(logits).exp(), torch.tensor([[0.6, 0.4]]))
    far = torch.tensor([[0.0, -200.0]])
    assert float(log_mean_p([far, far])[0, 1]) == near(-200.0, terms=ROW)


@each("search")
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
def test_searching_an_ensemble_is_searching_the_mean(config, seed, count) -> None:
    """Two sources, which leave the batch at different steps, in every member."""
    members = [[random_table(seed + 2 * m + s, ending=2.0) for s in range(2)] for m in range(count)]
    search = config.model_copy(update=limit(4)).build()
    together = search(EnsembleSteps([Tables(m) for m in members]), [1, 1], START, END)
    sources = [mean_of(tables) for tables in zip(*members, strict=True)]
    for result, expected in zip(together, search(Tables(sources), [1, 1], START, END), strict=True):
        alike(result, expected)


@each("search")
def test_a_model_with_itself_is_the_model(config: Search.Config) -> None:
    tables = [random_table(1), random_table(2)]
    search = config.model_copy(update=limit(5)).build()
    twice = search(EnsembleSteps([Tables(tables), Tables(tables)]), [1, 1], START, END)
    for result, expected in zip(twice, search(Tables(tables), [1, 1], START, END), strict=True):
        alike(result, expected)
