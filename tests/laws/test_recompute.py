"""Layers that are recomputed or compiled learn what layers learn: every family, fp32 and bf16."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.presets import PRESETS
from foveate.nn.attention import Attention
from foveate.nn.linear import BatchNorm, Dropout
from foveate.nn.normalizers import choices
from foveate.tasks.attention_losses import attentions, doubly_stochastic, watched
from foveate.train.layers import Recomputed, compile_layers, recompute
from foveate.train.stored import TrainError
from laws.conftest import DEVICES, MODELS, TRANSFORMER, build, changed, ids, real, transformers
from tolerances import MODEL, close

KEYS = real(6, 4, 5)
SOURCE, TARGET = ids(3, 6), ids(3, 5, seed=2)


def learnt(model: EncoderDecoder, half: bool) -> tuple[dict[str, Tensor], int]:
    """The gradients of every weight, and how many bytes autograd kept for them."""
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    torch.manual_seed(1)
    model.zero_grad()
    precision = torch.autocast("cpu", torch.bfloat16) if half else nullcontext()
    with precision, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(SOURCE, TARGET, KEYS).float().square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    result = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert result
    return result, sum(saved.values())


def test_running_means_are_updated_once() -> None:
    norm = BatchNorm.Config(momentum=0.3)
    encoder, decoder = transformers(norm=norm)
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder)
    whole = build(config).train()
    again = copy.deepcopy(whole)
    recompute(again)
    for _ in range(2):
        expected, _ = learnt(whole, half=False)
        result, _ = learnt(again, half=False)
        assert all(torch.equal(result[name], gradient) for name, gradient in expected.items())
    buffers, fresh = dict(again.named_buffers()), dict(build(config).named_buffers())
    for name, buffer in whole.named_buffers():
        assert torch.equal(buffers[name], buffer), name
    assert any(not torch.equal(fresh[name], buffer) for name, buffer in whole.named_buffers())


@pytest.mark.parametrize("normalizer", ["softmax", "sampled"])
def test_weights_that_a_loss_reads_and_choices_are_formed_again(normalizer: str) -> None:
    """Attention that a loss watches takes no fused kernel, nor does it in the second pass."""
    encoder, decoder = TRANSFORMER
    cross = Attention.Config.parse({"num_heads": 2, "normalizer": normalizer})
    decoder = changed(decoder, cross_attention=cross, num_layers=2)
    whole = build(EncoderDecoder.Config(encoder=encoder, decoder=decoder)).train()
    again = copy.deepcopy(whole)
    recompute(again)
    for model in (whole, again):
        torch.manual_seed(1)
        with choices(model) as drawn, watched(attentions(model, "cross_attention")) as weights:
            loss = model(SOURCE, TARGET, KEYS).square().mean()
        loss = loss + doubly_stochastic(weights, real(5, 3, 4))
        loss = loss + sum(choice.log_probability.sum() for choice in drawn)
        assert bool(drawn) == (normalizer == "sampled")
        loss.backward()
        assert all(a.tap is None for a in attentions(model, "attention"))
    for (name, one), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), name


@pytest.mark.parametrize("half", [False, True])
def test_recomputed_layers_learn_the_same_to_the_bit(family: EncoderDecoder, half: bool) -> None:
    whole, again = copy.deepcopy(family).train(), copy.deepcopy(family).train()
    for either in (whole, again):
        for module in either.modules():
            if isinstance(module, Dropout):
                module.p = 0.3
    try:
        recompute(again)
    except TrainError as error:
        assert "train.recompute" in str(error)
        assert not any(name.endswith("layers") for name, _ in family.named_modules())
        return
    expected, most = learnt(whole, half)
    result, least = learnt(again, half)
    assert result.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.equal(result[name], gradient), name
    assert least < most
    assert again.state_dict().keys() == whole.state_dict().keys()


@pytest.mark.parametrize("name", ["transformer", "mamba", "ssru", "deep"])
def test_a_layer_is_wrapped_once_and_copies_are_of_their_own(name: str) -> None:
    model = build(MODELS[name])
    again = copy.deepcopy(model)
    recompute(again)
    recompute(again)
    other = copy.deepcopy(again)
    for module, copied in zip(again.modules(), other.modules(), strict=True):
        if isinstance(module.forward, Recomputed):
            assert not isinstance(module.forward.forward, Recomputed)
            assert copied.forward.forward.__self__ is copied  # type: ignore[union-attr]
    with torch.no_grad():
        assert torch.equal(again.eval()(SOURCE, TARGET, KEYS), model(SOURCE, TARGET, KEYS))


def gradients(model: EncoderDecoder, length: int, device: str) -> dict[str, Tensor]:
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
    encoder, decoder = TRANSFORMER
    config = EncoderDecoder.Config(encoder=encoder, decoder=changed(decoder, norm_order="post"))
    model = build(config).to(device)
    other = copy.deepcopy(model)
    compile_layers(other, "aot_eager" if device == "cpu" else "inductor")
    assert other.state_dict().keys() == model.state_dict().keys()
    for length in (5, 9):
        expected, result = (gradients(each, length, device) for each in (model, other))
        assert result.keys() == expected.keys()
        for name, gradient in expected.items():
            close(result[name], gradient, terms=MODEL)


def test_where_it_brings_nothing_that_is_said() -> None:
    with pytest.raises(TrainError, match=r"train\.compile is for Transformers"):
        compile_layers(build(PRESETS["bahdanau-2015"]()), "aot_eager")
    with pytest.raises(TrainError, match=r"train\.compile is for GPUs"):
        compile_layers(build(PRESETS["transformer-small"]()))
