"""After the last step: the mean of the last checkpoints, tried against the best single one."""

import json

from foveate.files import write_text
from foveate.train import checkpoint, stored
from foveate.train.journal import read
from foveate.train.optim import average
from foveate.train.stored import WEIGHTS, DamagedError, Record
from foveate.train.trainer import Trainer


def try_average(trainer: Trainer, count: int, reason: str) -> str:
    """Put the mean of the last checkpoints into ``averaged/`` and see whether it is better."""
    display, folder = trainer.display, trainer.folder
    damages: list[DamagedError] = []
    steps = list(checkpoint.sound(folder, trainer.regular(), damages))[-count:]
    for damage in damages:
        display.say(f"left out of the mean: {damage}")
    if len(steps) < 2:
        display.say(f"nothing to average: {len(steps)} checkpoint of the last {count} exists")
        return reason
    record = _known_average(trainer, steps)
    if record is None:
        record = trainer.interrupt.unless(lambda: _average(trainer, steps))
        if record is None:
            return "interrupted"
        trainer.journal.write("average", trainer.state.step, **record)
    best, value = trainer.state.best, record.get("value")
    sign = trainer.job.task.better(trainer.config.save.best)
    better = best is None or (value is not None and sign * value > sign * best.value)
    if better:
        checkpoint.write_best(folder, folder / "averaged", record)
    display.say(
        f"mean of the checkpoints of steps {', '.join(map(str, steps))}: "
        + (f"{record['figure']} {value:.4g}" if value is not None else "not validated")
        + ("" if best is None else f", the best single one {best.value:.4g} (step {best.step:,})")
        + f"; {'the mean' if better else 'the single one'} is used"
        + ("" if better else _why_worse(trainer, steps))
    )
    return reason


def _why_worse(trainer: Trainer, steps: list[int]) -> str:
    """Why the mean of the checkpoints of these steps is worse than one of them."""
    log, name = read(trainer.folder), trainer.config.save.best
    rates = [line["lr"] for line in log if line["event"] == "train"]
    if rates and rates[-1] > max(rates) / 2:
        share = f"{100 * rates[-1] / max(rates):.0f} % of the highest"
        return f": the learning rate had not decayed ({share}), so they are far apart"
    figures = [line[name] for line in log if line["event"] == "valid" and line["step"] in steps]
    if len(figures) > 1:
        return f": the model still changed over them ({name} {figures[0]:.4g} to {figures[-1]:.4g})"
    return ""


def _known_average(trainer: Trainer, steps: list[int]) -> Record | None:
    """The record of the mean of these steps, where an earlier session wrote it and its figure is
    still comparable: there is a best checkpoint by the same figure.
    """
    folder, config = trainer.folder / "averaged", trainer.config
    try:
        stored.verify(folder)
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (DamagedError, OSError, ValueError):
        return None
    measured = trainer.state.best is not None and record.get("figure") == config.save.best
    comparable = measured or config.validation.every is None
    return dict(record) if record.get("steps") == steps and comparable else None


def _average(trainer: Trainer, steps: list[int]) -> Record:
    """Write the mean, measure it where the run is validated; gives its ``state.json``."""
    job, config = trainer.job, trainer.config
    record: Record = {"steps": steps}
    with stored.sealed_folder(trainer.folder / "averaged", trainer.files) as target:
        paths = [checkpoint.path_of(trainer.folder, step) for step in steps]
        stored.write_tensors(average(paths), target / WEIGHTS)
        if config.validation.every is not None:
            model = trainer.parallel.plain
            stored.load_weights(model, target / WEIGHTS)
            figures = trainer.measure(model).figures
            name = config.save.best
            record |= {"figure": name, "value": figures[name], "figures": figures}
        write_text(target / "config.toml", job.toml)
        write_text(target / "state.json", json.dumps(record, indent=1))
    return record
