"""The [train] table of a config, and the precision of a training."""

import contextlib
import itertools
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from foveate.config import Config, ConfigError, Tree
from foveate.files import replace_file
from foveate.nn.adapters import LoRA
from foveate.system import processor_flags
from foveate.train.journal import Journal, SnapshotConfig
from foveate.train.optim import AdamWConfig, InverseSqrt, MovingMean, OptimizerConfig, Schedule

Name = Literal["auto", "fp32", "bf16"]
WORTH = 1.2  # bf16 must be so many times as fast: it costs casts, and digits


@dataclass(frozen=True)
class Precision:
    """The numbers of matrix products on a device, and in one line why it is these."""

    name: Literal["fp32", "bf16"]
    device: str
    why: str

    def context(self) -> contextlib.AbstractContextManager[object]:
        """Within it PyTorch runs matrix products in this precision."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=torch.bfloat16)


def resolve(name: Name, device: torch.device | str = "cpu") -> Precision:
    """``auto`` is bf16 where the device multiplies it faster than fp32, and fp32 elsewhere."""
    kind = torch.device(device).type
    if name != "auto":
        return Precision(name, kind, f"precision {name}, as the config says")
    feature = {"cpu": _cpu, "cuda": _cuda}.get(kind, lambda: None)()
    if not feature:
        return Precision("fp32", kind, f"precision fp32 (auto): this {kind} lacks bf16 products")
    gain = _gain(kind)
    chosen: Literal["fp32", "bf16"] = "bf16" if gain > WORTH else "fp32"
    why = f"{feature}, whose matrix products ran {gain:.1f} times as fast as fp32 here"
    return Precision(chosen, kind, f"precision {chosen} (auto): {why}")


@contextlib.contextmanager
def single_thread() -> Iterator[Callable[[], float]]:
    """Compute in this thread alone; gives a clock that other programs do not move."""
    threads, fine = torch.get_num_threads(), time.get_clock_info("thread_time").resolution < 1e-4
    torch.set_num_threads(1)
    try:
        yield time.thread_time if fine else time.perf_counter
    finally:
        torch.set_num_threads(threads)


def _gain(device: str) -> float:
    """Time of an fp32 product over that of the same in bf16, the quickest of some of each.

    Some processors have bf16 instructions that are slower than their fp32 ones. On a processor it
    is the processor time of one thread, which other programs do not change.
    """
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    with single_thread() as processor_time:
        clock = processor_time if device == "cpu" else time.perf_counter
        for _ in range(8):  # in turn, so that what else the machine does meets both
            for dtype in best:
                a = torch.ones(1024, 512, dtype=dtype, device=device)
                started = clock()
                float((a @ a.T)[0, 0])
                best[dtype] = min(best[dtype], clock() - started)
    return best[torch.float32] / best[torch.bfloat16]


def _cpu() -> str | None:
    """The instructions for bf16 products of this processor that PyTorch will use."""
    if "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return None  # not there, or turned off by ATEN_CPU_CAPABILITY
    flag = "avx512_bf16" if torch.cpu._is_avx512_bf16_supported() else ""  # Linux may list nothing
    flags = (processor_flags() or flag).split()
    names = [name for name in ("amx_bf16", "avx512_bf16") if name in flags]
    return f"this CPU has {' and '.join(names)}" if names else None


def _cuda() -> str | None:
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    return f"{torch.cuda.get_device_name()} has bf16"


class SaveConfig(Config):
    """When checkpoints are written, how many of the last are kept, and which figure is the best.

    The checkpoint with the best ``best`` on the validation data is kept as well.
    """

    every: int | None = Field(default=1000, gt=0)  # steps from one checkpoint to the next
    keep: int = Field(default=3, gt=0)  # how many of the last checkpoints are kept
    best: str = "loss"  # the figure by which the best checkpoint is chosen (foveate kinds metrics)


class ValidationConfig(Config):
    """When the model is measured, by greedy search whatever [decode] says, and when to give up."""

    every: int | None = Field(default=1000, gt=0)  # steps from one validation to the next
    samples: int = Field(default=3, ge=0)  # outputs, by greedy search, that each validation shows
    patience: int | None = Field(default=None, gt=0)
    """Validations in a row without a new best that end training."""


class TrainConfig(Config):
    """Settings of training. It ends at the first of the limits that are set.

    The schedule follows the larger of the shares of steps and of time. ``parallel`` is how several
    devices work together where ``torchrun`` starts as many ranks: each holds the whole model
    ("ddp") or a part of it ("fsdp"); "auto" is the first where it fits. A step then takes
    ``accumulate`` × ranks batches, and a run keeps that number on however many ranks it resumes.
    """

    batch_tokens: int = Field(default=4096, gt=0)
    """Tokens of a batch on each device, padding included."""
    max_steps: int | None = Field(default=None, gt=0)  # steps at which training ends
    max_epochs: int | None = Field(default=None, gt=0)
    """Passes over the data at which training ends."""
    max_minutes: float | None = Field(default=None, gt=0)
    """Minutes of wall clock at which training ends, earlier sessions included."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Target tokens, padding left out, at which training ends."""
    optimizer: OptimizerConfig = AdamWConfig()
    """How gradients change the weights, and the learning rate."""
    schedule: Schedule.Config = InverseSqrt.Config()  # how the learning rate rises and falls
    clip_norm: float | None = Field(default=1.0, gt=0)
    """Largest norm of the gradient; a larger one is scaled down."""
    accumulate: int = Field(default=1, gt=0)  # batches of each device that make one step
    recompute: bool = False
    """Compute activations again in the backward pass: less memory, more work."""
    compile: bool = False  # compile the layers of a Transformer for the GPU
    save: SaveConfig = SaveConfig()  # when checkpoints are written, and which one is the best
    validation: ValidationConfig = ValidationConfig()
    """When the model is measured, and when to give up."""
    precision: Name = "auto"  # of the computation: fp32, bf16, or what suits the device
    log_every: int = Field(default=50, gt=0)  # steps from one line of the log to the next
    health_every: int | None = Field(default=None, gt=0)
    """Steps from one record of gradient and update norms to the next."""
    snapshots: SnapshotConfig | None = None
    """Attention to one example at steps of the training."""
    tensorboard: bool = False  # whether figures are also written for TensorBoard
    threads: int | None = Field(default=None, gt=0)
    """Processor threads; as PyTorch chooses where absent."""
    average: int | None = Field(default=None, gt=1)
    """Last checkpoints whose mean is tried at the end."""
    ema: MovingMean.Config | None = None
    """A moving mean of the weights that is validated, saved and used."""
    freeze: tuple[str, ...] = ()  # patterns of weights that keep their values
    adapter: LoRA.Config | None = None
    """Thin matrices that are trained instead of the weights of ``start``."""
    parallel: Literal["auto", "none", "ddp", "fsdp"] = "auto"
    """How several devices work together under torchrun."""
    hang_minutes: float = Field(default=10.0, gt=0)
    """Minutes of one step after which a rank is ended."""

    def check(self) -> None:
        """Raise `ConfigError` where nothing ends the training, or its schedule does not fit it."""
        limits = (self.max_steps, self.max_epochs, self.max_minutes, self.max_tokens)
        patience = self.validation.patience if self.validation.every else None
        if all(limit is None for limit in (*limits, patience)):
            raise ConfigError(
                "training would never end: set max_steps, max_epochs, max_minutes, max_tokens or "
                "validation.patience",
                ("train", "max_steps"),
            )
        self.build_schedule()

    def build_schedule(self) -> Schedule:
        """The schedule of the learning rate, which follows ``max_steps`` and ``max_minutes``."""
        return self.schedule.build(self.optimizer.lr, self.max_steps, self.max_minutes is not None)


CONFIG = "config.toml"  # its name in a run
_KEYS = tomllib.loads(Path(__file__).with_name("changes.toml").read_text(encoding="utf-8"))
CHANGEABLE: Mapping[str, str] = _KEYS["changeable"]
FIXED: Mapping[str, str] = _KEYS["fixed"]
IMPORTED = ("model.", "task.kind", "task.tokenizer", "task.joint")  # what weights depend on


@dataclass(frozen=True)
class ConfigChange:
    """A key of the config with its old and new value, and what the new one changes."""

    key: str
    old: object
    new: object
    effect: str

    def __str__(self) -> str:
        return f"{self.key} {self.old} → {self.new} ({self.effect})"


def effect_of(key: str) -> tuple[bool, str]:
    """Return whether a key may change when a run resumes, and what it changes or why not."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in FIXED:
            return False, FIXED[name]
        if name in CHANGEABLE:
            return True, CHANGEABLE[name]
    return False, "the run depends on it"


def changes(path: Path, old: Tree, new: Tree, imported: bool = False) -> list[ConfigChange]:
    """Return the differences between the config of the run ``path`` and that of its next session.

    Raises ``ConfigError`` naming the first key that may not change; of a run that was ``imported``
    and never trained those are its model and its tokenizer.
    """
    before, after = _flat(old), _flat(new)
    differences = []
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key, "none"), after.get(key, "none")
        if was == now:
            continue
        allowed, effect = effect_of(key)
        if not allowed and (not imported or key.startswith(IMPORTED)):
            raise ConfigError(
                f"{path} holds a run with another config: {key} is {was} there and {now} now, and "
                f"cannot change when a run resumes, for {effect}; "
                f"set {_absent(key, before)}={was}, or start a new run in another folder with --run"
            )
        if key == "train.max_steps" and _moves_schedule(old["train"], new["train"]):
            effect = f"moves the {after['train.schedule.kind']} schedule"
        differences.append(ConfigChange(key, was, now, effect))
    return differences


def _absent(key: str, before: Tree) -> str:
    """The table above the key that the run does not have at all; else the key."""
    tables = itertools.accumulate(key.split("."), "{}.{}".format)
    return next((t for t in tables if not any(f"{k}.".startswith(f"{t}.") for k in before)), key)


def _moves_schedule(before: Tree, after: Tree) -> bool:
    """Return whether the learning rates of the new config depend on its ``max_steps``."""
    old, new = TrainConfig.parse(before), TrainConfig.parse(after)
    ends = old.max_steps, new.max_steps
    if None in ends:
        return False
    lr, step = new.optimizer.lr, min(end for end in ends if end)
    try:
        rates = {new.schedule.build(lr, end).rate(step) for end in ends}
    except ConfigError:  # the old end lies within the warm-up of the new schedule
        return True
    return len(rates) > 1


def record(
    folder: Path, toml: str, changed: Sequence[ConfigChange], journal: Journal, step: int
) -> None:
    """Keep the config of before as ``config.N.toml``, log the changes, and replace it.

    The config itself comes last: killed before, the next continuation records the changes.
    """
    before = (folder / CONFIG).read_text(encoding="utf-8")
    number = 1
    while (earlier := folder / f"config.{number}.toml").exists():
        number += 1
    replace_file(earlier, before)
    values = {change.key: {"old": change.old, "new": change.new} for change in changed}
    journal.write("config", step, before=earlier.name, changes=values)
    replace_file(folder / CONFIG, toml)


def _flat(tree: Tree, above: str = "") -> Tree:
    """The values of a tree by their dotted keys."""
    flat: Tree = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
