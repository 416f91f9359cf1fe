"""The laws of `foveate check` hold for every registered kind."""

from typing import Any

import pytest
import torch

from foveate.config import Config, kinds
from foveate.measure.laws import models, searches
from foveate.measure.laws.check import FAMILIES
from foveate.measure.laws.layers import WHOLE
from foveate.measure.laws.trial import LAWS, SIZES, Trial
from foveate.nn.attention import Attention
from laws.conftest import PARTS, shrink

assert searches.FAMILIES
FEWER = {"search": 3} | dict.fromkeys((*WHOLE, "feed_forward"), 5)


def made() -> dict[str, Any]:
    """Every kind to which the laws apply, with its defaults."""
    result = {}
    for family in FAMILIES:
        for name, config in kinds(family)[family].items():
            given = {k: v for k, v in models.PARTS.items() if k in config.model_fields}
            needed = {k for k, v in config.model_fields.items() if v.is_required()}
            preset = getattr(config.owner, "Config", None) is not config
            if needed <= given.keys() and not preset:
                kind = config(**{k: given[k] for k in needed})
                if family not in WHOLE:
                    result[f"{family} {name}"] = shrink(kind)
                elif not models.untried(kind):
                    result[f"{family} {name}"] = kind
    return result


KINDS = made() | {  # attention with every score and every normaliser
    f"attention {name}": Attention.Config(key_heads=1, **parts) for name, parts in PARTS.items()
}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_laws_of_every_kind(config: Config) -> None:
    concerned = [law for law in LAWS if law.concerns(config, None)]
    assert len(concerned) >= FEWER.get(config.family or "", 7)
    for law in concerned:
        for sizes in SIZES[1::3]:
            law.holds(Trial(config, sizes))
