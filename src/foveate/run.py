"""A run directory as an object: train it, load it, translate, score, evaluate, explain.

A run holds ``config.toml`` (resolved: every field), the tokenizers, ``log.jsonl``, checkpoints and
``best.json``; nothing else is needed to use it or to go on training.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from foveate.answers import Evaluation, PairScore, Translation
from foveate.config import Config, ConfigError, read
from foveate.data.plan import Plan
from foveate.data.text import TextData
from foveate.decode.beam import Beam
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Search
from foveate.kinds import load_kinds
from foveate.look.record import AttentionRecord
from foveate.models.encoder_decoder import Model
from foveate.tasks.base import Task
from foveate.tasks.metrics import translation_figures
from foveate.tasks.objective import Objective
from foveate.train import checkpoint, files
from foveate.train.average import average as average_weights
from foveate.train.config import TrainConfig
from foveate.train.fit import fit
from foveate.train.trainer import Job

load_kinds()
Ids = list[int]


class RunConfig(Config):
    """A whole experiment; the tables of a config file are its fields."""

    seed: int = 1
    imports: tuple[str, ...] = ()  # modules of yours that register kinds
    task: Task.Config
    data: TextData = TextData()
    model: Model.Config
    objective: Objective.Config = Objective.Config()
    train: TrainConfig = TrainConfig()
    decode: Search.Config = Beam.Config()


class Run:
    """A trained model with everything that it needs to answer."""

    def __init__(self, path: Path, config: RunConfig, task: Any, model: Any, step: str) -> None:
        self.path, self.config, self.task, self.model = path, config, task, model
        self.checkpoint = step  # the folder of the weights, relative to the run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.checkpoint})"

    def translate(
        self,
        lines: Sequence[str],
        beam_size: int | None = None,
        num_hypotheses: int = 1,
        length_penalty: float | None = None,
        batch_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate each line; as many answers as lines, in their order; empty lines stay empty.

        ``beam_size`` 1 is greedy; ``batch_tokens`` bounds source tokens × beams of a batch, padding
        included. Lines longer than ``data.max_length`` tokens are cut, and say so in ``cut``.
        """
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; write translate([text])")
        search = self.search(beam_size, length_penalty, num_hypotheses)
        tokenizer, limit = self.task.source_tokenizer, self.config.data.max_length
        ids = [
            i if line.strip() else []
            for i, line in zip(tokenizer.encode_ids(lines), lines, strict=True)
        ]
        width = getattr(search.config, "beam_size", 1)
        budget = max(1, (batch_tokens or 8192) // width)
        found = self.task.search(self.model, [i[:limit] for i in ids], search, budget, progress)
        decode = self.task.target_tokenizer.decode
        return [
            Translation(
                line,
                [decode(h.ids) for h in hypotheses[:num_hypotheses]] or [""],
                [h.score for h in hypotheses[:num_hypotheses]] or [0.0],
                max(0, len(tokens) - limit),
                list(hypotheses[:num_hypotheses]),
                self,
            )
            for line, tokens, hypotheses in zip(lines, ids, found, strict=True)
        ]

    def search(
        self, beam_size: int | None, length_penalty: float | None, num_hypotheses: int = 1
    ) -> Search:
        """The run's own search, with the given choices instead of its own."""
        config = self.config.decode
        own = config if isinstance(config, Beam.Config) else Beam.Config(beam_size=1)
        changes: dict[str, Any] = {"beam_size": max(beam_size or own.beam_size, num_hypotheses)}
        if length_penalty is not None:
            changes["length_penalty"] = length_penalty
        search: Search = own.model_copy(update=changes).build()
        return search

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """Log p(target | source) of given pairs, and of each target token, the end included."""
        sources = self.task.source_tokenizer.encode_ids([s for s, _ in pairs])
        targets = self.task.target_tokenizer.encode_ids([t for _, t in pairs])
        pieces = self.task.target_tokenizer
        return [
            PairScore(sum(log_p), [*(pieces.decode([i]) for i in ids), "</s>"], log_p)
            for ids, log_p in zip(
                targets,
                self.task.force(self.model, list(zip(sources, targets, strict=True))),
                strict=True,
            )
        ]

    def evaluate(
        self, sources: Sequence[str], references: Sequence[str], **search: Any
    ) -> Evaluation:
        """BLEU, chrF and TER (sacreBLEU, detokenised and cased) of the run's translations."""
        translations = self.translate(sources, **search)
        figures, signatures = translation_figures(
            [t.hypotheses[0] for t in translations], references, ("bleu", "chrf", "ter")
        )
        exact = sum(t.hypotheses[0] == r for t, r in zip(translations, references, strict=True))
        figures["exact_match"] = 100 * exact / max(1, len(translations))
        return Evaluation(figures, signatures, translations)

    def pairs(self, split: str = "test") -> tuple[list[str], list[str]]:
        """Sources and references of a split of the run's own data."""
        corpus = self.task.corpus(split)
        return corpus.sources, corpus.targets

    def explain(self, source: str, target: str | Ids | None = None) -> AttentionRecord:
        """What each layer and head attended to while the target (or the answer) was produced."""
        if target is None:
            found = self.translate([source])[0].found
            target = found[0].ids if found else []
        record: AttentionRecord = self.task.explain(self.model, source, target)
        return record


def load(path: str | Path, which: str = "best") -> Run:
    """Read a run; ``which`` is "best", "last", "average" or the number of a step.

    Raises ``ConfigError`` that says what is missing where the folder is no run.
    """
    path = Path(path)
    config = read_run(path)
    folder = _weights_folder(path, which)
    task = config.task.build(config.data)
    task.restore(path)
    model = task.build(config.model)
    checkpoint.load_weights(model, folder / checkpoint.WEIGHTS)
    model.to(_device()).eval()
    return Run(path, config, task, model, folder.relative_to(path).as_posix())


def read_run(path: Path) -> RunConfig:
    """The resolved config of a run."""
    if not (path / "config.toml").is_file():
        raise ConfigError(f"{path} is no run: it has no config.toml; train one: foveate train")
    return read(RunConfig, path / "config.toml")


def _weights_folder(path: Path, which: str) -> Path:
    if which == "best":
        folder = checkpoint.chosen(path)
    elif which == "average":
        folder = path / "averaged"
    else:
        steps = checkpoint.steps(path)
        if which != "last" and not which.isdecimal():
            raise ConfigError(f"checkpoint {which!r}: write best, last, average or a step's number")
        step = int(which) if which.isdecimal() else next(iter(reversed(steps)), 0)
        folder = checkpoint.path_of(path, step)
    if folder is None or not (folder / checkpoint.WEIGHTS).is_file():
        have = ", ".join(map(str, checkpoint.steps(path))) or "none"
        raise ConfigError(f"{path} has no checkpoint {which!r}; steps there: {have}")
    return folder


def train(
    config: str | Path | RunConfig, overrides: Sequence[str] = (), folder: str | Path | None = None
) -> Run:
    """Train a config to its end, or go on where it stopped; the folder is ``runs/NAME`` by default.

    Raises ``ConfigError`` where the folder holds a run of another config.
    """
    if isinstance(config, RunConfig):
        if folder is None:
            raise ConfigError("train needs a folder for a config that comes from no file")
        resolved, path = config, Path(folder)
    else:
        resolved = read(RunConfig, config, overrides)
        path = Path(folder) if folder is not None else Path("runs") / Path(config).stem
    task = _prepared(resolved, path)
    torch.manual_seed(resolved.seed)
    job = Job(
        task=task,
        model=task.build(resolved.model).to(_device()),
        objective=resolved.objective.build(),
        search=Greedy.Config().build(),
        seed=resolved.seed,
        toml=resolved.toml(),
        plan=Plan,
    )
    outcome = fit(job, resolved.train, path)
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)
    return load(path)


def _device() -> str:
    """The GPU where PyTorch sees one, else the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _prepared(config: RunConfig, path: Path) -> Any:
    """The task with its tokenizers: of the run if it exists, else new ones in a new run."""
    task = config.task.build(config.data)
    if (path / "config.toml").is_file():
        old, new = read_run(path).differences(), config.differences()
        changed = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        fixed = [key for key in changed if not key.startswith(("train.", "decode."))]
        if fixed:
            raise ConfigError(
                f"{path} holds a run of another config ({', '.join(fixed[:5])} differ); "
                "choose another folder with --run, or remove that one"
            )
        task.restore(path)
        return task
    parts = path.with_name(f".{path.name}.new")
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    task.prepare(parts, config.seed)
    (parts / "config.toml").write_text(config.toml(), encoding="utf-8")
    path.mkdir(parents=True, exist_ok=True)
    for file in sorted(parts.iterdir(), key=lambda file: file.name == "config.toml"):
        file.replace(path / file.name)  # the config comes last: with it the run exists
    parts.rmdir()
    for line in task.describe_data():
        print(line, file=sys.stderr)
    return task


def average(path: str | Path, last: int | None = None) -> str:
    """Average the weights of the last checkpoints into ``averaged/``; says what it did."""
    path = Path(path)
    steps = [step for step in checkpoint.steps(path) if step > 0][-(last or 0) :]
    if not steps:
        raise ConfigError(f"{path} has no checkpoints to average")
    tensors = average_weights([checkpoint.path_of(path, step) for step in steps])
    with files.sealed_folder(path / "averaged") as folder:
        checkpoint.write_tensors(tensors, folder / checkpoint.WEIGHTS)
    return f"averaged {len(steps)} checkpoints ({steps[0]} to {steps[-1]}) into {path / 'averaged'}"
