"""Attention to one example at steps of a training: the frames of the film of `look learning`."""

from pathlib import Path

import torch
from torch import nn

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.maps import shorten
from foveate.look.hooks import capture, hook_points
from foveate.run.passes import default_target, first_example, forced_pass
from foveate.tasks.base import AnyTask
from foveate.train.journal import SNAPSHOTS, Journal, SnapshotConfig, interval, read

MOST_WEIGHTS = 10_000  # of a snapshot; above, the heads of a layer are averaged


class Snapshots:
    """Writes ``snapshots.jsonl``: a line with every map of one example, read by teacher forcing.

    The model reads it in eval mode, so that no random number is drawn. A line has ``title``,
    ``loss`` and the ``blocks`` of the maps, in at most `MOST_WEIGHTS`.
    """

    def __init__(
        self, task: AnyTask, model: nn.Module, config: SnapshotConfig, run: Path, step: int
    ) -> None:
        """Raises `UserError` without attention or an example, in a sentence."""
        if not hook_points(model):
            raise UserError("the model has no attention")
        example = (config.source, config.target) if config.source else first_example(task)
        searched = default_target.dispatch(type(task)) is not default_target.dispatch(object)
        if example[1] is None and searched:
            raise ConfigError(
                "the same target must be forced at every step: set it, or leave out the source",
                ("train", "snapshots", "target"),
            )
        self.model, self.every = model, config.every
        self.forced = forced_pass(task, model, *example)
        self._journal = Journal(run, step, name=SNAPSHOTS)
        self.cut, lines = self._journal.cut, read(run, SNAPSHOTS)
        self.last = int(lines[-1]["step"]) if lines else -1  # the step of the newest

    def due(self, step: int, last: bool = False) -> bool:
        """Return whether a step, or the last one, has a snapshot that is not taken yet."""
        return step > self.last and (last or step % interval(self.every, step) == 0)

    def take(self, step: int) -> None:
        """Append the maps of the example; of a model that is not finite the next step tells."""
        forced = self.forced
        self.model.eval()
        try:
            with torch.no_grad(), capture(self.model) as captured:
                scores = forced.run()
        finally:
            self.model.train()
        if not all(bool(weights.isfinite().all()) for weights in captured.values()):
            return
        maps = {name: weights[forced.row].cpu().numpy() for name, weights in captured.items()}
        record = forced.label(maps, forced.units)
        blocks = [part.model_dump(mode="json") for part in shorten(record, MOST_WEIGHTS)[0]]
        loss = -float(scores.float().mean()) if forced.score_name == "log p" else None
        self._journal.write("snapshot", step, title=record.title, loss=loss, blocks=blocks)
        self.last = step

    def close(self) -> None:
        """Close the file."""
        self._journal.close()
