"""The laws of `foveate check` hold for every registered kind."""

import pytest
import torch

from foveate.config import Config
from foveate.measure.laws import models, searches
from foveate.measure.laws.check import FAMILIES
from foveate.measure.laws.layers import WHOLE
from foveate.measure.laws.trial import LAWS, SIZES, Trial
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.attention import Attention
from laws.conftest import PARTS, defaults

assert searches.FAMILIES
FEWER = {"search": 3} | dict.fromkeys((*WHOLE, "feed_forward"), 5)


KINDS = {
    f"{family} {name}": config
    for family in FAMILIES
    for name, config in defaults(family).items()
    if config.owner.Config is type(config)  # and not a preset
} | {  # attention with every score and every normaliser
    f"attention {name}": Attention.Config(key_heads=1, **parts) for name, parts in PARTS.items()
}
KINDS["model encoder_decoder"] = EncoderDecoder.Config(**models.PARTS)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_laws_of_every_kind(config: Config) -> None:
    concerned = [law for law in LAWS if law.concerns(config, None)]
    assert len(concerned) >= FEWER.get(config.family or "", 7)
    for law in concerned:
        for sizes in SIZES[1::3]:
            law.holds(Trial(config, sizes))
