"""Models of plain torch and of Hugging Face have the same hook points, and stay unchanged.

The maps are checked against weights that the libraries themselves give out.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.draw.analyses import lens
from foveate.look.draw.maps import attention, heads, links
from foveate.look.hooks import ForcedPass, capture, hook_points
from foveate.look.perturbations import restored
from foveate.look.records import AttentionRecord, Maps, Units
from foveate.look.relevance import (
    METHODS,
    by_occlusion,
    contrasted,
    faithfulness,
    relevance,
    rolled,
    rollout,
)
from inside_toys import labels, reading
from tolerances import ROW, close

transformers = pytest.importorskip("transformers")
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [6, 5, 9, 8, 0, 0]])
REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 13], [1, 13, 12, 11]])


def rows_are_whole(maps: dict[str, Tensor]) -> None:
    for weights in maps.values():
        close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_keys_that_a_module_adds_can_be_seen_but_not_replaced() -> None:
    attention = nn.MultiheadAttention(8, 2, add_zero_attn=True, batch_first=True).eval()
    (point,) = hook_points(nn.ModuleList([attention])).values()
    x = torch.randn(1, 3, 8)
    point.tap = lambda weights: None
    attention(x, x, x)
    point.tap = lambda weights: weights
    with pytest.raises(ConfigError, match="adds keys of its own"):
        attention(x, x, x)
    point.tap = None


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", [{}, {"kdim": 16, "vdim": 12}])
def test_multi_head_attention_gives_its_weights_and_takes_them_back(batch_first, sizes) -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=batch_first, **sizes).eval()
    inputs = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.randn(2, 7, sizes.get("vdim", 16))
    if not batch_first:
        inputs = tuple(each.transpose(0, 1) for each in inputs)
    expected, weights = attention(*inputs, average_attn_weights=False)
    with torch.no_grad():
        plain = attention(*inputs, need_weights=False)[0]
    with capture(nn.ModuleDict({"mixer": attention})) as maps:
        seen, mean = attention(*inputs)
        again, nothing = attention(*inputs, need_weights=False)
    assert torch.equal(seen, expected) and torch.equal(again, plain) and nothing is None
    close(mean, weights.mean(1), terms=ROW)
    assert list(maps) == ["mixer", "mixer#2"] and "forward" not in attention.__dict__
    for seen in maps.values():
        close(seen, weights, terms=ROW)
    alone = tuple(each[:, 0] for each in inputs)  # no batch
    (point,) = hook_points(nn.ModuleList([attention])).values()
    expected_alone = attention(*alone)[0]
    point.tap = torch.clone
    close(attention(*inputs)[0], expected, terms=ROW)
    close(attention(*alone)[0], expected_alone, terms=ROW)
    point.tap = None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # its own road
def test_a_torch_transformer_is_seen_without_its_fast_path() -> None:
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True).eval()
    source, target = torch.randn(2, 6, 16), torch.randn(2, 4, 16)
    padding = REAL == 0
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    with torch.no_grad():
        plain = model(source, target, tgt_mask=causal, **masks)
        with capture(model) as maps:
            seen = model(source, target, tgt_mask=causal, **masks)
        encoded = model.encoder(source)
        with capture(model, "encoder"):
            views = model.encoder(source)
    assert torch.equal(seen, plain)
    assert torch.equal(views, encoded)
    assert sorted(maps) == sorted(
        f"{side}.layers.{layer}.{kind}_attention"
        for layer in range(2)
        for side, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
    )
    rows_are_whole(maps)
    assert maps["decoder.layers.1.cross_attention"].shape == (2, 2, 4, 6)
    assert (maps["decoder.layers.0.self_attention"].triu(1) == 0).all()
    for name in ("encoder.layers.0.self_attention", "decoder.layers.1.cross_attention"):
        assert (maps[name][1, :, :, 4:] == 0).all()
    assert torch.backends.mha.get_fastpath_enabled()


class CausalSelfAttention(nn.Module):
    """As many write it: one projection for three, the fused product."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.c_attn, self.fused = nn.Linear(8, 24), fused

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        parts = self.c_attn(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
        causal = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        seen = causal if padding is None else ~padding[:, None, None]
        if self.fused:
            how = {"is_causal": True} if padding is None else {"attn_mask": seen}
            mixed = F.scaled_dot_product_attention(q, k, v, **how)
        else:
            mixed = (q @ k.mT / 2).masked_fill(~seen, -torch.inf).softmax(-1) @ v
        return mixed.transpose(1, 2).flatten(2)


def test_an_attention_of_ones_own_is_found_by_its_name() -> None:
    fused, plain = (CausalSelfAttention(fused) for fused in (True, False))
    plain.load_state_dict(fused.state_dict())
    x, seen = torch.randn(2, 5, 8), []
    for module in (fused, plain):
        model = nn.Sequential(module)
        output = model(x)
        with capture(model) as maps:
            assert torch.equal(model(x), output)
        rows_are_whole(maps)
        seen.append(maps["0"])
    close(*seen, terms=ROW)
    assert (seen[0].triu(1) == 0).all()


SMALL: dict[str, Any] = {"vocab_size": 20, "attn_implementation": "sdpa"}
WIDE = SMALL | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
PAIR = SMALL | {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2, "bos_token_id": 1,
    "forced_eos_token_id": None,
}  # fmt: skip


BERT = WIDE | {"intermediate_size": 24}
MADE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2", SMALL | {"n_embd": 16, "n_layer": 2, "n_head": 4}),
    "llama": ("LlamaForCausalLM", "Llama", BERT | {"num_key_value_heads": 2}),
    "bert": ("BertModel", "Bert", BERT),
    "labels": ("BertForSequenceClassification", "Bert", BERT),
    "t5": ("T5ForConditionalGeneration", "T5", SMALL | {
        "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 1,
    }),
    "bart": ("BartForConditionalGeneration", "Bart", PAIR),
    "marian": ("MarianMTModel", "Marian", PAIR),
}  # fmt: skip


def hugging_face(kind: str) -> Any:
    model, config, fields = MADE[kind]
    return built(model, config, fields).eval()


def built(model: str, config: str, fields: dict[str, Any]) -> Any:
    return getattr(transformers, model)(getattr(transformers, f"{config}Config")(**fields))


def inputs(kind: str) -> dict[str, Tensor]:
    values = {"input_ids": IDS, "attention_mask": REAL}
    return values | ({"decoder_input_ids": TARGET} if kind in ("t5", "bart", "marian") else {})


DECODER = {"decoder.self_attention": "attentions"}
PARTS = {"encoder.self": "encoder_", "decoder.self": "decoder_", "decoder.cross": "cross_"}
BOTH = {f"{part}_attention": f"{field}attentions" for part, field in PARTS.items()}
BLOCKS = {"gpt2": DECODER, "llama": DECODER, "t5": BOTH, "bart": BOTH, "marian": BOTH}
BLOCKS["bert"] = {"encoder.self_attention": "attentions"}


@pytest.mark.parametrize("kind", BLOCKS)
def test_hugging_face_models_are_seen_as_they_see_themselves(kind: str) -> None:
    model = hugging_face(kind)
    with torch.no_grad():
        plain = model(**inputs(kind))[0]
        with capture(model) as maps:
            seen = model(**inputs(kind))[0]
        assert model.config._attn_implementation == "sdpa"
        assert torch.equal(model(**inputs(kind))[0], plain)
        model.set_attn_implementation("eager")
        own = model(**inputs(kind), output_attentions=True)
    assert torch.equal(seen, plain)
    assert len(maps) == 2 * len(BLOCKS[kind])
    rows_are_whole(maps)
    for block, field in BLOCKS[kind].items():
        side, name = block.split(".")
        for layer, weights in enumerate(own[field]):
            close(maps[f"{side}.layers.{layer}.{name}"], weights, terms=ROW)
    if "encoder.self_attention" in BLOCKS[kind]:
        assert (maps["encoder.layers.0.self_attention"][1, :, :, 4:] == 0).all()
    else:
        assert (maps["decoder.layers.0.self_attention"].triu(1) == 0).all()
    assert not any("forward" in module.__dict__ for module in model.modules())
    record = AttentionRecord.of({name: weights[:1] for name, weights in maps.items()})
    for drawn in (record, rollout(record)):  # no block is named
        assert attention(drawn).caption and heads(drawn).text() and links(drawn).text()
    rows_are_whole({name: torch.tensor(flow) for name, flow in rollout(record).maps.items()})


def test_a_hugging_face_model_writes_the_same_while_it_is_looked_at() -> None:
    model = hugging_face("marian")
    choices: dict[str, Any] = {"max_new_tokens": 5, "num_beams": 1, "do_sample": False}
    plain = model.generate(IDS[:1], attention_mask=REAL[:1], **choices)
    with capture(model, "decoder.self_attention") as maps:
        seen = model.generate(IDS[:1], attention_mask=REAL[:1], **choices)
    assert torch.equal(seen, plain)
    weights = maps["decoder.layers.0.self_attention"]
    assert weights.shape[2] == weights.shape[3] == plain.shape[1] - 1
    assert (weights.triu(1) == 0).all()
    rows_are_whole(maps)


def test_maps_become_one_record_with_the_tokens_of_both_sides() -> None:
    model = hugging_face("t5")
    with capture(model) as maps:
        model(**inputs("t5"))
    source, target = list("abcdef"), ["<s>", "x", "y", "z"]
    record = AttentionRecord.of(maps, source, target, "a title")
    assert record.blocks().keys() == BOTH.keys()
    assert record.axes("encoder.layers.0.self_attention") == (source, source)
    produced = ["x", "y", "z", "…"]
    assert record.axes("decoder.layers.1.cross_attention") == (produced, source)
    assert record.axes("decoder.layers.1.self_attention") == (produced, target)
    name = "decoder.layers.1.cross_attention"
    assert np.array_equal(record.select(layer=1, head=2), maps[name][0, 2].detach().numpy())
    assert "cross-attention" in attention(record).caption
    assert links(record).form == "links" and heads(record).block == "decoder.cross_attention"
    flow = rollout(record).maps
    assert flow.keys() == record.maps.keys()
    for name, expected in rolled({n: w[0].detach().numpy() for n, w in maps.items()}).items():
        assert np.array_equal(flow[name], expected)
    assert AttentionRecord.of(maps, source[:4], target, row=1).drawn(name).shape == (4, 4, 4)
    with pytest.raises(ValueError, match="keys without a label carry"):
        AttentionRecord.of(maps, source[:4], target).drawn(name)


GPT = {"vocab_size": 20, "n_embd": 32, "n_layer": 2, "n_head": 4}
WIDER = {"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDER |= {"intermediate_size": 24}
# model, fields of its config, and how many maps there are; 0: its weights have another form
EVERY: dict[str, tuple[dict[str, Any], int]] = {
    "Albert": (WIDER | {"embedding_size": 16}, 2),
    "Roberta": (WIDER, 2),
    "Electra": (WIDER, 2),
    "DebertaV2": (WIDER, 2),
    "ModernBert": (WIDER | {"pad_token_id": 0}, 2),
    "SqueezeBert": (WIDER | {"embedding_size": 32}, 2),
    "ConvBert": (WIDER | {"embedding_size": 16}, 2),
    "Mistral": (WIDER | {"num_key_value_heads": 2, "sliding_window": 3}, 2),
    "Bloom": ({"vocab_size": 20, "hidden_size": 32, "n_layer": 2, "n_head": 4}, 2),
    "CTRL": (GPT | {"dff": 24}, 2),
    "CodeGen": (GPT | {"rotary_dim": 4}, 2),
    "XLNet": ({"vocab_size": 20, "d_model": 32, "n_layer": 2, "n_head": 4}, 2),
    "XLM": ({"vocab_size": 20, "emb_dim": 32, "n_layers": 2, "n_heads": 4}, 2),
    "Longformer": (WIDER | {"attention_window": 4}, 0),
    "BigBird": (WIDER | {"block_size": 2, "num_random_blocks": 1}, 0),
    "Nystromformer": (WIDER | {"num_landmarks": 4, "segment_means_seq_len": 16}, 0),
    "FNet": ({n: v for n, v in WIDER.items() if n != "num_attention_heads"}, 0),
}


def every(kind: str) -> Any:
    return built(f"{kind}Model", kind, EVERY[kind][0])


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("training", [False, True])
def test_each_architecture_is_seen_as_it_is_or_named(kind: str, training: bool) -> None:
    model, count = every(kind).train(training), EVERY[kind][1]
    ids = torch.randint(5, 20, (2, 16))

    def run() -> Tensor:
        torch.manual_seed(1)
        return model(ids)[0]

    plain, seen, maps = run(), None, {}
    try:
        with capture(model) as maps:
            seen = run()
    except ConfigError as error:
        assert not maps and count == 0 and "capture(model, modules=" in str(error)
    else:
        assert len(maps) == count
    assert seen is None or torch.equal(seen, plain)
    assert all(weights.shape == (2, weights.shape[1], 16, 16) for weights in maps.values())
    rows_are_whole(maps)


def test_calls_of_a_shared_layer_are_layers_of_one_block() -> None:
    model = every("Albert").eval()
    ids = torch.randint(5, 20, (1, 6))
    with capture(model) as maps:
        model(ids)
    model.set_attn_implementation("eager")
    for weights, own in zip(maps.values(), model(ids, output_attentions=True)[-1], strict=True):
        close(weights, own, terms=ROW)
    record = AttentionRecord.of(maps, list("abcdef"))
    assert len(record.blocks()) == 1 and [*maps][1] == f"{next(iter(maps))}#2"
    assert "attention" in attention(record).caption


class TwoCalls(nn.Module):
    """One attention that is called twice, in the ways of many models."""

    def __init__(self, second: str) -> None:
        super().__init__()
        self.mixer, self.second = nn.MultiheadAttention(8, 2, batch_first=True), second

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.mixer(x, x, x)[0]
        if self.second == "one query":
            return self.mixer(x[:, :1], x, x)[0]
        keys = {"the same": x, "a memory": memory, "longer keys": torch.cat((x, x), 1)}[self.second]
        return self.mixer(x, keys, keys)[0]


@pytest.mark.parametrize("second", ["the same", "a memory", "longer keys", "one query"])
@pytest.mark.parametrize("heads_alike", [False, True])
def test_two_calls_in_one_block_are_two_maps(second: str, heads_alike: bool) -> None:
    model = TwoCalls(second).eval()
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 4 if heads_alike else 7, 8)
    plain = model(x, memory)
    with capture(model) as maps:
        assert torch.equal(model(x, memory), plain)
    assert list(maps) == ["mixer", "mixer#2"]
    assert maps["mixer"].shape == (2, 2, 4, 4)
    rows_are_whole(maps)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_row_of_padding_alone_is_zeros(fused: bool, own: bool) -> None:
    model: Any = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 4, 8)
    padding = torch.tensor([[False] * 4, [True] * 4])
    if own:
        model = CausalSelfAttention(fused)
    arguments = (x, padding) if own else (x, x, x, padding)
    output = model(*arguments)
    plain = output if own else output[0]
    with capture(nn.ModuleDict({"attention": model})) as maps:
        again = model(*arguments)
    assert torch.equal(again if own else again[0], plain) or bool(plain[1].isnan().all())
    (weights,) = maps.values()
    assert bool((weights[1] == 0).all()) and bool(weights.isfinite().all())
    close(weights[0].sum(-1), torch.ones(2, 4))


class Mixer(nn.Module):
    """A softmax over positions, of one head, in a class that is not called an attention."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x @ x.mT, dim=-1) @ x


def test_what_is_not_recognised_can_be_named() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Mixer(), Mixer())
    x = torch.randn(2, 5, 8)
    plain = model(x)
    message = r"no module of Sequential is .*modules=.*are: 1, 2$"
    with pytest.raises(ConfigError, match=message), capture(model):
        pass
    with capture(model, modules=["1", "2"]) as maps:
        assert torch.equal(model(x), plain)
    shapes = {name: weights.shape for name, weights in maps.items()}
    assert shapes == dict.fromkeys(("1", "2"), (2, 1, 5, 5))
    rows_are_whole(maps)
    message = r"no module is called '3'; there are: 1, 2"
    with pytest.raises(ConfigError, match=message), capture(model, modules="3"):
        pass


class StrangeAttention(nn.Module):
    """Forms its weights in a way that is not intercepted."""

    def forward(self, x: Tensor) -> Tensor:
        odds = (x @ x.mT).exp()
        return odds / odds.sum(-1, keepdim=True) @ x


def test_what_is_not_understood_or_never_called_is_named_in_a_warning() -> None:
    model = nn.Sequential(CausalSelfAttention(True), StrangeAttention())
    message = r"the weights of 1 \(StrangeAttention\) are not captured"
    with pytest.warns(UserWarning, match=message), capture(model) as maps:
        model(torch.randn(1, 4, 8))
    assert list(maps) == ["0"]
    warned = pytest.warns(UserWarning, match="no weights were captured: nothing called 0; run ")
    with warned, capture(nn.Sequential(nn.MultiheadAttention(8, 2))) as maps:
        pass
    assert maps == {}


def text_of(model: Any, ids: Tensor) -> ForcedPass:
    """A text of a causal model of Hugging Face, each token predicted from those before it."""
    logits = lambda read: model(read, use_cache=False).logits  # noqa: E731
    return reading(model, ids[0, :-1], ids[0, 1:], logits, number=int, blank=torch.zeros_like)


def label_of(model: Any, ids: Tensor) -> ForcedPass:
    """A text of a classifier of Hugging Face, and log p of its label 1."""
    words = labels(ids[0])

    def label(maps: Maps, units: Units) -> AttentionRecord:
        rows = {name: words if name.startswith("encoder") else ["1"] for name in maps}
        return AttentionRecord(dict(maps), rows, {"": words})

    return ForcedPass(
        model, lambda: model(ids).logits.log_softmax(dim=-1)[0, 1][None], label, ["1"],
        {"encoder": words}, token=str, number=int, blank=torch.zeros_like, answer_at=0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "llama", "labels"])
def test_their_models_have_the_views_of_ours(name: str) -> None:
    model = hugging_face(name)
    ids, other = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[5, 16, 7, 8, 9]])
    of = label_of if name == "labels" else text_of
    forced = of(model, ids)
    words = ["w5", "w6", "w7", "w8", "w9"][: None if name == "labels" else -1]
    for method in METHODS:
        record = relevance(forced, method)
        [key] = record.maps
        assert record.axes(key)[1] == words, method
        assert np.isfinite(record.maps[key]).all() and record.maps[key].any()
        if name != "labels":
            assert abs(np.triu(record.maps[key][0], 1)).max() < 1e-9, method
    rows = by_occlusion(forced)["encoder" if name == "labels" else "decoder"]
    without = ids.clone()
    without[0, 1] = 0
    close(rows[-1, 1], forced.scores()[-1] - of(model, without).scores()[-1])
    assert [*faithfulness(forced)] == ["random order", *METHODS]
    shown = lens(forced)
    assert len(shown.rows) == 3 and shown.columns == list(forced.produced)
    close(shown.target_p[-1], np.exp(forced.scores()))
    if name == "labels":  # label 1 or 0, after one text or another
        passes = [(of(model, x), contrasted(of(model, x), "0")) for x in (ids, other)]
        ours, theirs = ((p, replace(p, run=lambda p=p, q=q: p.run() - q.run())) for p, q in passes)
    else:
        texts = [[torch.cat((x, torch.tensor([[n]])), dim=1) for n in (1, 2)] for x in (ids, other)]
        ours, theirs = ((of(model, a), of(model, b)) for a, b in texts)
    whole = restored(ours, theirs)
    assert whole.shape == (3, 5)
    np.testing.assert_allclose(whole[0, [0, 2]], 0, atol=1e-3)
    assert whole[0, 1] == pytest.approx(1, abs=1e-3)


def test_what_embeds_its_input_twice_is_refused() -> None:
    model = hugging_face("bart")

    def run() -> Tensor:
        return model(IDS[:1], decoder_input_ids=IDS[:1]).logits[0, :, 3]

    forced = ForcedPass(model, run, lambda maps, units: AttentionRecord({}, {}, {}), list("abcdef"))
    with pytest.raises(ConfigError, match="embeds each input once"):
        relevance(forced, "gradient")
