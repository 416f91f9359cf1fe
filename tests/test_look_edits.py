"""Changed attention does what the change says: at once, step by step, with beams, for every family.

The truth is a forward pass written out by hand, or the model's own weights given back to it.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from foveate.config import ConfigError
from foveate.data.tokenizer import BOS, EOS
from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import Greedy
from foveate.look.edits import Change, PositionOf, edit, force, patch, silence, silenced
from foveate.look.hooks import capture, chosen, hook_points
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.recurrent import RecurrentEncoder
from foveate.nn.attention import Attention
from foveate.nn.spec import Tokens
from inside_toys import recurrent, transformer
from tolerances import MODEL, ROW, close, differ, near

CROSS = "decoder.layers.1.cross_attention"
BUILDS = [transformer, recurrent]
SOURCE, TARGET = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 3))


def uniform(*heads: int) -> Change:
    """A change of one's own: heads attend equally to every key that has any weight."""

    def replace(name: str, weights: Tensor, at: PositionOf) -> Tensor:
        seen = (weights > 0).to(weights)
        return seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)

    return Change(heads, replace)


def diagonal(*heads: int, offset: int = 0) -> Change:
    """Another: query t attends to key t + offset, or to the last visible key."""

    def replace(name: str, weights: Tensor, at: PositionOf) -> Tensor:
        queries, keys = weights.shape[2:]
        first = at(weights)
        last = keys - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)  # (B, h, T)
        targets = torch.arange(first, first + queries) + offset
        return one_hot(torch.minimum(targets.clamp(min=0), last), keys)

    return Change(heads, replace)


def stepped(model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
    """Logits of a target read step by step, as searches do."""
    steps = DecoderSteps(model, model.encode(source))
    return torch.stack([steps.step(ids) for ids in target.unbind(1)], dim=1)


@torch.no_grad()
def result(model: EncoderDecoder, search: Any) -> list[tuple[list[int], Any]]:
    batch = DecodingBatch(range(2), DecoderSteps(model, model.encode(SOURCE)), [4, 4])
    best = search.build()(batch, BOS, EOS)
    return [(h.ids, near(h.log_probability, terms=MODEL)) for item in best for h in item]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    ("change", "weights"),
    [
        (silence(), torch.zeros(3, 5)),
        (uniform(), torch.full((3, 5), 0.2)),
        (diagonal(), torch.eye(3, 5)),
        (diagonal(offset=1), torch.eye(4, 5)[1:]),
        (force(torch.eye(3, 5).flip(1)), torch.eye(3, 5).flip(1)),
    ],
    ids=["silence", "uniform", "diagonal", "offset", "force"],
)
def test_a_change_gives_its_weights_at_once_and_step_by_step(build, change, weights) -> None:
    model, changes = build(), {"cross_attention": change}
    with torch.no_grad(), edit(model, changes), capture(model, "cross_attention") as maps:
        whole = model(SOURCE, TARGET)
    with torch.no_grad(), capture(model, "cross_attention") as later, edit(model, changes):
        steps = stepped(model, SOURCE, TARGET)
    with torch.no_grad(), edit(model, changes):
        assert torch.equal(steps, stepped(model, SOURCE, TARGET))  # a new state begins anew
    close(whole, steps)
    assert differ(whole, model(SOURCE, TARGET), terms=MODEL)
    for seen in (*maps.values(), *later.values()):
        close(seen, weights.expand_as(seen), terms=ROW)


def test_what_may_not_be_seen_stays_unseen() -> None:
    model = transformer()
    keys = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    changes = {"encoder": uniform(), "decoder.self_attention": diagonal(offset=2)}
    with edit(model, changes), capture(model) as maps:
        model(SOURCE, TARGET, keys)
    even = maps["encoder.layers.0.self_attention"]
    close(even[0], torch.tensor(0.2))
    close(even[1, :, :, :3], torch.tensor(1 / 3))
    assert not even[1, :, :, 3:].any()
    own = maps["decoder.layers.0.self_attention"]
    assert torch.equal(own, torch.eye(3).expand_as(own))  # the last that a row may see is its own
    with edit(model, {"cross_attention": diagonal(offset=3)}), capture(model) as maps:
        model(SOURCE, TARGET, keys)
    assert maps[CROSS][0, 0].argmax(-1).tolist() == [3, 4, 4]
    assert maps[CROSS][1, 0].argmax(-1).tolist() == [2, 2, 2]


@pytest.mark.parametrize("build", BUILDS)
def test_patched_weights_make_another_input_look_the_same(build) -> None:
    model = build()
    other = SOURCE.flip(1)[:1]
    with torch.no_grad(), capture(model) as clean:
        plain = model(other, TARGET[:1])
    with torch.no_grad(), edit(model, {"decoder": patch(clean)}):  # what it did itself
        close(model(other, TARGET[:1]), plain, terms=ROW)
        close(stepped(model, other, TARGET[:1]), plain)
    with edit(model, {"cross_attention": patch(clean, 0)}), capture(model) as maps:
        model(SOURCE, TARGET)
    for name, weights in clean.items():
        if name.endswith("cross_attention"):
            close(maps[name][:, :1], weights[:, :1].expand(2, -1, -1, -1))
            rest = maps[name][:, 1:]
            assert not rest.numel() or differ(rest, weights[:, 1:].expand_as(rest))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "search", [Greedy.Config(), Beam.Config(beam_size=3)], ids=["greedy", "beam"]
)
def test_searches_go_by_the_changed_model(build: Callable[[], EncoderDecoder], search: Any) -> None:
    """What a search finds under a change is what it finds in a model that was built so."""
    model, twin = build(), build()
    twin.load_state_dict(model.state_dict())
    for module in twin.decoder.modules():
        if isinstance(module, Attention):
            module.tap = lambda weights: torch.where(
                torch.arange(weights.shape[1])[:, None, None] == 0, weights * 0, weights
            )
    with edit(model, {"decoder": silence(0)}):
        changed = result(model, search)
    assert changed == result(twin, search)
    assert result(model, search) != changed


def test_rows_of_hypotheses_stand_where_they_stand() -> None:
    """A forced diagonal under beams: every hypothesis at step t looks at source word t."""
    torch.manual_seed(1)  # outputs of more than three tokens
    model, seen = transformer(), []
    attention: Any = model.decoder.layers[1].cross_attention  # type: ignore[index,union-attr]
    attention.tap = lambda weights: seen.append(weights)
    with edit(model, {CROSS: diagonal()}):
        result(model, Beam.Config(beam_size=3))
    assert len(seen) > 3
    for step, weights in enumerate(seen):
        assert (weights.argmax(-1) == min(step, 4)).all()


def test_edits_are_applied_in_order_and_places_may_be_words() -> None:
    model = transformer()
    with edit(model, {"decoder": uniform(), CROSS: silence(1)}), capture(model) as maps:
        model(SOURCE, TARGET)
    close(maps[CROSS][:, 0], torch.tensor(0.2))
    assert not maps[CROSS][:, 1].any()
    words = ["decoder.layers.1.cross_attention:1", "encoder", f"{CROSS}:0"]
    for places, silent in ((words, [CROSS, "encoder"]), (["layers.0:1", "layers.0"], ["layers.0"])):
        with edit(model, silenced(places)), capture(model) as maps:
            model(SOURCE, TARGET)
        assert {n for n, w in maps.items() if not w.any()} == {*chosen(model, silent)}
    with pytest.raises(ConfigError, match="'encoder:first': write PLACE:HEAD,HEAD"):
        silenced(["encoder:first"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cross": silence()}, "no attention is called 'cross'; there are: encoder"),
        ({CROSS: silence(2)}, "decoder.layers.1.cross_attention has no head 2: there are 2, from"),
        ({CROSS: force(torch.ones(3, 9) / 9)}, "given to key 5, but there are 5 keys"),
        ({CROSS: force(torch.ones(3, 3, 5))}, r"shape \(3, 3, 5\) for 2 heads; give \(T, S\)"),
        ({CROSS: force(torch.ones(1, 3, 5), 1)}, "is given has no head 1: there are 1"),
        ({CROSS: patch({"x": torch.ones(3, 5)})}, "not among the maps given: x"),
    ],
)
def test_what_cannot_be_is_told(changes: dict[str, Change], message: str) -> None:
    model = transformer()
    with pytest.raises(ConfigError, match=message), edit(model, changes):
        model(SOURCE, TARGET)
    assert set(taps(model)) == {None}
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_models_of_others_too() -> None:
    model = torch.nn.Transformer(16, 2, 2, 2, 32, batch_first=True).eval()
    source, target = torch.randn(2, 6, 16), torch.randn(2, 4, 16)
    with torch.no_grad(), edit(model, {"cross_attention": diagonal(1)}), capture(model) as maps:
        changed = model(source, target)
        assert torch.equal(maps[CROSS][0, 1], torch.eye(4, 6))
    first = {"cross_attention": patch({n: w[:1] for n, w in maps.items()})}
    with torch.no_grad(), edit(model, first):
        close(model(source[:1], target[:1]), changed[:1])
    with torch.no_grad():
        assert differ(model(source, target), changed, terms=MODEL)
    refused = pytest.raises(ConfigError, match="step by step the row of the query is unknown")
    with refused, edit(model, {CROSS: diagonal(1)}):
        model(source, target[:, :1])


# ---- Seeing what attention does without changing it
def taps(model: torch.nn.Module) -> list[object]:
    return [m.tap for m in model.modules() if isinstance(m, Attention)]


@pytest.mark.parametrize("build", BUILDS)
def test_nothing_is_changed_and_nothing_stays(build) -> None:  # type: ignore[no-untyped-def]
    model = build()
    plain = model(SOURCE, TARGET)
    with capture(model) as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, plain) and set(taps(model)) == {None}
    before = {name: weights.clone() for name, weights in maps.items()}
    model(TARGET, SOURCE)
    assert all(torch.equal(maps[name], weights) for name, weights in before.items())
    seen.sum().backward()  # gradients flow while it is looked at
    assert not any(weights.requires_grad for weights in maps.values())
    assert all(p.grad is not None for p in model.parameters())
    rnn = RecurrentEncoder.Config(embedding_size=8, hidden_size=8).build(Tokens(20))
    with capture(rnn) as maps:  # which has no attention
        rnn(SOURCE)
    assert maps == {}


def test_blocks_layers_and_patterns_can_be_named() -> None:
    model = transformer()
    encoder, own, cross = (
        [f"{block}.layers.{layer}.{kind}_attention" for layer in range(2)]
        for block, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
    )
    for where, names in (
        ("cross_attention", cross),
        ("layers.1", [n for n in hook_points(model) if ".1." in n]),
        ("encoder", encoder),
        ("decoder.self_attention", own),
        ("decoder.layers.?.cross*", cross),
        (["encoder.layers.0", "cross_attention"], [encoder[0], *cross]),
    ):
        assert list(chosen(model, where)) == names


@pytest.mark.parametrize("where", ["cross", "layers.2", ["encoder", "pooling"]])
def test_a_name_that_fits_nothing_is_told(where: object) -> None:
    with pytest.raises(ConfigError, match=r"no attention is called '.*'; there are: encoder"):
        chosen(transformer(), where)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this model has no attention"):
        chosen(torch.nn.Linear(2, 2), "encoder")


def test_what_would_not_fit_is_refused_before_the_second_layer() -> None:
    model = transformer()
    some = 4 * 2 * 2 * (5 * 5 + 5 * 5)  # bytes of the encoder's maps
    with capture(model, "encoder", limit=some) as maps:
        model(SOURCE, TARGET)
    with (
        pytest.raises(ConfigError, match=r"2 maps of 2 × 2 heads × 5 queries × 5 keys.*capture\("),
        capture(model, "encoder", limit=some - 1) as maps,
    ):
        model(SOURCE, TARGET)
    assert maps == {}
    assert set(taps(model)) == {None}


def test_what_is_seen_is_what_was_mixed_in_the_end() -> None:
    model = transformer()
    attention = model.decoder.layers[0].cross_attention  # type: ignore[union-attr,index]
    plain = model(SOURCE, TARGET)
    silence = attention.tap = lambda weights: weights * 0
    silent = model(SOURCE, TARGET)
    with capture(model, "cross_attention") as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, silent) and attention.tap is silence
    assert differ(seen, plain)
    assert not maps["decoder.layers.0.cross_attention"].any()


def test_steps_of_a_search_are_joined_and_keys_that_are_not_there_yet_are_zero() -> None:
    model = transformer()
    with capture(model) as whole, torch.no_grad():
        model(SOURCE, TARGET)
    with capture(model) as steps, torch.no_grad():
        search = DecoderSteps(model, model.encode(SOURCE))
        for ids in TARGET.unbind(1):
            search.step(ids)
    assert steps.keys() == whole.keys()
    for name, weights in whole.items():
        close(steps[name], weights, terms=ROW, why=name)


def test_steps_of_other_rows_are_refused_and_other_calls_kept_apart() -> None:
    model = transformer()
    with capture(model, "encoder") as maps:
        model(SOURCE, TARGET)
        model(SOURCE[:1], TARGET[:1])
    assert [len(weights) for weights in maps.values()] == [2, 2, 1, 1]
    assert list(maps)[2] == "encoder.layers.0.self_attention#2"
    with pytest.raises(ConfigError, match="called for 2 rows and then for 1"), capture(model):
        model(SOURCE, TARGET[:, :1])
        model(SOURCE[:1], TARGET[:1, :1])
