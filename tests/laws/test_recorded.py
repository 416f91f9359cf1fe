"""Steps that are recorded and played find what steps find, batch after batch.

A processor does again what a GPU plays; all else is the same there.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from foveate.decode.search import Hypothesis, Search
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.recorded import Play, RecordedReading, Recording, recorder, records
from laws.conftest import DEVICES
from laws.test_native import END, SEARCHES, SHAPES, VOCABULARY, made, same

FAMILIES = ["pre", "post", "no places, no bias", "ssru"]
BATCHES = [[9, 4, 7, 1, 9], [8, 3, 6, 5, 2, 2], [5], [9, 9, 9, 9, 9], [3, 8, 8, 1, 2, 7, 4]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is soon too little, so that recordings go on in larger ones."""
    monkeypatch.setattr("foveate.models.recorded.ROOM", 4)


def again(device: torch.device) -> Callable[[Play], Play]:
    """A recorder of processors, which does a step again as it was; it keeps its readings alive."""
    return recorder(device) or (lambda play: play)


def found(
    model: EncoderDecoder, config: Search.Config, lengths: list[int], seed: int, recorded: bool
) -> list[list[Hypothesis]]:
    device = model.output.weight.device
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    keys = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    memory = model.encode(source.to(device), keys.to(device))
    steps = DecoderSteps(model, memory, plain=True)
    if recorded:
        assert records(model, model.output, memory)
        steps.native = RecordedReading(model, model.output, memory)
    search: Search = config.like(config, max_ratio=1.0, max_extra=6).build()
    return search(steps, lengths, 2, END)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("shape", FAMILIES)
@torch.no_grad()
def test_every_search_finds_the_same(
    shape: str, config: Search.Config, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times: steps are done, recorded, and played with other sources."""
    monkeypatch.setattr("foveate.models.recorded.recorder", again)
    model = made(**SHAPES[shape])
    model.output.weight[END] *= 2.0  # some end by themselves
    other = copy.deepcopy(model).to(device)
    for round_ in range(3):
        for number, lengths in enumerate(BATCHES):
            seed = 10 * round_ + number
            wanted = found(model, config, lengths, seed, recorded=False)
            same(found(other, config, lengths, seed, recorded=True), wanted)


@torch.no_grad()
def test_a_shape_that_comes_again_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made_of = list[Any]()
    record = Recording.__init__

    def counted(self: Recording, *inputs: Any) -> None:
        made_of.append(inputs[0])
        record(self, *inputs)

    monkeypatch.setattr(Recording, "__init__", counted)
    model = made()
    for seed in range(4):
        found(model, SEARCHES["beam"], [9, 4, 7, 1, 9], seed, recorded=True)
    assert len(made_of) == len(set(made_of)) <= 3  # of 4, 8 and 16 tokens


@torch.no_grad()
def test_what_asks_the_device_is_not_recorded() -> None:
    model, blind = made(), torch.zeros(1, 3, dtype=torch.bool)
    memory = model.encode(torch.ones(1, 3, dtype=torch.long))
    assert records(model, model.output, memory)
    memory.keys = blind
    assert not records(model, model.output, memory)
    learned = made(**SHAPES["learned"])
    assert not records(learned, learned.output, learned.encode(torch.ones(1, 3, dtype=torch.long)))


@torch.no_grad()
def test_recordings_go_with_their_model() -> None:
    model = made()
    found(model, SEARCHES["beam"], [9, 4], 0, recorded=True)
    decoder = weakref.ref(model.decoder)
    del model
    gc.collect()
    assert decoder() is None
