"""What ``look`` draws: attention, positions, schedules, gradients over time, gates.

Does not live here: the command line (`foveate.cli.looking`), the pictures (`foveate.look`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from foveate.config import ConfigError, read
from foveate.look.view import View

if TYPE_CHECKING:
    from foveate.look.record import AttentionRecord
    from foveate.run import Run


def saved(view: View, out: Sequence[Path]) -> list[str]:
    """Write a picture in the form of each ending, and say where; without any, as text."""
    return [f"wrote {view.save(path)}" for path in out] or [view.text()]


@dataclass(frozen=True)
class Part:
    """Which map of a record to draw; see `foveate.look.record.AttentionRecord.select`."""

    block: str | None = None  # cross_attention where there is one, else the model's first
    layer: int = -1
    head: int | None = None


def attention(record: AttentionRecord, part: Part) -> View:
    """A map of a record. Raises `ConfigError` naming the blocks, layers and heads that exist."""
    from foveate.look.heatmap import attention as draw

    first = (
        "cross_attention" if record.names("cross_attention") else next(iter(record.blocks()), "")
    )
    try:
        return draw(record, part.block or first, part.layer, part.head)
    except LookupError as error:
        raise ConfigError(str(error.args[0])) from None


def positions(kind: str, length: int, hidden_size: int, num_heads: int) -> View:
    """A position encoding. Raises `ConfigError` for an unknown kind or sizes that it refuses."""
    from foveate.look.positions import positions as draw
    from foveate.nn.position import Position

    config = Position.Config.parse({"kind": kind})
    torch.manual_seed(1)  # what is learned is shown as it begins
    try:
        return draw(config.build(hidden_size, num_heads), length, hidden_size, num_heads)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def schedule(configs: Sequence[Path], steps: int | None) -> View:
    """The learning rates that configs (or runs) train with, up to the longest of them."""
    from foveate.look.schedule import schedule as draw
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


def gradients(runs: Sequence[Run], text: str) -> View:
    """The gradient's norm against distance, for language models that read a text."""
    from foveate.look.gradients import gradients as draw
    from foveate.look.gradients import influence

    norms = {}
    for run in runs:
        read, _ = reading(run, text)
        decoder = run.model.decoder
        norms[run.path.name] = influence(partial(decoder, read, None), decoder.stem)
    return draw(norms)


def gates(run: Run, text: str, layer: int) -> View:
    """The gates of a layer of a recurrent language model, over the tokens of a text."""
    from foveate.look.gates import capture_gates
    from foveate.look.gates import gates as draw

    read, words = reading(run, text)
    with torch.inference_mode(), capture_gates(run.model) as found:
        run.model.decode(read)
    layers = list(found.values())
    if not layers:
        raise ConfigError(f"{run.path}: its model has no recurrent cells, and so no gates")
    if not -len(layers) <= layer < len(layers):
        raise ConfigError(f"layer {layer}: {run.path} has {len(layers)}, counted from 0")
    try:
        return draw(layers[layer], words, title=list(found)[layer])
    except ValueError as error:
        raise ConfigError(str(error)) from None


def reading(run: Run, text: str) -> tuple[torch.Tensor, list[str]]:
    """What a language model reads of a text, (1, T), the end of a line before it; and its labels.

    Raises `ConfigError` for a run of another task.
    """
    from foveate.data.tokenizer import EOS
    from foveate.tasks.generation import END_OF_LINE

    ids: list[int] = [EOS, *run.can("ids_of", "read a text as a language model does")(text)]
    labels = [END_OF_LINE if i == EOS else run.task.tokenizer.decode([i]) for i in ids]
    return torch.tensor([ids], device=run.model.output.weight.device), labels
