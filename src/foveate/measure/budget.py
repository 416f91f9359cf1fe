"""Train models on equal terms: the same examples, tokenizers and budget; runs can be resumed."""

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from foveate.config import ConfigError, read
from foveate.errors import NoOutputError
from foveate.files import write_text
from foveate.measure.training import LEAST, WARM, Workload, rates
from foveate.measure.training import train as measured_steps
from foveate.run import Run, RunConfig, device, load, read_run, task_of
from foveate.run.training import train
from foveate.tasks.abilities import Generates
from foveate.tasks.text import TextToText
from foveate.train.config import ValidationConfig, resolve
from foveate.train.feed import batches_of_steps
from foveate.train.journal import Line
from foveate.train.journal import read as read_journal
from foveate.train.optim import Constant

VALIDATIONS = 6  # validations in each run, including one at the last step
FEWEST = 10  # steps in a run
PILOT = 1 / 20  # the share of the minutes spent on measuring the time of a step
T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """The training budget of each model: exactly one of the three limits."""

    minutes: float | None = None
    steps: int | None = None
    tokens: int | None = None  # target tokens

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.minutes, self.steps, self.tokens)) != 1:
            raise ConfigError("give one budget: --steps, --tokens or --minutes")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:g} minutes of wall clock, validations included"
        return f"{self.steps:,} steps" if self.steps else f"{self.tokens:,} target tokens"


@dataclass(frozen=True)
class Contender:
    """A trained model with its name; ``before`` is true if it is older than the comparison."""

    name: str
    run: Run
    before: bool

    def result(self, of: Callable[[Run], T]) -> T:
        """Return ``of(run)``; a ``NoOutputError`` names the model."""
        try:
            return of(self.run)
        except NoOutputError as error:
            raise NoOutputError(f"{self.name}: {error}") from None

    @cached_property
    def journal(self) -> list[Line]:
        """The lines of its training log."""
        return read_journal(self.run.path)

    @cached_property
    def spent(self) -> dict[str, float]:
        """Steps, target tokens, minutes, and target tokens per second of its training."""
        lines = [line for line in self.journal if line["event"] == "train"]
        each = sorted(line["tokens_per_second"] for line in lines)
        return {
            "steps": max(
                (line["step"] for line in self.journal if "step" in line), default=math.nan
            ),
            "tokens": max((line["target_tokens"] for line in lines), default=math.nan),
            "minutes": max((x["seconds"] for x in self.journal if "seconds" in x), default=0) / 60,
            "speed": each[len(each) // 2] if each else math.nan,
        }


@dataclass
class ComparisonPlan:
    """The models to compare: existing runs, the configs of all, and remarks."""

    names: list[str] = field(default_factory=list)
    runs: dict[str, Path] = field(default_factory=dict)
    configs: dict[str, RunConfig] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> RunConfig:
        """The config whose task, data and search apply to all models."""
        return self.configs[self.names[0]]


def planned(paths: Sequence[Path], overrides: Sequence[str], data: Sequence[str]) -> ComparisonPlan:
    """Plan a comparison of configs and runs on the examples, tokenizers and batches of the first.

    ``data`` replaces the files of its task. Raises ``ConfigError`` if the tasks differ in kind.
    """
    plan = ComparisonPlan()
    for path in paths:
        name = path.stem if path.suffix == ".toml" else path.resolve().name
        number = sum(other.split(" #")[0] == name for other in plan.names) + 1
        name = name if number == 1 else f"{name} #{number}"
        if path.is_dir():
            plan.runs[name], config = path, read_run(path)
        else:
            config = read(RunConfig, path, overrides)
        if data and not plan.names:
            config = with_data(config, data)
            if path.is_dir():
                plan.notes[f"{name} differs"] = "it was trained on data other than --data"
        add(plan, name, config)
    return plan


def add(plan: ComparisonPlan, name: str, config: RunConfig) -> None:
    """Add a model to a plan, with its config changed to the terms of the first."""
    first = plan.first if plan.names else config
    plan.names.append(name)
    if family_of(config) is not family_of(first):
        raise ConfigError(
            f"{name} has the task {config.task.kind}, {plan.names[0]} {first.task.kind}: "
            "compare models of one task"
        )
    shared = [f for f in type(first.task).model_fields if f in type(config.task).model_fields]
    task = config.task.model_copy(update={f: getattr(first.task, f) for f in shared})
    changed = [f"task.{f}" for f in shared if getattr(config.task, f) != getattr(first.task, f)]
    for table in ("data", "seed"):
        changed += [table] * (getattr(config, table) != getattr(first, table))
    batch = first.train.batch_tokens
    changed += ["train.batch_tokens"] * (config.train.batch_tokens != batch)
    if changed and name in plan.runs:
        plan.notes[f"{name} differs"] = f"it was trained with another {', '.join(changed)}"
        plan.configs[name] = config
        return
    if changed:
        plan.notes[f"changed in {name}"] = f"{', '.join(changed)}: as in {plan.names[0]}"
    training = config.train.model_copy(update={"batch_tokens": batch})
    update = {"task": task, "data": first.data, "seed": first.seed, "train": training}
    plan.configs[name] = config.model_copy(update=update)


def family_of(config: RunConfig) -> type:
    """Return the class of comparable tasks: all text-to-text tasks, else the task's own class."""
    task = task_of(config)
    return TextToText if issubclass(task, TextToText) else task


def with_data(config: RunConfig, data: Sequence[str]) -> RunConfig:
    """Return the config with other files for its task: source and target or labels, or text."""
    known = type(config.task).model_fields
    fields = [name for name in ("source", "target", "labels", "text") if name in known]
    if not fields or len(data) > len(fields):
        names = " and ".join(fields) or "no files that could be replaced"
        raise ConfigError(f"--data: the task {config.task.kind} has {names}; it got {len(data)}")
    tree = {key: value for key, value in config.task.tree().items() if key not in fields}
    task = type(config.task).parse(tree | dict(zip(fields, data, strict=False)))
    return config.model_copy(update={"task": task})


def contenders(plan: ComparisonPlan, budget: Budget, folder: Path, say: Say) -> list[Contender]:
    """Train each model that has no run, in a folder below ``folder``; resume unfinished runs.

    Raises ``ConfigError`` with the remedy if a budget is too small.
    """
    result = []
    for number, name in enumerate(plan.names, start=1):
        before = name in plan.runs
        place = plan.runs[name] if before else folder / name.replace("/", "-")
        if not before:
            say(f"{number} of {len(plan.names)}: {name}, {budget}")
            train(limited(name, plan.configs[name], budget, place, say), folder=place)
        run = load(place)
        run.task.config = plan.configs[name].task  # with the files of --data
        contender = Contender(name, run, before)
        if not before and not any(line["event"] == "valid" for line in contender.journal):
            raise ConfigError(
                f"{name} was not validated within {budget}: remove {place} and give a larger budget"
            )
        result.append(contender)
    return result


def limited(name: str, config: RunConfig, budget: Budget, place: Path, say: Say) -> RunConfig:
    """Return the config with the budget as its limit, and a schedule that ends with it.

    How many steps fit into the minutes is measured, and stored beside the run for a later call.
    """
    stored = place.with_name(f"{place.name}.steps.json")
    budgeted = [budget.minutes, budget.steps, budget.tokens]
    steps = budget.steps
    if steps is None and stored.is_file():
        before = json.loads(stored.read_text(encoding="utf-8"))
        steps = before["steps"] if before["budget"] == budgeted else None
    if steps is None:
        with tempfile.TemporaryDirectory(prefix="foveate-compare-") as prepared:
            task = config.task.build(config.data)
            task.prepare(Path(prepared), config.seed)
            steps = fitting(name, Workload(name, name, config, task), budget)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(stored, json.dumps({"budget": budgeted, "steps": steps}))
        say(f"{name}: about {steps:,} steps in {budget}")
    if steps < FEWEST:
        raise ConfigError(
            f"{budget} are {steps} steps of {name}, and training needs at least {FEWEST} before "
            "its validation: give a larger budget (--steps, --tokens, --minutes)"
        )
    every = max(1, steps // VALIDATIONS)
    schedule, warmup = config.train.schedule, config.train.schedule.tree().get("warmup_steps", 0)
    fall: dict[str, int | None] = {"warmup_steps": min(warmup, steps // 5)} if warmup else {}
    fall |= {"total_steps": None} if "total_steps" in type(schedule).model_fields else {}
    limits = {
        "schedule": schedule.model_copy(update=fall),
        "max_steps": steps,
        "max_minutes": budget.minutes,
        "max_tokens": budget.tokens,
        "max_epochs": None,
        "average": None,
        "log_every": max(1, min(config.train.log_every, steps // 50)),
        "validation": ValidationConfig(every=every, samples=config.train.validation.samples),
        "save": config.train.save.model_copy(update={"every": every, "keep": 1}),
    }
    return config.model_copy(update={"train": config.train.model_copy(update=limits)})


def fitting(name: str, work: Workload, budget: Budget) -> int:
    """Return how many steps a budget of minutes or tokens buys, measured or counted in the data."""
    train_config = work.config.train
    if budget.tokens is not None:
        if not isinstance(work.task, Generates):
            raise ConfigError(f"--tokens: {name} produces no tokens; give --steps or --minutes")
        counts = work.task.target_counts("train")
        steps_of = batches_of_steps(work.plan(), train_config.accumulate, (0, 0), None)
        seen = accumulate(sum(int(counts[b.indices].sum()) for b in step) for step in steps_of)
        steps = next(step for step, tokens in enumerate(seen, 1) if tokens >= budget.tokens)
        return math.ceil(1.02 * steps)  # tokens end it, also with random segmentation
    assert budget.minutes is not None
    steady = train_config.model_copy(update={"schedule": Constant.Config()})
    work = replace(work, config=work.config.model_copy(update={"train": steady}))
    model, precision = work.model(), resolve(train_config.precision, device())
    lines = measured_steps(work, model, precision, minutes=PILOT * budget.minutes)
    if len(lines) < WARM + LEAST:
        lines = measured_steps(work, model, precision, steps=WARM + LEAST)
    speed = rates(lines)
    return int(60 * budget.minutes * speed["steps"] / max(speed["seconds"], 1e-9))
