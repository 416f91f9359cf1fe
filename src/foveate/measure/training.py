"""Training speed on this machine, and the workloads that are measured."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from foveate.config import Tree, load_tree, parse_tree, with_overrides
from foveate.data import synthetic
from foveate.data.batches import BatchPlan, Indices, Mixture
from foveate.data.catalogue import DataError, find
from foveate.measure.machine import MIB, ceilings, counting, describe, shares
from foveate.nn.native.kernels import without_kernels
from foveate.run import RunConfig, device
from foveate.run.training import job_of
from foveate.tasks.base import AnyTask
from foveate.tasks.text import TextToText
from foveate.train.config import Precision, SaveConfig, ValidationConfig, resolve
from foveate.train.fit import fit
from foveate.train.journal import peak_memory, read
from foveate.train.optim import Constant

Say = Callable[[str], None]  # gets each stage as a sentence
SHAPES = {"small": "transformer-small", "base": "vaswani-base", "rnnsearch": "bahdanau-2015"}
SYNTHETIC = {"train": 20_000, "valid": 500, "test": 1000}  # pairs
VOCABULARY, BATCH_TOKENS = 8000, 4096


def mute(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Workload:
    """A config with its prepared task, and the names of its model and data."""

    name: str
    data: str
    config: RunConfig
    task: AnyTask

    def model(self) -> torch.nn.Module:
        """Return the model with initial weights, on the training device."""
        torch.manual_seed(self.config.seed)
        built: torch.nn.Module = self.task.build(self.config.model)
        return built.to(device())

    def summary(self) -> Tree:
        """Return name, data and sizes, which every figure includes."""
        summary: Tree = {"shape": self.name, "data": self.data}
        if isinstance(self.task, TextToText):
            summary["vocabulary"] = self.task.target_tokenizer.vocab_size
        return summary | {"batch_tokens": self.config.train.batch_tokens}

    def plan(self) -> BatchPlan | Mixture:
        """Return the plan that groups examples into batches in each epoch."""
        size, seed = self.config.train.batch_tokens, self.config.seed
        return self.task.plan(self.task.lengths("train"), size, seed)

    def batches(self) -> list[Indices]:
        """Return the examples of each batch of the first epoch."""
        return self.plan().epoch(0)

    def padding(self) -> float:
        """Return the share of padding in the batches of the first epoch, over all sides."""
        lengths = self.task.lengths("train")
        lengths = lengths.reshape(len(lengths), -1)
        places = sum(int(lengths[b].max(axis=0).sum()) * len(b) for b in self.batches() if len(b))
        return 1 - int(lengths.sum()) / max(places, 1)


@contextlib.contextmanager
def workload(shape: str, overrides: Sequence[str] = ()) -> Iterator[Workload]:
    """Yield the workload of a shape, a preset or a config file, with tokenizers trained for it.

    Raises ``ConfigError`` for an unknown name.
    """
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as place:
        folder, path = Path(place), Path(shape)
        if path.suffix == ".toml":
            tree, data = load_tree(path), f"that of {path.name}"
        else:
            tree, data = _tree(SHAPES.get(shape, shape), folder)
        tree = with_overrides(RunConfig, tree, overrides)
        config = parse_tree(RunConfig, tree, path if path.suffix == ".toml" else None)
        task = config.task.build(config.data)
        task.prepare(folder, config.seed)
        yield Workload(path.stem if path.suffix == ".toml" else shape, data, config, task)


def _tree(model: str, folder: Path) -> tuple[Tree, str]:
    """Return the config of a preset on the available data, and the name of these data."""
    task = {"kind": "translation", "tokenizer": {"kind": "bpe", "vocab_size": VOCABULARY}}
    try:
        find("multi30k/train.en"), find("multi30k/train.fr")
        places = {"source": "multi30k/{split}.en", "target": "multi30k/{split}.fr"}
        splits, data = {"valid": "val", "test": "test_2016_flickr"}, "Multi30k en-fr"
    except DataError:
        synthetic.write(folder, SYNTHETIC)
        places = {"source": f"{folder}/{{split}}.en", "target": f"{folder}/{{split}}.fr"}
        splits, data = {}, "synthetic en-fr (Multi30k is not there: set FOVEATE_DATA)"
    return {
        "task": task | places,
        "data": {"splits": splits},
        "model": model,
        "train": {"batch_tokens": BATCH_TOKENS, "max_steps": 1},
    }, data


# Training speed in target tokens per second, measured on the trainer itself.
#
# `foveate.train.fit.fit` runs three times in a temporary folder: a few steps to warm up; then for
# the requested time, read from the log of that run; then a few steps under the profiler. Products
# are counted in a few batches without native kernels, so that PyTorch dispatches every one.

COUNTED = 5  # steps for warm-up, and under the profiler
BATCHES = 3  # batches whose products are counted
WARM = 3  # initial steps left out of the measurement
LEAST = 2  # minimum number of measured steps
ENDLESS = 10**9  # steps of a run that ends by the clock; schedules may require a number
Steps = list[Tree]  # lines of the log, one per step


def measure(work: Workload, seconds: float, quick: bool = False, say: Say = mute) -> Tree:
    """Return speed, utilisation and memory of training for ``seconds``, or `LEAST` steps if longer.

    ``quick`` skips the shares of time; ``say`` gets each stage as a sentence.
    """
    say("the machine: its fastest matrix products")
    place = device()
    before = ceilings(1.0, place)
    precision = resolve(work.config.train.precision, place)
    model = work.model()
    say(f"{COUNTED} steps, to know how long one takes")
    # the clock of a run also counts what precedes its steps
    lines = train(work, model, precision, steps=COUNTED)
    prepared, pace = lines[0]["seconds"], lines[-1]["seconds"] / COUNTED
    say(f"training for {max(seconds, pace * LEAST):.0f} s; a step takes {pace:.2g} s or less")
    steps = train(work, model, precision, minutes=(seconds + prepared) / 60)
    if len(steps) < WARM + LEAST:
        steps = train(work, model, precision, steps=WARM + LEAST)
    peak_mib = peak_memory(place)
    parts: dict[str, float] = {}
    if not quick:
        say("the shares of time")
        with shares() as parts:
            train(work, model, precision, steps=COUNTED)
    say("the products of a few batches")
    flops = products(work, model)
    say("the memory of its parts")
    held = {name: round(size, 1) for name, size in held_by(work, model, precision).items()}
    rate = rates(steps)
    done = rate["target_tokens_per_second"] * flops / 1e9
    after = ceilings(1.0, place)
    limits = {name: max(before[name], after[name]) for name in before}
    return {
        "what": "training",
        **work.summary(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "precision": precision.name,
        "precision_why": precision.why,
        **rate,
        "padding_share": round(work.padding(), 4),
        "peak_memory_mib": peak_mib,
        "held_mib": held,
        "flops_per_target_token": round(flops),
        "product_gflops": round(done, 1),
        "utilisation": {name: round(done / limit, 3) for name, limit in limits.items()},
        "time_shares": parts,
        "ceilings_gflops": {"before": before, "after": after},
        "machine": describe(),
    }


def products(work: Workload, model: torch.nn.Module) -> float:
    """Return the FLOPs per target token of the first batches, forward and backward."""
    job, targets = job_of(work.config, work.task, model), 0
    with counting() as counted, without_kernels():
        for chosen in work.batches()[:BATCHES]:
            loss = job.objective.loss(job.task, model, work.task.batch("train", chosen.tolist()))
            loss.total.backward()
            targets += loss.count
    model.zero_grad()
    return counted.get_total_flops() / targets


def held_by(work: Workload, model: torch.nn.Module, precision: Precision) -> dict[str, float]:
    """Return the MiB of weights, gradients, optimiser state and kept activations.

    Those of the optimiser are measured by one step with zero gradients. The rest of the peak is the
    program, its data, temporary tensors, and memory that the allocator holds.
    """
    activations = saved(work, model, precision)
    optimizer = work.config.train.optimizer.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = [value for each in optimizer.state.values() for value in each.values()]
    weights = size_of(model.parameters())
    moments = size_of(value for value in state if isinstance(value, torch.Tensor))
    parts = {"weights": weights, "gradients": weights, "optimiser": moments}
    return parts | {"kept activations": activations}


def saved(work: Workload, model: torch.nn.Module, precision: Precision) -> float:
    """Return the MiB that autograd saves for the loss of the batch with the most positions."""
    sizes = dict[int, int]()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    lengths = work.task.lengths("train")
    largest = max(work.batches(), key=lambda b: len(b) * int(lengths[b].max(initial=0)))
    batch = work.task.batch("train", largest.tolist())
    model.train()
    with precision.context(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        loss = job_of(work.config, work.task, model).objective.loss(work.task, model, batch)
    del loss
    return sum(sizes.values()) / MIB


def size_of(tensors: Iterable[torch.Tensor]) -> float:
    """Return the size of tensors in MiB."""
    return sum(t.numel() * t.element_size() for t in tensors) / MIB


def train(
    work: Workload,
    model: torch.nn.Module,
    precision: Precision,
    steps: int | None = None,
    minutes: float | None = None,
) -> Steps:
    """Train as ``foveate train`` does, without validation; return the log line of each step."""
    limits = {
        "max_steps": steps or ENDLESS,
        "max_minutes": minutes,
        "max_epochs": None,
        "schedule": Constant.Config(),  # a schedule may need more steps than these
        "precision": precision.name,
        "log_every": 1,
        "average": None,
        "tensorboard": False,
        "save": SaveConfig(every=None, keep=1),
        "validation": ValidationConfig(every=None),
    }
    config = work.config.train.model_copy(update=limits)
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        fit(job_of(work.config, work.task, model), config, Path(folder))
        return [line for line in read(Path(folder)) if line["event"] == "train"]


def rates(steps: Steps) -> Tree:
    """Return target tokens per second by the wall clock after warm-up, and in the median step."""
    start, measured = steps[WARM - 1], steps[WARM:]
    spent = measured[-1]["seconds"] - start["seconds"]
    tokens = measured[-1]["target_tokens"] - start["target_tokens"]
    each = sorted(line["tokens_per_second"] for line in measured)
    return {
        "target_tokens_per_second": round(tokens / max(spent, 1e-9), 1),
        "target_tokens_per_second_median_step": each[len(each) // 2],
        "steps": len(measured),
        "seconds": round(spent, 2),
    }
