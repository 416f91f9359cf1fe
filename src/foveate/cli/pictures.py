"""What ``look`` and ``bench`` draw and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from foveate.cli.options import check_inputs
from foveate.config import ConfigError, read
from foveate.look.drawings import Drawing
from foveate.look.views import find
from foveate.look.views.options import Question


def saved(view: Drawing, out: Sequence[Path]) -> list[str]:
    """Write a picture in the form of each ending, and say where; without any, as text."""
    return [f"wrote {view.save(path)}" for path in out] or [view.text()]


def drawn(name: str, runs: Sequence[Path], fields: Mapping[str, Any], checkpoint: str) -> Drawing:
    """The view of some runs that a question asks for; what is absent in it is not asked."""
    from foveate.run import load

    question = Question.parse({key: value for key, value in fields.items() if value is not None})
    loaded = [load(path, checkpoint) for path in runs]
    for run in loaded:
        check_inputs(run, fields.get("text"), fields.get("image"))
    return find(name).draw(loaded, question)


def report(run: Path, out: Path, fields: Mapping[str, Any], checkpoint: str) -> list[str]:
    """Write the page of all views that fit a run; say where, and which do not fit and why."""
    from foveate.look.views.report import report as made
    from foveate.run import load

    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the report is one page; end its name in .html")
    question = Question.parse({key: value for key, value in fields.items() if value is not None})
    loaded = load(run, checkpoint)
    check_inputs(loaded, fields.get("text"), fields.get("image"))
    page = made(loaded, question)
    page.save(out)
    return [f"wrote {out}", *(f"not in it: {name}: {why}" for name, why in page.left_out.items())]


def positions(kind: str, length: int, hidden_size: int, num_heads: int) -> Drawing:
    """A position encoding. Raises `ConfigError` for an unknown kind or sizes that it refuses."""
    from foveate.look.models import positions as draw
    from foveate.nn.positions import Position

    config = Position.Config.parse({"kind": kind})
    torch.manual_seed(1)  # what is learned is shown as it begins
    try:
        return draw(config.build(hidden_size, num_heads), length, hidden_size, num_heads)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def schedule(configs: Sequence[Path], steps: int | None) -> Drawing:
    """The learning rates that configs (or runs) train with, up to the longest of them."""
    from foveate.look.models import schedule as draw
    from foveate.run import RunConfig

    rates, ends = {}, [steps or 0]
    for path in configs:
        train = read(RunConfig, path / "config.toml" if path.is_dir() else path).train
        length = train.max_steps or steps
        rates[path.stem] = train.schedule.build(train.optimizer.lr, length).rate
        ends.append(steps or train.max_steps or 0)
    if max(ends) < 1:
        raise ConfigError("no config says train.max_steps: give --steps")
    return draw(rates, max(ends))
