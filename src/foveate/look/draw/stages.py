"""The drawing of one query or step, stage by stage, and its rendering.

The browser's renderer is ``web/src/core/steps.ts``.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from rich.cells import cell_len

from foveate.config import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Floats, Label, Numbers, Text
from foveate.look.draw.terminal import cut
from foveate.look.hooks import ForcedPass
from foveate.look.records import spaced
from foveate.look.stages import (
    Stage,
    attention_stages,
    backwards,
    capture_stages,
    cell_stages,
    joined,
)
from foveate.nn.attention import BaseAttention
from foveate.nn.recurrent import Cell


class StageDrawing(DrawingPart):
    """A stage of a computation: its numbers (F, R, C) in each frame, or (1, R, C) in all of them.

    ``origin`` is how the numbers were had, ``shape`` the size of the whole stage.
    """

    title: Text
    equation: str = ""
    origin: str = ""
    shape: list[int]
    values: Numbers
    rows: list[Label] = Field(default_factory=list)
    columns: list[Label] = Field(default_factory=list)
    across: str = ""
    least: float
    most: float

    def at(self, frame: int) -> Floats:
        """Return the numbers of one frame."""
        values: Floats = self.values.array[frame if len(self.values.array) > 1 else 0]
        return values


class StepsDrawing(Drawing):
    """The stages of each query or step, a frame each; ``frame`` is shown first, by default 0.

    Pictures and terminals show one of them.
    """

    kind: Literal["steps"] = "steps"
    stages: list[StageDrawing]
    frames: list[Label]
    frame: int | None = None

    def arrays(self) -> Arrays:
        stages: Arrays = {stage.title: stage.values.array for stage in self.stages}
        return stages | {"frames": np.array(self.frames)}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the numbers of a frame, as many per row as fit."""
        frame, fitting = self.frame or 0, width or 100
        lines = [f"{self.title}: {self.frames[frame]}"]
        for number, stage in enumerate(self.stages, start=1):
            lines += ["", f"{number:>2} {stage.title}   {stage.equation}"]
            lines += [f"   {stage.origin} · {' × '.join(map(str, stage.shape))}"]
            left = max((cell_len(cut(row)) for row in stage.rows), default=0)
            labels = [cut(column, 9) for column in stage.columns]
            shown = max(1, (fitting - left - 6) // 10)
            if labels:
                lines.append(" " * (left + 3) + "".join(f"{each:>10}" for each in labels[:shown]))
            values = stage.at(frame)
            rows = [cut(row) for row in stage.rows] or [""] * len(values)
            for row, cells in zip(rows, values, strict=True):
                numbers = "".join(f"{cell:>10.4f}" for cell in cells[:shown])
                more = " …" if len(cells) > shown else ""
                lines.append(f"   {' ' * (left - cell_len(row))}{row}{numbers}{more}")
        return "\n".join([*lines, "", self.caption])


def steps(forced: ForcedPass, name: str, query: int | None = None, head: int = 0) -> StepsDrawing:
    """Draw an attention or a cell by its dotted name: one query or step, or all of them.

    Raises ``ConfigError`` for an unknown head or query.
    """
    module = forced.model.get_submodule(name)
    with torch.inference_mode(), capture_stages(module) as calls:
        forced.run()
    if isinstance(module, BaseAttention):
        if not 0 <= head < module.num_heads:
            raise ConfigError(f"--head {head}: {name} has {module.num_heads}, counting from 0")
        weights = joined("weights", calls["weights"].values)[forced.row].numpy()
        rows, columns = forced.label({name: weights}, "tokens").labels(name)
        stages = attention_stages(module, calls, head, forced.row)
        title = f"{spaced(name)}, head {head}"
    elif isinstance(module, Cell):
        stages, columns, title = cell_stages(module, calls, forced.row), [], spaced(name)
        rows = forced.words(name, len(stages[0].values), produced=True)
        rows = rows[::-1] if backwards(name) else rows
    else:
        raise ConfigError(f"{name} is neither an attention nor a recurrent cell")
    return drawn(stages, rows, columns, query, title)


def drawn(
    stages: Sequence[Stage],
    rows: Sequence[str],
    columns: Sequence[str],
    query: int | None = None,
    title: str = "",
) -> StepsDrawing:
    """Draw stages; ``rows`` label the queries or steps, ``columns`` the keys.

    Raises ``ConfigError`` for a query beyond the last one.
    """
    if query is not None and query >= len(rows):
        raise ConfigError(f"--query {query}: there are {len(rows)}, from 0 to {len(rows) - 1}")
    far = {  # the largest number in a vector, whose colours its rotated form shares
        name: max(
            (float(np.abs(s.values).max()) for s in stages if s.name.endswith(name)), default=0
        )
        for name in ("query", "key", "value")
    }
    sheets = []
    for stage in stages:
        limits = {"query": len(rows), "step": len(rows), "key": len(columns)}  # no padding
        values = stage.values[tuple(slice(limits.get(axis)) for axis in stage.axes)]
        step = stage.axes[0] in ("query", "step")
        frames = values if step else values[None]
        frames = frames if frames.ndim == 3 else frames[:, None]
        labels = list(columns)
        finite = frames[np.isfinite(frames)]
        largest = max(far.get(stage.name, 0.0), float(np.abs(finite).max(initial=0)), 1e-12)
        positive = stage.name in ("weights", "exp", "sum") or stage.name.endswith(" gate")
        sheets.append(
            StageDrawing(
                title=stage.name, equation=stage.equation, origin=stage.origin,
                shape=list(values.shape),
                values=Numbers.exact(frames), rows=labels if "key" in stage.axes[:-1] else [],
                columns=labels if stage.axes[-1] == "key" else [],
                across="" if stage.axes[-1] == "key" else stage.axes[-1],
                least=0.0 if positive else -largest,
                most=1.0 if positive and stage.name not in ("exp", "sum") else largest,
            )
        )  # fmt: skip
    caption = (
        "Captured: computed by the model in its own forward pass. Derived: computed from captured "
        "stages and compared with the captured stage that follows. Decoder steps are labelled "
        "with the token that they produce, others with the one that is read."
    )
    return StepsDrawing(title=title, caption=caption, stages=sheets, frames=list(rows), frame=query)
