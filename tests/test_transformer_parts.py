"""Parts of models: which distances share a bucket of T5, and decoders of fixed length."""

import pytest
import torch

from foveate.look.hooks import capture
from foveate.models.encoder_decoder import Memory
from foveate.models.recurrent import LocationDecoder
from foveate.nn.more_positions import T5Bias, T5CausalBias
from foveate.nn.spec import Tokens
from tolerances import close


@pytest.mark.parametrize(
    ("config", "ahead", "buckets"),
    [  # small distances have buckets of their own on each side
        (T5Bias.Config(), (0, -1, -2, -7, 1, 2, 7), [0, 1, 2, 7, 17, 18, 23]),
        # large ones share: 8 + 8 · log(d / 8) / log(128 / 8), rounded down: 2 log₂(d / 8) more
        (T5Bias.Config(), (-8, -11, -12, -16, -31, -32, -64), [8, 8, 9, 10, 11, 12, 14]),
        (T5Bias.Config(), (-128, -10_000, 128, 10_000), [15, 15, 31, 31]),
        # a decoder spends all buckets on what is behind
        (T5CausalBias.Config(), (0, -1, -15, -16, -128, -500), [0, 1, 15, 16, 31, 31]),
        (T5CausalBias.Config(), (1, 9, 100), [0, 0, 0]),
    ],
)
def test_distances_have_buckets(config, ahead: tuple[int, ...], buckets: list[int]) -> None:
    assert config.build(8, 2).buckets(torch.tensor([ahead]))[0].tolist() == buckets


def test_buckets_without_distances_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_distance = 8 must be more than the 8 .* raise it"):
        T5Bias.Config(max_distance=8).build(8, 2)


# ------------------------------ The fixed-length decoder against its equations, and its limit
CONFIG = LocationDecoder.Config(embedding_size=6, hidden_size=10, max_length=7, dropout=0.0)


def built() -> LocationDecoder:
    return CONFIG.build(Tokens(20), 8).eval()


@torch.no_grad()
def test_each_step_is_the_equation() -> None:
    decoder, memory = built(), Memory(torch.randn(1, 5, 8))
    ids = torch.tensor([[4, 7, 9]])
    score = decoder.cross_attention.score
    score.bias.normal_()
    with capture(decoder) as maps:
        result = decoder(ids, memory)[0]
    h = torch.tanh(decoder.bridge(memory.values.mean(dim=1)[0]))
    for t, x in enumerate(decoder.stem(ids)[0]):
        scores = score.weight[0] @ torch.cat((h, x)) + score.bias[0]
        alpha = scores[:5].softmax(dim=-1)
        close(maps["cross_attention"][0, 0, t], alpha)
        z = torch.relu(decoder.mix(torch.cat((x, alpha @ memory.values[0]))))
        (h,) = (part[0] for part in decoder.cell(decoder.cell.project(z[None]), (h[None],)))
        close(result[t], torch.tanh(decoder.readout(h)))


def test_a_source_past_the_limit_is_refused() -> None:
    decoder, ids = built(), torch.tensor([[4]])
    assert decoder(ids, Memory(torch.randn(1, 7, 8))).shape == (1, 1, 6)
    with pytest.raises(ValueError, match=r"8 tokens .* max_length = 7.* cut the source"):
        decoder(ids, Memory(torch.randn(1, 8, 8)))
