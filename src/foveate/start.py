"""Beginning with the weights of another run: fine-tuning.

    [start]
    run = "runs/masked"
    parts = ["encoder"]

A new run takes the tokenizers of that run (`foveate.tasks.base.Task.inherit`) and copies of the
weights of the named parts; all other weights begin as they would without it. Lives here: what a
config says about it, and the copying. Does not live here: loading the run (`foveate.training`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, cast

import torch
from torch import Tensor, nn

from foveate.config import Config, ConfigError

State = Mapping[str, Tensor]  # the state of a model, each tensor under all its names


class Start(Config):
    """From which run a new one begins; ``parts`` are dotted names in the model, none means all.

    ``vocabulary`` says whose tokens the new run reads: "same", those of the run that it starts
    from.
    """

    run: str
    checkpoint: str = "best"  # or last, average, a step
    parts: tuple[str, ...] = ()
    vocabulary: Literal["same", "extend", "replace"] = "same"


def copy_parts(start: Start, given: State, model: nn.Module) -> str:
    """Copy the weights of the parts into ``model``; a sentence that says how many were taken.

    Raises ``ConfigError`` where a part is not there, or a tensor has another name or shape; no
    weight has changed then.
    """
    if start.vocabulary != "same":
        raise ConfigError(
            f'"{start.vocabulary}" is not available for this task; write "same"',
            ("start", "vocabulary"),
        )
    own = cast(dict[str, Tensor], model.state_dict())
    for part in start.parts:
        for state, whose in ((given, start.run), (own, "this model")):
            if not _of(state, (part,)):
                raise ConfigError(f"{whose} has no {part!r}; {_known(state)}", ("start", "parts"))
    wanted, there = _of(own, start.parts), _of(given, start.parts)
    if wanted != there:
        few, many = sorted(wanted - there), sorted(there - wanted)
        raise ConfigError(
            f"{start.run} is of another model: it lacks {few[:3] or 'nothing'} and has "
            f"{many[:3] or 'nothing'} besides; make the parts alike, or name fewer in start.parts",
            ("start", "run"),
        )
    for name in sorted(wanted):
        if given[name].shape != own[name].shape:
            raise ConfigError(_unlike(start, name, given[name], own[name]), ("start", "run"))
    with torch.no_grad():
        for name in wanted:
            own[name].copy_(given[name])
    size = sum(own[name].numel() for name in wanted)
    parts = ", ".join(start.parts) or "everything"
    return f"started from {start.run}: {parts}, {size:,} weights in {len(wanted)} tensors"


def _of(state: Iterable[str], parts: tuple[str, ...]) -> set[str]:
    """The names that belong to some parts; all of them where no part is named."""
    inside = tuple(f"{part}." for part in parts)
    return {name for name in state if not parts or name in parts or name.startswith(inside)}


def _known(state: Iterable[str]) -> str:
    parts = dict.fromkeys(name.partition(".")[0] for name in state)
    return f"there are {', '.join(parts)}, and what is in them"


def _unlike(start: Start, name: str, given: Tensor, own: Tensor) -> str:
    """Why two tensors of one name do not fit, and what to do."""
    shapes = f"{name} is {tuple(given.shape)} in {start.run} and {tuple(own.shape)} here"
    if given.shape[1:] == own.shape[1:] and ("embedding" in name or name.startswith("output")):
        return (
            f"{shapes}: {len(given):,} tokens or labels there, {len(own):,} here; read the same "
            "tokens (the tokenizer of that run), or leave the part out of start.parts"
        )
    return f"{shapes}; give the part the sizes that {start.run}/config.toml has"
