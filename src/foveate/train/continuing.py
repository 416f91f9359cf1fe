"""Going on with another config: which keys may change, what each changes, and the record of it.

Lives here: the table of keys, comparing two configs, the files ``config.1.toml``, … with the
earlier ones. Does not live here: resuming the state (`foveate.train.fit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foveate.config import ConfigError
from foveate.train.config import TrainConfig
from foveate.train.files import write_atomically
from foveate.train.journal import Journal
from foveate.tree import Tree

CONFIG = "config.toml"  # its name in a run

# A key stands for all keys below it; the longest that fits counts.
CHANGEABLE: Mapping[str, str] = {
    "decode": "changes how the run decodes, not its weights",
    "train.max_steps": "changes where training ends",
    "train.max_epochs": "changes where training ends",
    "train.max_minutes": "changes where training ends",
    "train.optimizer": "changes the updates from the next step on",
    "train.schedule": "changes the learning rates from the next step on",
    "train.clip_norm": "changes the bound on the gradients from the next step on",
    "train.accumulate": "changes the number of batches of a step",
    "train.recompute": "changes memory and time, not the weights",
    "train.compile": "changes time, and the rounding of sums",
    "train.save": "changes which checkpoints are kept",
    "train.save.best": "changes which figure chooses the best checkpoint, from now on",
    "train.validation": "changes when the model is validated",
    "train.validation.patience": "changes where training ends",
    "train.precision": "changes the rounding from the next step on",
    "train.log_every": "changes what is logged",
    "train.health_every": "changes what is logged",
    "train.tensorboard": "changes what is logged",
    "train.threads": "changes time, and the rounding of sums",
    "train.average": "changes which weights are tried at the end",
    "train.ema": "changes the moving mean, which begins with the present weights if it is new",
    "train.parallel": "changes how the ranks share the work",
    "train.hang_minutes": "changes when a rank counts as hung",
}
FIXED: Mapping[str, str] = {
    "seed": "the order of the data and the first weights depend on it",
    "imports": "the kinds of the run come from it",
    "task": "the tokenizers and the batches depend on it",
    "data": "the training examples depend on it",
    "model": "the weights have its shapes",
    "start": "the first weights came from it",
    "objective": "the losses before and after could not be compared",
    "train.batch_tokens": "the order of the data depends on it",
    "train.optimizer.kind": "the saved state is that of the other optimizer",
    "train.optimizer.momentum": "the saved state depends on it",
    "train.optimizer.nesterov": "the saved state depends on it",
}


@dataclass(frozen=True)
class Change:
    """A key whose value is another one than before, and what this changes."""

    key: str
    old: Any
    new: Any
    effect: str

    def __str__(self) -> str:
        return f"{self.key} {self.old} → {self.new} ({self.effect})"


def effect_of(key: str) -> tuple[bool, str]:
    """Whether a key may change when a run goes on, and what it changes or why it may not."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in FIXED:
            return False, FIXED[name]
        if name in CHANGEABLE:
            return True, CHANGEABLE[name]
    return False, "the run depends on it"


class Experiment(Protocol):
    """A whole config, of which ``train`` is a part."""

    @property
    def train(self) -> TrainConfig:
        """The table ``[train]``."""
        ...

    def tree(self) -> Tree:
        """All fields as plain values."""
        ...


def changes(path: Path, old: Experiment, new: Experiment) -> list[Change]:
    """What differs between the config of the run ``path`` and the one with which it goes on.

    Raises ``ConfigError`` naming the first key that may not change.
    """
    before, after = _flat(old.tree()), _flat(new.tree())
    found = []
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key, "none"), after.get(key, "none")
        if was == now:
            continue
        allowed, effect = effect_of(key)
        if not allowed:
            raise ConfigError(
                f"{path} holds a run of another config: {key} is {was} there and {now} now, and "
                f"cannot change when a run goes on, for {effect}; set {key}={was}, or begin a new "
                "run in another folder with --run"
            )
        if key == "train.max_steps" and _moves_schedule(old.train, new.train):
            effect = f"moves the {new.train.schedule.kind} schedule"
        found.append(Change(key, was, now, effect))
    return found


def _moves_schedule(old: TrainConfig, new: TrainConfig) -> bool:
    """Whether the learning rates of the new config depend on which ``max_steps`` it has."""
    ends = old.max_steps, new.max_steps
    if None in ends:
        return False
    lr, step = new.optimizer.lr, min(end for end in ends if end)
    try:
        rates = {new.schedule.build(lr, end).rate(step) for end in ends}
    except ConfigError:  # the old end lies within the warm-up of the new schedule
        return True
    return len(rates) > 1


def record(folder: Path, toml: str, changed: Sequence[Change], journal: Journal, step: int) -> None:
    """Keep the config of before as ``config.N.toml``, log the changes, and replace it.

    The config itself comes last: killed before, the next continuation records the changes.
    """
    before = (folder / CONFIG).read_text(encoding="utf-8")
    number = 1
    while (kept := folder / f"config.{number}.toml").exists():
        number += 1
    write_atomically(kept, before)
    values = {change.key: {"old": change.old, "new": change.new} for change in changed}
    journal.write("config", step, before=kept.name, changes=values)
    write_atomically(folder / CONFIG, toml)


def _flat(tree: Tree, above: str = "") -> dict[str, Any]:
    """The values of a tree by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
