"""The table [train]: it comes back from TOML, and kinds may be named alone."""

from __future__ import annotations

import tomllib

import pytest

from foveate.config import ConfigError
from foveate.train.config import TrainConfig
from foveate.train.optim import AdamConfig, Noam


def test_it_comes_back_from_toml() -> None:
    tree = {
        "max_steps": 20_000, "optimizer": "adam", "clip_norm": 0.5, "average": 5,
        "schedule": {"kind": "noam", "hidden_size": 512}, "save": {"every": 500, "best": "bleu"},
    }  # fmt: skip
    config = TrainConfig.parse(tree)
    assert isinstance(config.optimizer, AdamConfig) and isinstance(config.schedule, Noam.Config)
    assert TrainConfig.parse(tomllib.loads(config.toml())) == config
    config.check()


@pytest.mark.parametrize(
    ("tree", "where"),
    [({"accumulate": 0}, "accumulate"), ({"validation": {"evry": 3}}, "validation.evry"),
     ({"average": 1}, "average"), ({"precision": "fp16"}, "precision")],
)  # fmt: skip
def test_wrong_values_are_named(tree: dict[str, object], where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where}: "):
        TrainConfig.parse(tree)


def test_something_has_to_end_it() -> None:
    for tree in ({"max_minutes": 1.5}, {"max_epochs": 1}, {"validation": {"patience": 3}}):
        TrainConfig.parse(tree).check()
    with pytest.raises(ConfigError, match="nothing would end it"):
        TrainConfig().check()
