"""The picture of a model has every parameter once, and what the forward pass says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from foveate.kinds import load_kinds
from foveate.look.draw.blocks import ModelBlock, ModelPart, parts_of
from foveate.look.hooks import ForcedPass
from foveate.look.records import AttentionRecord
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.forecaster import Forecaster, Outlook, Patch, Recurrent
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerEncoder
from foveate.nn.embedding import SeriesPatches
from foveate.nn.positions import Position
from foveate.nn.spec import Input, Labels, Pixels, Series, Tokens
from inside_toys import language, translating

SOURCE, TARGET = torch.tensor([5, 6, 7]), torch.tensor([8, 9])
TRANSFORMER = {"kind": "transformer", "hidden_size": 8, "num_heads": 2, "ffn_size": 32}
RECURRENT = {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8}
MAMBA = {"kind": "mamba", "hidden_size": 8, "num_layers": 1}
STEM = SeriesPatches.Config(size=4, stride=4)
PATCHES = Patch.Config(encoder=TransformerEncoder.Config(stem=STEM))
LSTM = RECURRENT | {"cell": "lstm", "attention": {"score": "additive"}}


def translator(encoder: dict[str, Any], decoder: dict[str, Any]) -> ForcedPass:
    load_kinds()
    config = EncoderDecoder.Config.parse({"encoder": encoder, "decoder": decoder})
    return translating(config.build(Tokens(20), Tokens(30)).eval(), SOURCE, TARGET)


def continuing(decoder: dict[str, Any]) -> ForcedPass:
    load_kinds()
    model = LanguageModel.Config.parse({"decoder": decoder}).build(Tokens(20))
    return language(model.eval(), torch.arange(5, 14))


def alone(model: nn.Module, *inputs: torch.Tensor) -> ForcedPass:
    record = AttentionRecord({}, {}, {})
    return ForcedPass(model.eval(), lambda: model(*inputs).flatten(), lambda *_: record, [])


def classifying(source: Input, inputs: torch.Tensor, **encoder: Any) -> ForcedPass:
    load_kinds()
    config = Classifier.Config.parse({"encoder": TRANSFORMER | encoder, "pooling": "attention"})
    return alone(config.build(source, Labels(("a", "b"))), inputs)


def forecasting(config: Forecaster.Config) -> ForcedPass:
    model = config.build(Series(2, 12), Outlook(4, 3))
    return alone(model, torch.randn(1, 12, 2), torch.randn(1, 16, 3))


TOYS: dict[str, Callable[[], ForcedPass]] = {
    "transformer": lambda: translator(TRANSFORMER, TRANSFORMER | {"norm_order": "post"}),
    "recurrent": lambda: translator(RECURRENT | {"bidirectional": True}, LSTM),
    "mamba": lambda: translator(MAMBA, MAMBA),
    "language": lambda: continuing(TRANSFORMER | {"num_layers": 5}),
    "recurrent language": lambda: continuing(RECURRENT | {"readout": "state", "num_layers": 2}),
    "classifier": lambda: classifying(Tokens(20), SOURCE[None]),
    "vision": lambda: classifying(
        Pixels(1, 8, 8), torch.randn(1, 1, 8, 8), stem={"kind": "patches", "class_token": True}
    ),
    "forecaster": lambda: forecasting(PATCHES),
    "recurrent forecaster": lambda: forecasting(Recurrent.Config(num_layers=2)),
}


def blocks(parts: list[ModelPart]) -> dict[str, ModelBlock]:
    return {block.name: block for part in parts for block in part.blocks}


@pytest.mark.parametrize("name", TOYS)
def test_parameters_add_up_and_shapes_are_those_of_the_forward_pass(name: str) -> None:
    forced = TOYS[name]()
    total = sum(p.numel() for p in forced.model.parameters())
    drawn = blocks(parts_of(forced))
    assert sum(block.parameters for block in drawn.values()) == total
    shapes: dict[str, str] = {}

    def note(path: str, output: object) -> None:
        if isinstance(output, torch.Tensor):
            shapes.setdefault(path, " × ".join(map(str, output.shape)))

    for path in drawn:
        module: nn.Module = forced.model.get_submodule(path)
        if isinstance(module, Position):  # drawn without a shape: it is that of its embeddings
            continue
        module.register_forward_hook(lambda _, __, output, path=path: note(path, output))
    forced.scores()
    assert shapes == {path: drawn[path].output for path in shapes}
    assert "output" in shapes or "head" in shapes


def test_residual_branches_and_what_is_read_are_those_of_the_pass() -> None:
    drawn = blocks(parts_of(TOYS["transformer"]()))
    branches: dict[int, list[str]] = {}
    for name, block in drawn.items():
        if block.branch is not None and ".layers.0." in name:
            branches.setdefault(block.branch, []).append(f"{name.split('.')[0]} {block.label}")
    assert list(branches.values()) == [
        ["encoder norm 0", "encoder self-attention 0"],
        ["encoder norm 0", "encoder feed-forward 0"],
        ["decoder self-attention 0"],
        ["decoder cross-attention 0"],
        ["decoder feed-forward 0"],
    ]
    assert drawn["decoder.layers.1.cross_attention"].reads == ["encoder"]
    assert drawn["output"].reads == ["decoder"]
    assert drawn["output"].parameters == 0  # tied
    assert "Σ_j exp(e_j); e_i = q · k_i / √d_k" in drawn["encoder.layers.0.self_attention"].equation
    ffn = "φ(x W₁ + b₁) W₂ + b₂, φ(x) = max(0, x)"
    assert drawn["encoder.layers.0.feed_forward"].equation == ffn


def test_a_recurrent_network_is_unrolled_in_the_order_of_computation() -> None:
    forced = TOYS["recurrent"]()
    encoder, decoder, _ = parts_of(forced)
    forwards, backwards = (block for block in encoder.blocks if block.steps)
    assert forwards.steps == backwards.steps == ["w5", "w6", "w7", "</s>"]
    assert backwards.backwards and not forwards.backwards and forwards.output == "1 × 4 × 8"
    labels = [block.label for block in decoder.blocks]
    assert labels == ["stem", "bridge", "cross-attention", "feed", "cell 0", "readout"]
    cell = decoder.blocks[4]
    assert cell.steps == ["<s>", "w8", "w9"]
    assert "c̃ = tanh(W_c x_t + b_c + C_c a_t + U_c h_{t−1} + b′_c)" in cell.equation
    texts = {block.equation for block in blocks(parts_of(forced)).values()}
    assert any("U_i h_{t−1}" in text for text in texts)
    assert {"y = W x + b", "y = W x"} <= texts  # of one class; what attention feeds has no bias
