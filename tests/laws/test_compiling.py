"""Compiled layers learn what layers learn, whatever the lengths."""

import copy

import pytest
import torch
from torch import Tensor

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.presets import PRESETS
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.train.layers import compile_layers
from foveate.train.stored import TrainError
from laws.conftest import DEVICES, build, ids, real
from tolerances import MODEL, close

SIZES = {"hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_size": 24, "dropout": 0.0}


def learnt(model: EncoderDecoder, length: int, device: str) -> dict[str, Tensor]:
    """The gradients of a batch of so long sources."""
    source, target = ids(3, length), ids(3, length + 2, seed=2)
    keys = real(length, length - 1, length - 2)
    model.zero_grad()
    logits = model(*(each.to(device) for each in (source, target, keys)))
    logits.float().square().mean().backward()
    return {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.scale
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo's own
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # inductor's import
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # its advice of rounder products
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_layers_learn_the_same(device: str) -> None:
    torch._dynamo.reset()
    config = PRESETS["transformer-small"](
        encoder=TransformerEncoder.Config.parse(SIZES | {"norm_order": "pre"}),
        decoder=TransformerDecoder.Config.parse(SIZES | {"norm_order": "post"}),
    )
    model = build(config).to(device)
    other = copy.deepcopy(model)
    compile_layers(other, "aot_eager" if device == "cpu" else "inductor")
    assert other.state_dict().keys() == model.state_dict().keys()
    for length in (5, 9):
        expected, result = (learnt(each, length, device) for each in (model, other))
        assert result.keys() == expected.keys()
        for name, gradient in expected.items():
            close(result[name], gradient, terms=MODEL)


def test_where_it_brings_nothing_that_is_said() -> None:
    with pytest.raises(TrainError, match=r"train\.compile is for Transformers"):
        compile_layers(build(PRESETS["bahdanau-2015"]()), "aot_eager")
    with pytest.raises(TrainError, match=r"train\.compile is for GPUs"):
        compile_layers(build(PRESETS["transformer-small"]()))
