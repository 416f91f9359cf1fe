"""Programs that would lead the engine outside of its memory are refused, whatever they say."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from enum import IntEnum
from itertools import product
from pathlib import Path
from typing import Any

import fuzz_engine
import numpy as np
import pytest
from fuzz_engine import Marked, marked

from foveate.decode.engine import STOPS
from foveate.engine import codes
from foveate.engine.building import FOLDER
from foveate.engine.compiled import (
    REFUSALS,
    STAGES,
    CompiledModel,
    CompiledSearch,
    EngineFailure,
    Settings,
)
from foveate.nn.spec import Labels, Tokens
from test_engine_compiled import (
    ADDITIVE,
    END,
    SIZE,
    START,
    attention,
    built,
    mamba,
    pair,
    recurrent,
    transformer,
)


def marked_pair(encoder, decoder) -> Marked:
    return marked(pair(encoder, decoder))


def language(decoder) -> Marked:
    tree = {"kind": "language_model", "tie": "none", "decoder": decoder}
    return marked(built(tree, Tokens(SIZE)))


def parts(own: Marked, name: str) -> list[tuple[int, int]]:
    return sorted(place[1:] for place in own.spans if place[0] == name)


def with_part(own: Marked, place: tuple[int, int], numbers: list[float]) -> list[float]:
    return [*own.numbers[: place[0]], *numbers, *own.numbers[place[1] :]]


def with_number(own: Marked, at: int, *numbers: float) -> list[float]:
    return with_part(own, (at, at + len(numbers)), list(numbers))


def refuse(numbers: list[float], own: Marked, tensors=None, maps=frozenset()) -> None:
    CompiledModel(own.numbers, own.tensors)  # as it was it is none of these
    with pytest.raises(EngineFailure, match="its program does not fit"):
        CompiledModel(numbers, tensors or own.tensors, maps)


def test_the_numbers_of_parts_are_those_of_the_engine_in_c() -> None:
    text = "".join(path.read_text("utf-8") for path in FOLDER.glob("*.h"))
    enums = {
        name: [member.strip() for member in members.split(",")]
        for members, name in re.findall(r"typedef enum {([^}]*)} (\w+);", text)
    }
    stages, refusals, stops = (enums.pop(name) for name in ("Stage", "Refusal", "Stop"))
    del enums["How"]  # no number of a program
    own = {name: each for name, each in vars(codes).items() if isinstance(each, type(IntEnum))}
    del own["IntEnum"]
    assert {name: list(each.__members__) for name, each in own.items()} == enums
    assert [stage.replace("_", " ").lower() for stage in stages] == [*STAGES, "stages"]
    assert {int(refusal.split("=")[1]) for refusal in refusals} == {*REFUSALS, -2}
    assert [stop.lower() for stop in stops] == list(STOPS)


def test_a_unit_of_decoders_in_an_encoder() -> None:
    own = marked_pair(transformer(), transformer(kind="ssru"))
    blocks = parts(own, "block")
    unit = next(place for place in blocks if own.numbers[place[0]] == 1)
    refuse(with_part(own, blocks[0], own.numbers[slice(*unit)]), own)


def test_a_state_space_that_reads_backwards_in_a_decoder() -> None:
    own = marked_pair(mamba(), mamba())
    first, last = parts(own, "block")[0], parts(own, "block")[-2]
    refuse(with_part(own, last, own.numbers[slice(*first)]), own)


def test_states_of_an_encoder_that_has_none() -> None:
    own = marked_pair(transformer(), recurrent())
    [(begin, end)] = parts(own, "decoder")
    assert own.numbers[begin] == 1  # a map of the last state, whose two tensors stand at the end
    numbers = [2, *own.numbers[begin + 1 : end - 2], 0]  # handed over as it is
    refuse(with_part(own, (begin, end), numbers), own)


@pytest.mark.parametrize(("position", "at", "value"), [
    ("t5_causal", 2, 16), ("t5_causal", 2, 0), ("t5_causal", 1, 3), ("learned", 1, 0),
    ("rope", 1, np.nan), ("rope", 1, 1e39), ("sinusoidal", 0, 10),
])  # fmt: skip
def test_positions_out_of_bounds(position: str, at: int, value: float) -> None:
    own = language(transformer(position=position))
    [(begin, _)] = parts(own, "position")
    refuse(with_number(own, begin + at, value), own)


def test_biases_of_positions_for_fewer_heads() -> None:
    own = language(transformer(position="alibi"))
    [(begin, end)] = parts(own, "position")
    slopes = list(own.tensors)[int(own.numbers[end - 1])]
    refuse(with_number(own, begin - 1, 2), own, own.tensors | {slopes: own.tensors[slopes][:2]})


def with_ones(own: Marked, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors; those of the first layer's attention that end with a name have ones instead."""
    tensors = dict(own.tensors)
    for name, end in product(tensors, sizes):
        if ".0.self_attention." in name and name.endswith(end):
            tensors[name] = np.ones(sizes[end], dtype=np.float32)
    return tensors


def test_angles_for_heads_of_other_sizes() -> None:
    """The table of angles is that of the first layer."""
    own = language(transformer(position="rope"))
    at = parts(own, "attention")[1][0]
    refuse(with_number(own, at, 2, 2, 16, 16, 16), own)
    own = language(transformer(position="rope", attention=attention(score=ADDITIVE)))
    at, _ = parts(own, "attention")[0]
    sizes = {"key.weight": (24, 32), "key.bias": 24, "score.of_key": (4, 8, 6)}
    refuse(with_number(own, at, 4, 4, 8, 6), own, with_ones(own, sizes))


@pytest.mark.parametrize(("heads", "sizes"), [
    ((4, 4, 8, 6), {"key.weight": (24, 32), "key.bias": 24}),
    ((4, 3, 8, 8), {part + end: size for part in ("key", "value")
                    for end, size in ((".weight", (24, 32)), (".bias", 24))}),
])  # fmt: skip
def test_heads_that_do_not_fit_each_other(heads, sizes) -> None:
    own = language(transformer())
    at, _ = parts(own, "attention")[0]
    refuse(with_number(own, at, *heads), own, with_ones(own, sizes))


def test_tensors_without_numbers_and_missing_ones() -> None:
    own = language(transformer())
    for size in ((0,), (0, 4), (4, 0)):
        refuse(own.numbers, own, own.tensors | {"none": np.zeros(size, dtype=np.float32)})
    refuse([*own.numbers, 0], own)


def test_maps_of_more_bytes_than_their_sums_have_room_for() -> None:
    encoder = {"kind": "cbow", "embedding_size": 2**16 + 1}
    tree = {"kind": "classifier", "encoder": encoder, "pooling": "mean"}
    own = marked(built(tree, Tokens(5), Labels(("a", "b"))))
    refuse(own.numbers, own, maps=own.maps)


def test_a_search_does_what_its_model_can() -> None:
    tree = {"kind": "classifier", "encoder": transformer(), "pooling": "mean"}
    own = marked(built(tree, Tokens(SIZE), Labels(("a", "b"))))
    search = CompiledSearch(CompiledModel(own.numbers, own.tensors), Settings(START, END))
    own = language(transformer())
    writer = CompiledSearch(CompiledModel(own.numbers, own.tensors), Settings(START, END))
    for compute in (
        lambda: search.outputs([[5]], [3]),
        lambda: search.log_probabilities([5], []),
        lambda: search.label_scores([5], 1),
        lambda: writer.label_scores([5], 0),
    ):
        with pytest.raises(EngineFailure, match="a model of another kind, or with other labels"):
            compute()


def test_sanitizers_find_nothing_in_changed_programs(tmp_path: Path) -> None:
    """`benchmarks/durability fuzz --only engine` for some seconds."""
    command = [shutil.which("gcc") or "true", "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True)
    if not Path(library.stdout.decode().strip() or "none").is_absolute():
        pytest.skip("no gcc with sanitizers")
    report = fuzz_engine.fuzz(5, tmp_path)
    assert report["executions"] > report["read"] > 0
    assert not report["findings"]
