"""What a model is built with besides its config, and how config.json says it.

Lives here: vocabularies of texts, sizes and labels of pictures. Does not live here: the config
itself (`huggingface_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from foveate.data.vocabulary import BOS, EOS, PAD
from foveate.nn.stem import Stem
from foveate.spec import Input, Labels, Pixels, Tokens

Settings = dict[str, Any]  # what config.json says
SPECIALS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
START = {"decoder_start_token_id": BOS, "forced_eos_token_id": None, "is_encoder_decoder": True}


class Ends(Protocol):
    """What stands before and behind the models of a family."""

    def read(self, settings: Settings) -> tuple[Input | Labels, ...]:
        """What our model is built with; ``settings`` say everything."""

    def write(self, model: nn.Module) -> Settings:
        """What config.json says of what our model was built with."""


@dataclass(frozen=True)
class Words:
    """Texts: ``count`` vocabularies of one size."""

    count: int

    def read(self, settings: Settings) -> tuple[Input | Labels, ...]:
        return (Tokens(settings["vocab_size"]),) * self.count

    def write(self, model: nn.Module) -> Settings:
        source = _read_by(model)
        assert isinstance(source, Tokens)
        return SPECIALS | (START if self.count == 2 else {}) | {"vocab_size": source.vocab_size}


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, and the ``labels`` of what they show where the model says it."""

    labels: bool

    def read(self, settings: Settings) -> tuple[Input | Labels, ...]:
        pixels = Pixels(settings["num_channels"], *sides(settings["image_size"]))
        return (pixels, Labels(_names(settings["id2label"]))) if self.labels else (pixels,)

    def write(self, model: nn.Module) -> Settings:
        source = _read_by(model)
        assert isinstance(source, Pixels)
        square = source.height == source.width
        size = source.height if square else [source.height, source.width]
        found: Settings = {"image_size": size, "num_channels": source.channels}
        labels = getattr(model, "labels", None)
        if not self.labels or not isinstance(labels, Labels):
            return found
        names = dict(enumerate(labels.names))
        return found | {"id2label": names, "label2id": {name: n for n, name in names.items()}}


def sides(size: Any) -> tuple[int, int]:
    """Height and width, which config.json says as one number where they are equal."""
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def _names(numbered: Mapping[Any, str]) -> tuple[str, ...]:
    """Labels by their numbers, which JSON has as text."""
    return tuple(numbered[n] for n in sorted(numbered, key=int))


def _read_by(model: nn.Module) -> Input:
    """What the first stem of a model reads."""
    return next(part.source for part in model.modules() if isinstance(part, Stem))
