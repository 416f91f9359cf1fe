"""Models of plain torch and of Hugging Face have the same hook points, and stay unchanged.

The maps are checked against weights that the libraries themselves give out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.draw.maps import attention
from foveate.inspect.hooks import capture, chosen, hook_points
from foveate.inspect.records import AttentionRecord
from tolerances import ROW, close

transformers = pytest.importorskip("transformers")
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [6, 5, 9, 8, 0, 0]])
REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 13], [1, 13, 12, 11]])


@pytest.fixture(autouse=True)
def _same() -> None:
    torch.manual_seed(3)


def rows_are_whole(maps: dict[str, Tensor]) -> None:
    for weights in maps.values():
        close(weights.sum(-1), torch.ones(weights.shape[:-1]))


# ------------------------------------------------------------------------------ plain torch


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_gives_the_weights_that_it_would_give(batch_first: bool) -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
    model = nn.ModuleDict({"mixer": attention})
    x, keys = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    if not batch_first:
        x, keys = x.transpose(0, 1), keys.transpose(0, 1)
    expected, weights = attention(x, keys, keys, average_attn_weights=False)
    with torch.no_grad():
        plain = attention(x, keys, keys, need_weights=False)[0]
    with capture(model) as maps:
        seen, mean = attention(x, keys, keys)
        again, nothing = attention(x, keys, keys, need_weights=False)
    close(seen, expected, terms=ROW)
    close(again, plain)
    assert nothing is None
    close(mean, weights.mean(1), terms=ROW)
    close(maps["mixer"][:, :, :5], weights, terms=ROW)  # two calls, joined
    assert "forward" not in attention.__dict__


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", [{}, {"kdim": 16, "vdim": 12}])
def test_the_same_weights_given_back_give_the_same_output(batch_first, sizes) -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=batch_first, **sizes).eval()
    x, value = torch.randn(2, 5, 16), torch.randn(2, 5, sizes.get("vdim", 16))
    if not batch_first:
        x, value = x.transpose(0, 1), value.transpose(0, 1)
    plain = attention(x, x, value)[0]
    (point,) = hook_points(nn.ModuleList([attention])).values()
    point.tap = lambda weights: weights.clone()
    seen = attention(x, x, value)[0]
    alone = attention(x[:, 0], x[:, 0], value[:, 0])[0]  # no batch
    point.tap = None
    close(seen, plain, terms=ROW)
    close(alone, attention(x[:, 0], x[:, 0], value[:, 0])[0], terms=ROW)


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
    close(seen, plain)
    close(views, encoded)
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

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1)
        )
        if self.fused:
            return (
                F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            )
        scores = q @ k.mT / 2
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_an_attention_of_ones_own_is_found_by_its_name() -> None:
    modules = [CausalSelfAttention(fused) for fused in (True, False)]
    modules[1].load_state_dict(modules[0].state_dict())
    x = torch.randn(2, 5, 8)
    result = []
    for module in modules:
        model = nn.Sequential(module)
        plain = model(x)
        with capture(model) as maps:
            close(model(x), plain, terms=ROW)
        rows_are_whole(maps)
        result.append(maps["0"])
    close(result[0], result[1], terms=ROW)
    assert (result[0].triu(1) == 0).all()


# ------------------------------------------------------------------------------ Hugging Face

SMALL: dict[str, Any] = {"vocab_size": 20, "attn_implementation": "sdpa"}
WIDE = SMALL | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
PAIR = SMALL | {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2, "bos_token_id": 1,
    "forced_eos_token_id": None,
}  # fmt: skip


def hugging_face(kind: str) -> Any:
    makers = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=20, n_embd=16, n_layer=2, n_head=4, attn_implementation="sdpa"
            )
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**WIDE, num_key_value_heads=2, intermediate_size=24)
        ),
        "bert": lambda: transformers.BertModel(
            transformers.BertConfig(**WIDE, intermediate_size=24)
        ),
        "t5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                **SMALL, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4,
                decoder_start_token_id=1,
            )
        ),
        "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**PAIR)),
        "marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**PAIR)),
    }  # fmt: skip
    return makers[kind]().eval()


def inputs(kind: str) -> dict[str, Tensor]:
    values = {"input_ids": IDS, "attention_mask": REAL}
    return values | ({"decoder_input_ids": TARGET} if kind in ("t5", "bart", "marian") else {})


DECODER = {"decoder.self_attention": "attentions"}
BOTH = {
    "encoder.self_attention": "encoder_attentions",
    "decoder.self_attention": "decoder_attentions",
    "decoder.cross_attention": "cross_attentions",
}
BLOCKS = {
    "gpt2": DECODER,
    "llama": DECODER,
    "bert": {"encoder.self_attention": "attentions"},
    "t5": BOTH,
    "bart": BOTH,
    "marian": BOTH,
}


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
    real = REAL.bool() if len(BLOCKS[kind]) == 1 else ...
    close(seen[real], plain[real])
    assert len(maps) == 2 * len(BLOCKS[kind])
    rows_are_whole(maps)
    for block, field in BLOCKS[kind].items():
        side, attention = block.split(".")
        for layer, weights in enumerate(own[field]):
            close(maps[f"{side}.layers.{layer}.{attention}"], weights, terms=ROW)
    if "encoder.self_attention" in BLOCKS[kind]:
        assert (maps["encoder.layers.0.self_attention"][1, :, :, 4:] == 0).all()
    else:
        assert (maps["decoder.layers.0.self_attention"].triu(1) == 0).all()
    assert not any("forward" in module.__dict__ for module in model.modules())


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


def test_some_layers_can_be_chosen() -> None:
    model = hugging_face("bart")
    with capture(model, ["cross_attention", "encoder.layers.0"]) as maps:
        model(**inputs("bart"))
    assert sorted(maps) == [
        "decoder.layers.0.cross_attention",
        "decoder.layers.1.cross_attention",
        "encoder.layers.0.self_attention",
    ]
    with pytest.raises(ConfigError, match=r"no attention is called 'layers.9'; there are: enc"):
        chosen(model, "layers.9")


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
    second = AttentionRecord.of(maps, source[:4], target, row=1)
    assert second.drawn(name).shape == (4, 4, 4)
    with pytest.raises(ValueError, match="keys without a label carry"):
        AttentionRecord.of(maps, source[:4], target).drawn(name)
