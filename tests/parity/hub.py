"""The `transformers` library for comparisons: quiet, and its models as files bring them back."""

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="parity needs transformers (extra: dev)")
logging.getLogger("transformers").setLevel(logging.ERROR)


def quietly(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the library says of itself
        return make()


def made(architecture: str, **settings: Any) -> Any:
    """A model of a class of theirs with the config that belongs to it."""
    owner = getattr(transformers, architecture)
    return quietly(lambda: owner(owner.config_class(**settings)).eval())


def read_back(folder: Path) -> Any:
    """The model that the library itself reads in a folder; it finds all tensors but poolers."""
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    load = getattr(transformers, architecture).from_pretrained
    model, report = quietly(lambda: load(folder, output_loading_info=True))
    assert not report["unexpected_keys"]
    assert not [key for key in report["missing_keys"] if "pooler" not in key]
    return model.eval()
