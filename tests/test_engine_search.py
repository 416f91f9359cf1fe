"""Searches of the compiled engine have the outputs of `foveate.decode`, token by token."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from foveate.decode.beam import Beam, Greedy
from foveate.decode.constraints import FREE, Constraints, Steps
from foveate.decode.sample import Sample, uniform
from foveate.decode.search import Hypothesis, Search
from foveate.engine.compiled import (
    CompiledModel,
    CompiledSearch,
    EngineFailure,
    EngineOutput,
    Sampling,
    Settings,
)
from foveate.models.encoder_decoder import DecoderSteps
from foveate.models.language_model import LanguageSteps
from foveate.spec import Tokens
from test_engine_compiled import (
    END,
    NEVER,
    SIZE,
    START,
    built,
    compiled,
    mamba,
    recurrent,
    tensor,
    texts,
    transformer,
)

LANGUAGE = "language model"
FAMILIES = {
    "transformer": (transformer(), transformer()),
    "ssru": (transformer(norm_order="post"), transformer(kind="ssru")),
    "gru": (recurrent(bidirectional=True), recurrent(attention={"query": "previous"})),
    "lstm": (recurrent(cell="lstm"), recurrent(cell="lstm", attention={"query": "current"})),
    "mamba": (mamba(), mamba()),
    f"transformer {LANGUAGE}": transformer(position="rope", norm="rms_norm"),
    f"recurrent {LANGUAGE}": recurrent(num_layers=2),
    f"mamba {LANGUAGE}": mamba(),
}
SOURCES = texts(6)
LIMITS = [2 * len(source) + 8 for source in SOURCES]
PREFIXES = [[], [5], [9, 8, 7], [4] * 12, [30, END], [6, 6]]


@dataclass(frozen=True)
class Family:
    """A model with weights of which few outputs are equally good, in PyTorch and in the engine."""

    steps: Callable[[Sequence[int]], Steps]
    engine: CompiledModel
    settings: Settings  # greedy search
    ends: tuple[int, ...]  # after each source

    def read(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[*source, *self.ends] for source in sources]


@cache
def family(name: str) -> Family:
    if name.endswith(LANGUAGE):
        tree = {"kind": "language_model", "decoder": FAMILIES[name]}
        model = built(tree | {"tie": "none"}, Tokens(SIZE))
    else:
        encoder, decoder = FAMILIES[name]
        tree = {"kind": "encoder_decoder", "encoder": encoder, "decoder": decoder}
        model = built(tree | {"tie": "none"}, Tokens(SIZE), Tokens(SIZE))
    with torch.no_grad():
        model.output.weight.mul_(3)
    if name.endswith(LANGUAGE):
        return Family(
            lambda source: LanguageSteps(model, tensor(*source), never=NEVER),
            compiled(model),
            Settings(START, END, never=NEVER),
            (),
        )
    return Family(
        lambda source: DecoderSteps(model, model.encode(tensor(*source, END)), never=NEVER),
        compiled(model),
        Settings(START, END, never=NEVER),
        (END,),
    )


KINDS: dict[str, tuple[Search.Config, dict[str, Any]]] = {
    "greedy": (Greedy.Config(), {}),
    "beam": (Beam.Config(beam_size=4), {"width": 4, "best": 4, "length_penalty": 0.6}),
    "sample": (Sample.Config(num_samples=2), {"width": 2, "best": 2, "sampling": Sampling()}),
}
families = pytest.mark.parametrize("name", FAMILIES)


@torch.inference_mode()
def in_pytorch(
    own: Family, config: Search.Config, constraints: Constraints = FREE
) -> list[list[Hypothesis]]:
    """The outputs of each source, decoded alone; it keeps its number."""
    search = config.model_copy(update={"max_ratio": 2.0, "max_extra": 8}).build()
    return [
        search(own.steps(source), [len(source)], START, END, [n], constraints)[0]
        for n, source in enumerate(SOURCES)
    ]


def same(outputs: list[list[EngineOutput]], right: list[list[Hypothesis]]) -> None:
    """The same outputs in the same order, with the same scores."""
    for own, other in zip(outputs, right, strict=True):
        assert [(o.ids, o.ended) for o in own] == [(h.ids, h.ended) for h in other]
        for name, its in (("log_p", "log_probability"), ("score", "score")):
            expected = [getattr(h, its) for h in other]
            np.testing.assert_allclose([getattr(o, name) for o in own], expected, 2e-4, 2e-4)


# ---------------------------------------------------------------------------------------- sampling

SAMPLERS = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.1},
    "repetition": {"repetition_penalty": 1.5},
    "every filter": {
        "temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2,
        "seed": 2**64 + 7,
    },
}  # fmt: skip


def test_numbers_are_drawn_by_counters() -> None:
    """splitmix64 begins with these numbers (Vigna, 2015: the reference implementation, seed 0)."""
    assert uniform(0) == (0xE220A8397B1DCDAF >> 11) / 2**53
    places = itertools.product(range(2), range(50), range(50), range(1))
    drawn = [uniform(*place) for place in places]
    assert len(set(drawn)) == len(drawn)
    assert min(drawn) >= 0
    assert max(drawn) < 1
    assert np.histogram(drawn, 10, (0, 1))[0].tolist() == pytest.approx([500] * 10, abs=90)


@families
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seed_draws_what_it_draws_in_pytorch(name: str, kind: str) -> None:
    own, fields = family(name), SAMPLERS[kind]
    right = in_pytorch(own, Sample.Config(num_samples=3, **fields))
    settings = replace(own.settings, width=3, best=3, sampling=Sampling(**fields))
    outputs = CompiledSearch(own.engine, settings).outputs(own.read(SOURCES), LIMITS)
    same(outputs, right)
    another = replace(settings, sampling=Sampling(**fields | {"seed": 3}))
    others = CompiledSearch(own.engine, another).outputs(own.read(SOURCES), LIMITS)
    assert others != outputs


# ---------------------------------------------------------------------------------------- prefixes


@families
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_begin_with_a_prefix(name: str, kind: str) -> None:
    own = family(name)
    config, fields = KINDS[kind]
    right = in_pytorch(own, config, Constraints(prefixes=PREFIXES))
    limits = [max(n, len(prefix) + 8) for n, prefix in zip(LIMITS, PREFIXES, strict=True)]
    search = CompiledSearch(own.engine, replace(own.settings, **fields))
    same(search.outputs(own.read(SOURCES), limits, PREFIXES), right)


def test_a_prefix_of_unknown_ids_is_refused() -> None:
    own = family("transformer")
    with pytest.raises(EngineFailure, match="source 2 has an id that the model does not know"):
        CompiledSearch(own.engine, own.settings).outputs([[4], [4]], [5, 5], [[], [SIZE]])
