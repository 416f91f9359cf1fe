"""After the last step: the mean of the last checkpoints, tried against the best single one.

Lives here: which checkpoints, and whether their mean is taken. Does not live here: forming the mean
(`foveate.train.average`). All of it happens on rank 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foveate.train import checkpoint, files
from foveate.train.average import average
from foveate.train.checkpoint import WEIGHTS
from foveate.train.files import DamagedError
from foveate.train.trainer import Trainer


def try_average(trainer: Trainer, count: int, reason: str) -> str:
    """Put the mean of the last checkpoints into ``averaged/`` and see whether it is better."""
    display, folder = trainer.tools.display, trainer.folder
    steps = _sound_steps(trainer)[-count:]
    if len(steps) < 2:
        display.say(f"nothing to average: {len(steps)} checkpoint of the last {count} is there")
        return reason
    record = _known_average(folder, steps)
    if record is None:
        try:
            record = _average(trainer, steps)
        except KeyboardInterrupt:
            if trainer.tools.interrupt.received is None:
                raise
            return "interrupted"
        trainer.tools.journal.write("average", trainer.state.step, **record)
    best, value = trainer.state.best, record.get("value")
    sign = trainer.job.task.better(trainer.config.save.best)
    better = best is None or (value is not None and sign * value > sign * best.value)
    if better:
        checkpoint.point(folder, folder / "averaged", record)
    display.say(
        f"mean of the checkpoints of steps {', '.join(map(str, steps))}: "
        + (f"{record['figure']} {value:.4g}" if value is not None else "not validated")
        + ("" if best is None else f", the best single one {best.value:.4g} (step {best.step:,})")
        + f"; {'the mean' if better else 'the single one'} is taken"
    )
    return reason


def _sound_steps(trainer: Trainer) -> list[int]:
    found = []
    for step in trainer.regular():
        try:
            files.verify(checkpoint.path_of(trainer.folder, step))
        except DamagedError as damage:
            trainer.tools.display.say(f"left out of the mean: {damage}")
            continue
        found.append(step)
    return found


def _known_average(folder: Path, steps: list[int]) -> dict[str, Any] | None:
    """What is known of the mean of these steps from an earlier session."""
    try:
        files.verify(folder / "averaged")
        record = json.loads((folder / "averaged" / "state.json").read_text(encoding="utf-8"))
    except (DamagedError, OSError, ValueError):
        return None
    return dict(record) if record.get("steps") == steps else None


def _average(trainer: Trainer, steps: list[int]) -> dict[str, Any]:
    """Write the mean, measure it where the run is validated; gives its ``state.json``."""
    job, config = trainer.job, trainer.config
    record: dict[str, Any] = {"steps": steps}
    with files.sealed_folder(trainer.folder / "averaged") as target:
        paths = [checkpoint.path_of(trainer.folder, step) for step in steps]
        checkpoint.write_tensors(average(paths), target / WEIGHTS)
        if config.validation.every is not None:
            model = trainer.parallel.plain
            checkpoint.load_weights(model, target / WEIGHTS)
            figures = trainer.measure(model).figures
            name = config.save.best
            record |= {"figure": name, "value": figures[name], "figures": figures}
        (target / "config.toml").write_text(job.toml, encoding="utf-8")
        (target / "state.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    return record
