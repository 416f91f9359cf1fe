"""Native steps and PyTorch's are one: the same numbers, for every way of decoding."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import foveate
from foveate.decode.beam import DiverseBeam, Greedy
from foveate.decode.constraints import Constraints, MinLength, NoRepeat
from foveate.decode.outputs import Hypothesis
from foveate.decode.search import EnsembleSteps, Search, Steps
from foveate.models.encoder_decoder import Decoder, DecoderSteps, Encoder, EncoderDecoder
from foveate.models.native import LONGEST, NativeSteps, decoder_steps, native_memory, native_steps
from foveate.models.presets import TransformerSmall
from foveate.models.transformer import EncoderLayer, TransformerEncoder
from foveate.native.kernels import highest, library, log_sum_exp
from foveate.nn.context import Mask
from foveate.nn.linear import Int8Linear, quantized
from foveate.nn.positions import Position
from laws.conftest import build, defaults
from tolerances import MODEL, close, differ, near

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler: there is one road")

VOCABULARY, END = 67, 3  # no multiple of a panel
LENGTHS = [9, 4, 7, 1, 9]
SOURCE = torch.randint(4, VOCABULARY, (5, 9), generator=torch.Generator().manual_seed(1))
KEYS = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
SIZES = {"hidden_size": 24, "num_heads": 3, "num_layers": 2, "ffn_size": 36, "dropout": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_order": "post"},
    "learned": {"position": {"kind": "learned", "max_length": 40}},
    "no places, no bias": {"position": "none", "attention": {"kind": "full", "bias": False}},
    "embedding norm": {"embedding_norm": {"kind": "layer_norm", "eps": 1e-3}},
    "one head": {"num_heads": 1},
    "ssru": {"kind": "ssru"},
    "ssru, post": {"kind": "ssru", "norm_order": "post"},
}
SEARCHES: dict[str, Search.Config] = defaults("search") | {
    "pairs of beams": DiverseBeam.Config(beam_size=6, groups=3)
}


def made(seed: int = 0, **choices: Any) -> EncoderDecoder:
    """A small translator with weights that are not those of a start."""
    kind = choices.pop("kind", "transformer")
    encoder = Encoder.Config.parse({"kind": "transformer"} | SIZES | choices)
    decoder = Decoder.Config.parse({"kind": kind} | SIZES | choices)
    model = build(TransformerSmall(encoder=encoder, decoder=decoder), vocabulary=VOCABULARY)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def begun(model: EncoderDecoder, plain: bool) -> DecoderSteps | NativeSteps:
    memory = model.encode(SOURCE, KEYS)
    steps = DecoderSteps(model, memory) if plain else native_steps(model, memory)
    assert steps is not None
    return steps


def found_by(config: Search.Config, steps: Steps, **begun: Any) -> list[list[Hypothesis]]:
    search: Search = config.like(config, max_ratio=1.0, max_extra=6).build()
    constraints = Constraints(begun.get("prefixes", ()))
    return search(steps, LENGTHS, 2, END, None, constraints)


def same(left: Sequence[Sequence[Hypothesis]], right: Sequence[Sequence[Hypothesis]]) -> None:
    for ours, theirs in zip(left, right, strict=True):
        assert [(h.ids, h.ended) for h in ours] == [(h.ids, h.ended) for h in theirs]
        for item, other in zip(ours, theirs, strict=True):
            assert item.log_probability == near(other.log_probability, terms=MODEL)


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However few the rows are, they are shared among so many."""
    monkeypatch.setattr("foveate.native.kernels.LEAST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.usefixtures("threads")
@torch.no_grad()
def test_every_step_gives_the_same_logits(shape: dict[str, Any]) -> None:
    """Sources become beams, beams are reordered, sources leave."""
    model = made(**shape)
    native, plain = begun(model, False), begun(model, True)
    ids = torch.full((5,), 2)
    for time in range(12):
        logits = native.step(ids)
        close(logits, plain.step(ids), terms=MODEL)
        sources = torch.arange(5 if time < 6 else 3)
        before = len(ids) // (5 if time < 7 else 3)
        rows = torch.randint(before, (len(sources), 4)) + before * sources[:, None]
        for steps in (native, plain):
            steps.reorder(rows.flatten())
            if time == 6:
                steps.select(sources)
        ids = torch.randint(4, VOCABULARY, (rows.numel(),))


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("shape", ["pre", "post", "ssru"])
@torch.no_grad()
def test_every_search_finds_the_same(config: Search.Config, shape: str) -> None:
    model = made(**SHAPES[shape])
    ruled = config.like(config, rules=(NoRepeat.Config(size=2), MinLength.Config(length=4)))
    prefixes = [[7, 8], [], [9], [], [60]]
    for each in (config, ruled):
        same(found_by(each, begun(model, False)), found_by(each, begun(model, True)))
    native, plain = begun(model, False), begun(model, True)
    same(found_by(config, native, prefixes=prefixes), found_by(config, plain, prefixes=prefixes))


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@torch.no_grad()
def test_a_batch_is_its_sentences_one_by_one(config: Search.Config) -> None:
    model = made()
    together = found_by(config, begun(model, False))
    for row, length in enumerate(LENGTHS):
        steps = decoder_steps(model, model.encode(SOURCE[row : row + 1, :length]))
        search: Search = config.like(config, max_ratio=1.0, max_extra=6).build()
        same(search(steps, [length], 2, END, [row]), [together[row]])


@pytest.mark.parametrize("room", [1, 2, 5, 30])
@pytest.mark.parametrize("shape", ["pre", "post", "learned", "ssru"])
@torch.no_grad()
def test_sources_that_enter_later_find_the_same(shape: str, room: int, monkeypatch) -> None:
    """To the bit: those that began together, and those that begin as others end."""
    model = made(**SHAPES[shape])
    model.output.weight[END] *= 2.0  # some end by themselves, some at their limits
    source = torch.randint(4, VOCABULARY, (31, 9), generator=torch.Generator().manual_seed(2))
    lengths = [1 + 5 * row % 9 for row in range(31)]
    keys = torch.arange(9) < torch.tensor(lengths)[:, None]
    search = Greedy.Config(max_ratio=3.0, max_extra=2).build()

    def result() -> list[list[Hypothesis]]:
        return search(decoder_steps(model, model.encode(source, keys)), lengths, 2, END)

    together = result()
    assert len({(h.ended, len(h.ids)) for [h] in together}) > 6
    monkeypatch.setattr("foveate.decode.beam.ROOM", room)
    monkeypatch.setattr("foveate.decode.search.SingleSearch.find", None)  # not asked any more
    assert result() == together


@torch.no_grad()
def test_ensembles_find_the_same() -> None:
    models = [made(1), made(2, norm_order="post")]
    native, plain = ([begun(model, road) for model in models] for road in (False, True))
    beam = SEARCHES["beam"]
    same(found_by(beam, EnsembleSteps(native)), found_by(beam, EnsembleSteps(plain)))


# ------------------------------------------------------------------------------ encoders


def same_memory(model: EncoderDecoder, source: Tensor, keys: Tensor | None) -> None:
    """The kernels' memory at real places is PyTorch's, and zero elsewhere."""
    memory = native_memory(model.encoder, source, keys)
    assert memory is not None and memory.keys is keys
    native, plain = memory.values, model.encode(source, keys).values
    if keys is not None:
        assert not native[~keys].any()
        native, plain = native[keys], plain[keys]
    close(native, plain, terms=MODEL)


ENCODERS = {name: shape for name, shape in SHAPES.items() if "kind" not in shape}


@pytest.mark.parametrize("shape", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.usefixtures("threads")
@torch.no_grad()
def test_every_encoder_leaves_the_same_memory(shape: dict[str, Any]) -> None:
    model = made(**shape)
    same_memory(model, SOURCE, KEYS)
    same_memory(model, SOURCE[:, :1], None)
    many = torch.randint(4, VOCABULARY, (40, 30))  # more than go through the layers at once
    same_memory(model, many, torch.rand(40, 30) < 0.7)
    same_memory(model, many, None)


@pytest.mark.parametrize("empty", [[1, 3], [0, 1, 2, 3, 4]], ids=["some", "all"])
@torch.no_grad()
def test_sources_without_places_leave_nothing(empty: list[int]) -> None:
    model, keys = made(), KEYS.clone()
    keys[empty] = False
    same_memory(model, SOURCE, keys)
    ids, memory = torch.full((5,), 2), model.encode(SOURCE, keys)
    native, plain = (make(model, memory).step(ids) for make in (decoder_steps, DecoderSteps))
    close(native, plain, terms=MODEL)


@torch.no_grad()
def test_long_sources_are_left_to_pytorch() -> None:
    model, long = made(), torch.randint(4, VOCABULARY, (2, LONGEST + 1))
    same_memory(model, long[:, :LONGEST], None)
    assert native_memory(model.encoder, long, None) is None


# ------------------------------------------------------------------------------ eight bits


@pytest.mark.parametrize("bias", [True, False])
def test_whole_numbers_are_exact(bias: bool) -> None:
    linear = nn.Linear(256, 67, bias=bias)
    eight = Int8Linear(linear)
    for shape in ((1, 256), (13, 256), (4, 7, 256)):
        x = torch.randn(shape) * 3
        close(eight(x), eight.plain(x), terms=MODEL)
        assert (eight(x) - linear(x)).abs().mean() < 0.02 * linear(x).abs().mean()
    assert torch.equal(eight(torch.zeros(2, 256)), eight.plain(torch.zeros(2, 256)))


@pytest.mark.parametrize("rows", [1, 7, 8, 16, 17, 33, 70])
@pytest.mark.parametrize("outputs", [31, 96])
def test_eight_bits_by_whatever_unit_multiplies_them(rows: int, outputs: int) -> None:
    linear, x = nn.Linear(128, outputs), torch.randn(rows, 128)
    eight = Int8Linear(linear)
    with torch.inference_mode():
        close(eight(x), eight.plain(x))


@torch.no_grad()
def test_native_steps_in_eight_bits_are_the_plain_ones() -> None:
    """Up to a value on the edge of two whole numbers, which sums in another order may move."""
    model = quantized(made())
    assert isinstance(model, EncoderDecoder) and isinstance(model.output, Int8Linear)
    native, plain = begun(model, False), begun(model, True)
    exact = begun(made(), True)
    for token in (2, 5, 9, 60):
        ids = torch.full((5,), token)
        ours, theirs, fp32 = native.step(ids), plain.step(ids), exact.step(ids)
        torch.testing.assert_close(ours, theirs, atol=0.02 * float(fp32.std()), rtol=0.02)
        assert (ours - fp32).std() < 0.1 * fp32.std()


# ------------------------------------------------------------------------------ the plain road


def rotary(model: EncoderDecoder) -> EncoderDecoder:
    return made(position="rope", num_heads=2)


def hooked(model: EncoderDecoder) -> EncoderDecoder:
    model.decoder.layers[0].register_forward_hook(lambda *_: None)
    return model


def tapped(model: EncoderDecoder) -> EncoderDecoder:
    model.decoder.layers[0].cross_attention.tap = lambda weights: None
    return model


def training(model: EncoderDecoder) -> EncoderDecoder:
    return model.train()


def double(model: EncoderDecoder) -> EncoderDecoder:
    return model.double()


@pytest.mark.parametrize("change", [rotary, hooked, tapped, training, double])
@torch.no_grad()
def test_what_the_kernels_do_not_know_is_left_to_pytorch(change) -> None:
    model = change(made())
    assert native_steps(model, model.encode(SOURCE, KEYS)) is None


def hooked_encoder(model: EncoderDecoder) -> EncoderDecoder:
    model.encoder.layers[0].register_forward_hook(lambda *_: None)  # type: ignore[index]
    return model


def tapped_encoder(model: EncoderDecoder) -> EncoderDecoder:
    model.encoder.layers[1].self_attention.tap = lambda weights: None  # type: ignore[index]
    return model


def own_layer(model: EncoderDecoder) -> EncoderDecoder:
    """Somebody's own kind of layer, with the parts of the usual one."""

    class Own(EncoderLayer):
        def forward(self, x: Tensor, mask: Mask, position: Position) -> Tensor:
            return x + super().forward(x, mask, position)

    encoder = model.encoder
    assert isinstance(encoder, TransformerEncoder)
    encoder.layers[1] = Own(encoder.config).eval()
    return model


@pytest.mark.parametrize(
    "change", [rotary, hooked_encoder, tapped_encoder, training, double, own_layer]
)
@torch.no_grad()
def test_encoders_that_the_kernels_do_not_know_are_left_to_pytorch(change) -> None:
    assert native_memory(change(made()).encoder, SOURCE, KEYS) is None


def test_gradients_are_left_to_pytorch() -> None:
    model = made()
    assert native_steps(model, model.encode(SOURCE, KEYS)) is None


def scaled(weight: nn.Parameter) -> None:
    weight.mul_(1.1)


def scaled_data(weight: nn.Parameter) -> None:
    weight.data.mul_(1.1)


def replaced_data(weight: nn.Parameter) -> None:
    weight.data = weight * 1.1


def announced(weight: nn.Parameter) -> None:
    weight.data[1:].mul_(1.1)
    foveate.changed()


@torch.no_grad()
@pytest.mark.parametrize("change", [scaled, scaled_data, replaced_data, announced])
def test_changed_weights_are_packed_anew(change: Callable[[nn.Parameter], None]) -> None:
    model, ids = made(), torch.full((5,), 2)
    before = begun(model, False).step(ids)
    other = copy.deepcopy(model)
    for weight in model.parameters():
        change(weight)
    after = begun(model, False).step(ids)
    assert differ(before, after, terms=MODEL)
    close(after, begun(model, True).step(ids), terms=MODEL)
    close(before, begun(other, False).step(ids))


@torch.no_grad()
def test_what_was_packed_goes_with_its_model() -> None:
    model = made()
    found_by(SEARCHES["greedy"], begun(model, False))
    same_memory(model, SOURCE, KEYS)
    parts = [weakref.ref(part) for part in (model.encoder, model.decoder, model.output)]
    del model
    gc.collect()
    assert [part() for part in parts] == [None, None, None]


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_weights_are_packed_anew_after_a_step_of_training(fused: bool) -> None:
    """A fused step does not count what it changes in the tensors' versions."""
    model, ids = made(), torch.full((5,), 2)
    with torch.no_grad():
        begun(model, False).step(ids)  # packs the weights of before
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with torch.no_grad():
        native, plain = begun(model, False).step(ids), begun(model, True).step(ids)
    close(native, plain, terms=MODEL)


# ------------------------------------------------------------------------------ rows of scores


def rows_of(shape: tuple[int, int]) -> Tensor:
    scores = torch.randn(shape) * 5
    return scores.masked_fill(torch.rand(shape) < 0.2, -torch.inf)


@pytest.mark.parametrize("columns", [[0], [3, 70], range(200)], ids=["first", "some", "all"])
def test_a_row_with_nan_sums_to_nan(columns: Sequence[int]) -> None:
    scores = rows_of((3, 200))
    scores[1, columns] = torch.nan
    sums = log_sum_exp(scores)
    torch.testing.assert_close(sums, scores.logsumexp(dim=1, keepdim=True), equal_nan=True)
    model, ids = made(), torch.full((5,), 2)
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.inner.weight[:] = torch.nan  # which a ReLU follows
        assert begun(model, False).step(ids).isnan().all()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 64), (7, 200), (2, 8000)])
def test_rows_are_read_as_pytorch_reads_them(shape: tuple[int, int]) -> None:
    scores = rows_of(shape)
    scores[0] = -torch.inf
    close(log_sum_exp(scores), scores.logsumexp(dim=1, keepdim=True))
    for count in {1, min(6, shape[1]), min(40, shape[1])}:
        values, columns = highest(scores, count)
        close(values, scores.topk(count, dim=1).values)
        close(values, scores.gather(1, columns))
        assert all(len(set(row)) == count for row in columns.tolist())


def test_of_equals_the_first_is_higher() -> None:
    scores = torch.zeros(2, 300)
    scores[:, [7, 150]] = 1.0
    assert highest(scores, 4)[1].tolist() == [[7, 150, 0, 1]] * 2
