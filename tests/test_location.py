"""The fixed-length decoder against its equations, and its limit."""

from __future__ import annotations

import pytest
import torch

from foveate.inspect.records import capture
from foveate.models.encoder_decoder import Memory
from foveate.models.recurrent import LocationDecoder
from foveate.spec import Tokens
from tolerances import close

CONFIG = LocationDecoder.Config(embedding_size=6, hidden_size=10, max_length=7, dropout=0.0)


def built(memory_size: int | None = 8) -> LocationDecoder:
    decoder: LocationDecoder = CONFIG.build(Tokens(20), memory_size)
    return decoder.eval()


@torch.no_grad()
def test_each_step_is_the_equation() -> None:
    decoder, memory = built(), Memory(torch.randn(1, 5, 8))
    ids = torch.tensor([[4, 7, 9]])
    score = decoder.cross_attention.score
    score.bias.normal_()  # type: ignore[union-attr,operator]
    with capture(decoder) as maps:
        result = decoder(ids, memory)[0]
    h = torch.tanh(decoder.bridge(memory.values.mean(dim=1)[0]))
    for t, x in enumerate(decoder.stem(ids)[0]):
        scores = score.weight[0] @ torch.cat((h, x)) + score.bias[0]  # type: ignore[operator,index]
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


def test_it_needs_a_source() -> None:
    with pytest.raises(ValueError, match='language model has none; take "recurrent"'):
        built(memory_size=None)
