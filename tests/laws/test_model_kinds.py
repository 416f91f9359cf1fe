"""The laws of `foveate check` for whole parts and models hold for every registered kind."""

import pytest

from foveate.config import kinds
from foveate.measure.laws import models
from foveate.measure.laws.layers import WHOLE
from laws.conftest import keeps_laws


def made() -> dict[str, object]:
    """Every kind to which the laws apply, with its defaults."""
    result = {}
    for family in (*WHOLE, "feed_forward"):
        for name, config in kinds(family)[family].items():
            given = {k: v for k, v in models.PARTS.items() if k in config.model_fields}
            needed = {k for k, v in config.model_fields.items() if v.is_required()}
            preset = getattr(config.owner, "Config", None) is not config
            if needed <= given.keys() and not preset:
                kind = config(**{k: given[k] for k in needed})
                if family not in WHOLE or not models.untried(kind):
                    result[f"{family} {name}"] = kind
    return result


KINDS = made()


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_laws_of_whole_kinds(config) -> None:
    keeps_laws(config)
