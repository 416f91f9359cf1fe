"""Train a config into a run, or resume it, with snapshots of attention; average checkpoints."""

import contextlib
import shutil
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

from foveate.config import ConfigError, parse_tree, read, with_overrides
from foveate.data.catalogue import DataError
from foveate.decode.search import Greedy
from foveate.engine.packed import packed_file
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.look.draw.maps import shorten
from foveate.look.hooks import capture, hook_points
from foveate.nn.adapters import freeze
from foveate.run import (
    Run,
    RunConfig,
    base_of,
    device,
    load,
    located,
    read_run,
    start_with_adapters,
    task_of,
)
from foveate.run.pack import keep
from foveate.run.passes import default_target, first_example, forced_pass
from foveate.run.start import begin, check_size
from foveate.tasks.abilities import vocabulary_of
from foveate.tasks.base import AnyTask
from foveate.train import checkpoint
from foveate.train.checkpoint import run_lock
from foveate.train.config import ConfigChange, changes
from foveate.train.distributed import Ranks, ranks_of
from foveate.train.fit import Outcome, fit
from foveate.train.journal import SNAPSHOTS, Journal, SnapshotConfig, interval
from foveate.train.journal import read as read_log
from foveate.train.optim import average as average_weights
from foveate.train.stored import WEIGHTS, sealed_folder, verify, verify_run, write_tensors
from foveate.train.trainer import Job

MOST_WEIGHTS = 10_000  # of a snapshot; above, the heads of a layer are averaged


def train(
    config: str | Path | RunConfig,
    overrides: Sequence[str] = (),
    folder: str | Path | None = None,
    changed_data: bool = False,
) -> Run:
    """Train a config to its end, or go on where it stopped.

    The folder is ``runs/NAME`` by default, and that of the config where it is the config of a run.
    A run whose training examples have changed goes on with ``changed_data`` only. Raises
    ``ConfigError`` where the folder holds a run of another config, and `BusyError` where another
    process trains in it.
    """
    if isinstance(config, RunConfig):
        if folder is None:
            raise ConfigError("train needs a folder for a config that comes from no file")
        resolved, path = config, Path(folder)
        if overrides:
            tree = with_overrides(RunConfig, config.tree(), overrides)
            resolved = parse_tree(RunConfig, tree, over=overrides)
    else:
        resolved = read(RunConfig, config, overrides)
        own = Path(config).parent if Path(config).name == "config.toml" else None
        path = own if own and checkpoint.steps(own) else Path("runs") / Path(config).stem
        path = path if folder is None else Path(folder)
    _check_objective(resolved)
    resolved.train.check()  # before minutes go into preparing the data
    with ranks_of(resolved.train) as ranks, contextlib.ExitStack() as ending:
        ranks.on_rank_zero("the lock of the run", lambda: ending.enter_context(run_lock(path)))
        outcome = _fitted(resolved, path, ranks, changed_data)
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)
    run = load(path)
    if ranks.is_rank_zero and packed_file(path)[0] is None:  # else a training that had ended before
        print(keep(run), file=sys.stderr)
    return run


def _fitted(config: RunConfig, path: Path, ranks: Ranks, changed_data: bool) -> Outcome:
    prepared: list[tuple[AnyTask, list[ConfigChange]]] = []
    ranks.on_rank_zero("reading the data", lambda: prepared.append(_prepared(config, path)))
    if not ranks.is_rank_zero:
        if not (path / "config.toml").is_file():
            raise ConfigError(
                f"rank {ranks.rank} on {socket.gethostname()} does not see the run {path}, which "
                "rank 0 has made: the folder must be on a disk that all hosts share"
            )
        prepared.append(_prepared(config, path))
    [(task, changed)] = prepared
    torch.manual_seed(config.seed)
    try:
        model = task.build(config.model)
    except (TypeError, AttributeError) as error:
        raise ConfigError(
            f"the model {config.model.kind} does not fit the task {config.task.kind} ({error}); "
            "choose another model: foveate kinds model",
            ("model", "kind"),
        ) from error
    model = model.to(device())
    summary = ""
    if config.train.adapter is not None:
        summary = start_with_adapters(config, task, base_of(config, path), model)
    elif config.start is not None and not checkpoint.steps(path):
        earlier = load(config.start.run, config.start.checkpoint)
        summary = begin(config.start, earlier.model, model, (earlier.task, task))
    if ranks.is_rank_zero and summary:
        print(summary, file=sys.stderr)
    if config.train.freeze:
        freeze(model, config.train.freeze)
    return fit(job_of(config, task, model, changed, changed_data), config.train, path, ranks)


def job_of(
    config: RunConfig,
    task: AnyTask,
    model: nn.Module,
    changed: Sequence[ConfigChange] = (),
    changed_data: bool = False,
) -> Job:
    """Return the job of a config, whose task and model are ready."""
    return Job(
        task=task,
        model=model,
        objective=config.objective.build(),
        search=Greedy.Config().build(),
        seed=config.seed,
        toml=config.toml(),
        snapshots=partial(Snapshots, task, model),
        changes=tuple(changed),
        changed_data=changed_data,
    )


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
        self.cut, lines = self._journal.cut, read_log(run, SNAPSHOTS)
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


def _check_objective(config: RunConfig) -> None:
    """Raise ``ConfigError`` where the task cannot learn by the objective, or passes over a part."""
    config.task.check_objective(config.objective)
    forcing = config.objective.teacher_forcing.kind
    if forcing == "always":
        return
    if not task_of(config).own_outputs:
        why = f"the task {config.task.kind} writes nothing that its model would read"
    elif not getattr(config.model.owner, "feeds_back", True):
        why = f"the model {config.model.kind} forecasts all steps at once and reads none of them"
    else:
        return
    raise ConfigError(
        f"{why}; leave out teacher_forcing = {forcing!r}", ("objective", "teacher_forcing")
    )


def _prepared(config: RunConfig, path: Path) -> tuple[AnyTask, list[ConfigChange]]:
    """The task with its tokenizers, of the run if it exists, and the changes of its config.

    Raises `DataError` naming a split that has no example.
    """
    task = config.task.build(config.data)
    if (path / "config.toml").is_file():
        changed = changes(path, read_run(path).tree(), config.tree(), checkpoint.is_imported(path))
        task.restore(path)
        return task, changed
    if not path.name:
        raise ConfigError(f"--run {path}: name a new folder for the run")
    parts = path.with_name(f".{path.name}.new")
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    if config.start is not None:  # what the other run does not give, `prepare` learns
        earlier, vocabulary = located(Path(config.start.run)), config.start.vocabulary
        if vocabulary != "replace":
            check_size(config.start, read_run(earlier).task, config.task)
            vocabulary_of(task).inherit(earlier)
        if vocabulary == "extend":
            vocabulary_of(task).extend()
    task.prepare(parts, config.seed)
    for line in task.describe_data():
        print(line, file=sys.stderr)
    for split in ["train"] if config.train.validation.every is None else ["train", "valid"]:
        if not len(task.lengths(split)):
            raise DataError(
                f"{split} has no examples: its files are empty, or all were dropped "
                "(data.max_length and the like)"
            )
    replace_file(parts / "config.toml", config.toml())
    path.mkdir(parents=True, exist_ok=True)
    for file in sorted(parts.iterdir(), key=lambda file: file.name == "config.toml"):
        file.replace(path / file.name)  # the config comes last: with it the run exists
    parts.rmdir()
    return task, []


def average(path: str | Path, last: int | None = None) -> str:
    """Average the weights of the last checkpoints into ``averaged/``; says what it did.

    Raises `DamagedError` that names a checkpoint which is not as it was written.
    """
    path = Path(path)
    steps = [step for step in checkpoint.steps(path) if step > 0][-(last or 0) :]
    if not steps:
        raise ConfigError(f"{path} has no checkpoints to average")
    with run_lock(path):
        folders = [checkpoint.path_of(path, step) for step in steps]
        for folder in folders:
            verify(folder, WEIGHTS)
        files = verify_run(path, folders[-1])
        tensors = average_weights(folders)
        with sealed_folder(path / "averaged", files) as folder:
            write_tensors(tensors, folder / WEIGHTS)
    keep(load(path))
    return f"averaged {len(steps)} checkpoints ({steps[0]} to {steps[-1]}) into {path / 'averaged'}"
