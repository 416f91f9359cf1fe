"""What a GPU computes is what the processor computes; skipped where there is none."""

import copy

import pytest
import torch
from torch import Tensor

from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import Greedy, Search
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.train.config import resolve
from foveate.train.optim import AdamWConfig
from laws.conftest import GPU, ids, real
from tolerances import MODEL, close, rounding

pytestmark = GPU

LENGTHS = [6, 4, 5]
KEYS = real(*LENGTHS)
SOURCE, TARGET = ids(3, 6), ids(3, 5, seed=2)


def there(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to("cuda") for tensor in tensors]


@torch.no_grad()
def test_every_family_gives_the_same_logits(model: EncoderDecoder) -> None:
    logits = copy.deepcopy(model).to("cuda")(*there(SOURCE, TARGET, KEYS))
    close(logits.cpu(), model(SOURCE, TARGET, KEYS), terms=MODEL)


@pytest.mark.parametrize("config", [Greedy.Config(), Beam.Config(beam_size=3)])
@torch.no_grad()
def test_every_family_finds_the_same(model: EncoderDecoder, config: Search.Config) -> None:
    search: Search = config.like(config, max_ratio=1.0, max_extra=4).build()
    other, (source, keys) = copy.deepcopy(model).to("cuda"), there(SOURCE, KEYS)
    ours, theirs = other.encode(source, keys), model.encode(SOURCE, KEYS)
    result, expected = (
        search(DecodingBatch(range(len(LENGTHS)), DecoderSteps(*both), LENGTHS), 2, 3)
        for both in ((other, ours), (model, theirs))
    )
    for one, another in zip(result, expected, strict=True):
        assert abs(one[0].score - another[0].score) < rounding(MODEL)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_long_attention_by_the_fused_kernel(causal: bool) -> None:
    attention, x = Attention.Config(num_heads=2).build(32).eval(), torch.randn(1, 700, 32)
    other = copy.deepcopy(attention).to("cuda")
    mixed = other(*there(x), mask=Mask(causal=causal))
    expected = attention(x, mask=Mask(causal=causal))
    close(mixed.cpu(), expected, terms=MODEL)


def test_a_step_in_bf16_by_the_fused_optimizer_lowers_the_loss(model: EncoderDecoder) -> None:
    other = copy.deepcopy(model).to("cuda").train()
    source, target, keys = there(SOURCE, TARGET, KEYS)
    optimizer = AdamWConfig(lr=1e-2).build(other)
    precision = resolve("auto", torch.device("cuda"))
    losses = []
    for _ in range(8):
        with precision.context():
            logits = other(source, target, keys).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert losses[-1] < losses[0]
