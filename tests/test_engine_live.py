"""A model that PyTorch holds is searched by the engine in C, with its present weights."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import foveate
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest
from foveate.decode.search import token_log_probabilities
from foveate.engine.compiled import CompiledSearch, Settings
from foveate.look.edits import edit, silenced
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from foveate.models.presets import PRESETS
from foveate.models.transformer import EncoderLayer
from foveate.nn.context import Mask
from foveate.nn.native.kernels import library, without_kernels
from foveate.nn.positions import Position
from foveate.run import Run, compiled
from laws.conftest import build
from test_packed import same_answers
from tolerances import MODEL, close, differ

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler: modules compute")

VOCABULARY, START, END = 67, 2, 3
SOURCE, TARGET = [9, 20, 4, 61], [30, 7, 7, 44, END]
SIZES = {"hidden_size": 24, "num_heads": 3, "num_layers": 2, "ffn_size": 36, "dropout": 0.0}


def made() -> EncoderDecoder:
    """A small translator with weights that are not those of a start."""
    parts = [each.Config.parse({"kind": "transformer"} | SIZES) for each in (Encoder, Decoder)]
    config = PRESETS["transformer-small"](encoder=parts[0], decoder=parts[1])
    model = build(config, vocabulary=VOCABULARY)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape)
    return model.eval()


def by_engine(model: EncoderDecoder) -> Tensor:
    """Log p of the target's tokens by the engine in C."""
    search = CompiledSearch(compiled(model), Settings(START, END))
    return torch.from_numpy(search.log_probabilities(SOURCE, TARGET))


def by_modules(model: EncoderDecoder) -> Tensor:
    source, read, target = (torch.tensor([i]) for i in (SOURCE, [START, *TARGET[:-1]], TARGET))
    return token_log_probabilities(model(source, read), target)[0]


class OwnLayer(EncoderLayer):
    def forward(self, x: Tensor, mask: Mask, position: Position) -> Tensor:
        return x + super().forward(x, mask, position)


class OwnMap(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def put(modules: Any, place: Any, own: nn.Module) -> None:
    modules[place] = own.eval()


LEFT: dict[str, Callable[[Any], object]] = {
    "hook": lambda m: m.decoder.layers[0].register_forward_hook(lambda *_: None),
    "hook before": lambda m: m.encoder.layers[0].register_forward_pre_hook(lambda *_: None),
    "tap": lambda m: setattr(m.decoder.layers[0].cross_attention, "tap", lambda weights: None),
    "in training": lambda m: m.encoder.layers[0].train(),
    "double": lambda m: m.double(),
    "not a number": lambda m: m.output.weight.data[5].fill_(torch.nan),
    "own method": lambda m: setattr(m.encoder.layers[0], "forward", lambda x, *_: x),
    "own class": lambda m: setattr(m.output, "__class__", OwnMap),
    "own layer": lambda m: put(m.encoder.layers, 1, OwnLayer(m.encoder.config)),
    "own map": lambda m: put(m._modules, "output", OwnMap(24, VOCABULARY, bias=False)),
}


@pytest.mark.parametrize("change", LEFT)
def test_what_the_engine_does_not_compute_is_left_to_the_modules(change: str) -> None:
    model = made()
    assert compiled(model) is compiled(model) is not None
    with without_kernels():
        assert compiled(model) is None
    LEFT[change](model)
    assert compiled(model) is None


def announced(weight: nn.Parameter) -> None:
    weight.data[1:].mul_(1.1)
    foveate.changed()


CHANGES: dict[str, Callable[[nn.Parameter], object]] = {
    "scaled": lambda weight: weight.mul_(1.1),
    "scaled data": lambda weight: weight.data.mul_(1.1),
    "replaced data": lambda weight: setattr(weight, "data", weight * 1.1),
    "announced": announced,
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_are_read_anew(change: Callable[[nn.Parameter], object]) -> None:
    model = made()
    before, other = by_engine(model), copy.deepcopy(model)
    for weight in model.parameters():
        change(weight)
    after = by_engine(model)
    assert differ(before, after, terms=MODEL)
    close(after, by_modules(model), terms=MODEL)
    close(before, by_modules(other), terms=MODEL)
    close(before, by_engine(other))


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_weights_are_read_anew_after_a_step_of_training(fused: bool) -> None:
    """A fused step does not count what it changes in the tensors' versions."""
    model = made()
    by_engine(model)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused).step()
    with torch.no_grad():
        close(by_engine(model), by_modules(model), terms=MODEL)


def test_what_was_compiled_goes_with_its_model() -> None:
    model = made()
    parts = [weakref.ref(compiled(model)), weakref.ref(model.encoder), weakref.ref(model.output)]
    del model
    gc.collect()
    assert [part() for part in parts] == [None, None, None]


@pytest.mark.parametrize("name", ["transformer", "rnn"])
@pytest.mark.parametrize("threads", [1, 3])
def test_outputs_are_those_of_the_modules(runs: dict[str, Run], name: str, threads: int) -> None:
    run = runs[name]
    lines = [*run.pairs("train")[0], "", "a unknown b"]
    word = str(run.translate(lines[:1])[0]).split(" ")[0]
    torch.set_num_threads(threads)
    try:
        for how in ({"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 3}, {"prefix": word},
                    {"beam_size": 3, "banned": [word]},
                    {"beam_size": 3, "required": [[[word]]] * len(lines)}):  # fmt: skip
            ours = run.translate(lines, **how)
            with without_kernels():
                same_answers(ours, run.translate(lines, **how))
    finally:
        torch.set_num_threads(1)


def test_continuations_are_those_of_the_modules(runs: dict[str, Run]) -> None:
    for how in ({"beam_size": 1}, {"beam_size": 3, "whole_lines": True},
                {"seed": 3, "top_k": 5, "num": 2, "num_samples": 3}):  # fmt: skip
        ours = runs["language"].generate(["", "a b"], max_length=12, **how)
        with without_kernels():
            theirs = runs["language"].generate(["", "a b"], max_length=12, **how)
        assert [c.text for c in ours] == [c.text for c in theirs]


class OwnBeam(Beam):
    """Somebody's own beam with the config of the usual one."""


def test_which_requests_the_modules_answer(runs, monkeypatch) -> None:
    """The engine has neither a diverse beam nor silenced heads, nor another's task."""

    class Other(type(runs["transformer"].task)):  # type: ignore[misc]
        pass

    run, asked = runs["transformer"], list[int]()
    batches = type(run.task).decoding_batches

    def counted(*arguments):
        asked.append(1)
        return batches(*arguments)

    monkeypatch.setattr(type(run.task), "decoding_batches", counted)
    run.translate(["a b"])
    assert not asked
    run.decoding("diverse_beam", beam_size=2, groups=2).translate(["a b"])
    assert len(asked) == 1
    run.engine.outputs([[5, 6]], SearchRequest(OwnBeam(Beam.Config())))
    assert len(asked) == 2
    with edit(run.model, silenced(["decoder.layers.0.cross_attention:0"])):
        run.translate(["a b"])
    assert len(asked) == 3
    monkeypatch.setattr(run.task, "__class__", Other)
    run.translate(["a b"])
    assert len(asked) == 4
