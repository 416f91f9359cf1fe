"""A run directory as an object: load it, translate, score, evaluate, explain.

A run holds ``config.toml`` (resolved: every field), the tokenizers, ``log.jsonl``, checkpoints and
``best.json``; nothing else is needed to use it or to go on training. ``config.1.toml``, … are the
configs before the values changed (`foveate.train.config`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import pydantic
import torch

from foveate.config import Config, ConfigError, check_run, read_resolved, shipped
from foveate.data.text import TextData, TextFormat
from foveate.decode.beam import Beam, another, with_beam
from foveate.decode.choosing import continuing
from foveate.decode.engine import SearchRequest
from foveate.decode.outputs import Stop
from foveate.decode.search import Search
from foveate.engine.answers import (
    CaptionAnswer,
    Continuation,
    LabelAnswer,
    ModelEngine,
    PairScore,
    Picture,
    Term,
    TextAnswer,
    several,
)
from foveate.engine.calibration import Calibration
from foveate.engine.links import Head, Links
from foveate.engine.packed import header_of, packed_file
from foveate.inspect.hooks import ForcedPass
from foveate.inspect.records import AttentionRecord, Units
from foveate.kinds import load_kinds
from foveate.models.encoder_decoder import Model
from foveate.native.kernels import sleep_at_barriers
from foveate.run.answering import answer, generate
from foveate.run.engine import RunEngine
from foveate.run.evaluation import EvaluateOptions, Evaluation, evaluate_run
from foveate.run.passes import forced
from foveate.run.start import Start
from foveate.tasks.abilities import Aligns, Scores, vocabulary_of
from foveate.tasks.base import AnyTask, Gives, Reads, Task
from foveate.tasks.engine import together
from foveate.tasks.language import Language
from foveate.tasks.objectives import CrossEntropy, Objective
from foveate.tasks.text import TextTask
from foveate.tasks.text_to_text import CorpusFiles, TextToText
from foveate.train import checkpoint
from foveate.train.checkpoint import rebuilt
from foveate.train.config import TrainConfig

load_kinds()

T = TypeVar("T")
BATCH_TOKENS = 8192


class RunConfig(Config):
    """A whole experiment; the tables of a config file are its fields."""

    seed: int = pydantic.Field(1, ge=0)  # of all random numbers of the training
    imports: tuple[str, ...] = ()  # modules of yours that register kinds
    task: Task.Config  # which problem, and where its data lies
    data: TextData = TextData()  # how text is read and divided
    model: Model.Config  # the network
    start: Start | None = None  # weights of another run to begin with
    objective: Objective.Config = CrossEntropy.Config()
    """What training minimises; by default what the task learns by."""
    train: TrainConfig = TrainConfig()  # how long, how fast and how often measured
    decode: Search.Config = Beam.Config()  # how outputs are searched for

    @pydantic.model_validator(mode="before")
    @classmethod
    def _objective_of_the_task(cls, fields: dict[str, Any]) -> dict[str, Any]:
        task = fields.get("task")
        if "objective" in fields or not isinstance(task, Task.Config):
            return fields
        return fields | {"objective": Objective.Config.parse(task.default_objective)}


class Run:
    """A trained model with everything that it needs to answer."""

    def __init__(
        self,
        path: Path,
        config: RunConfig,
        task: AnyTask,
        model: Any,
        step: str,
        engine: ModelEngine | None = None,
    ) -> None:
        """``engine`` is what searches, scores and links; PyTorch where it is None."""
        self.path, self.config, self.task, self.model = path, config, task, model
        self.checkpoint, self._engine = step, engine  # the checkpoint relative to the run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.checkpoint})"

    @property
    def engine(self) -> ModelEngine:
        """What searches, scores and links for the run."""
        return self._engine or RunEngine(self.task, self.model)

    @property
    def format(self) -> TextFormat.Config | None:
        """The layout of raw lines of its data, which it reads too."""
        return self.config.data.format

    def by(self, engine: ModelEngine | None) -> Run:
        """The same run by another engine."""
        return Run(self.path, self.config, self.task, self.model, self.checkpoint, engine)

    def translate(
        self,
        lines: Sequence[str],
        beam_size: int | None = None,
        num_hypotheses: int = 1,
        length_penalty: float | None = None,
        batch_tokens: int | None = None,
        to: str | None = None,
        prefix: str | Sequence[str] | None = None,
        required: Sequence[Sequence[Term]] = (),
        banned: Sequence[str] = (),
        stop: Stop | None = None,
    ) -> list[TextAnswer]:
        """Translate each line; as many answers as lines, in their order; empty lines stay empty.

        ``beam_size`` 1 is greedy; ``batch_tokens`` bounds source tokens × beams of a batch, padding
        included. Lines longer than ``data.max_length`` tokens are cut, and say so in ``cut``.
        ``to`` names the language, where the run knows several. ``prefix`` is how the outputs begin:
        one text for all, or one for each line ("" for none); scores count it like the rest.
        ``required`` are the terms that the output of each line must hold, each a list of variants,
        and ``banned`` phrases that no output may hold. Raises `SearchStopped` once ``stop()``,
        which is asked every few positions, is true.
        """
        task = self.need(TextToText, "translate")
        request = SearchRequest(
            self.search(beam_size, length_penalty, num_hypotheses),
            () if prefix is None else task.beginnings(prefix, len(lines)),
            required,
            banned,
            batch_tokens or BATCH_TOKENS,
            num=num_hypotheses,
            stop=stop,
        )
        sources = task.addressed(several(lines, "translate"), to)
        answers: list[TextAnswer] = list(answer(self.task, self.engine, sources, request))
        return [answer.to(line) for answer, line in zip(answers, lines, strict=True)]

    def classify(
        self, inputs: Sequence[Picture], batch_tokens: int | None = None
    ) -> list[LabelAnswer]:
        """The label of each input with p of every label; an empty line has none.

        Inputs are lines of text, or pictures: files, or numbers of the test data, of which
        ``batch_tokens`` are judged together.
        """
        reads = self.task.reads
        self._only(reads, "label", "classify" + " pictures" * (reads == "picture"))
        return self.answer(inputs, batch_tokens)

    def caption(
        self, pictures: Sequence[Picture], beam_size: int | None = None
    ) -> list[CaptionAnswer]:
        """A caption for each picture: a file, or the number of one of the test data."""
        self._only("picture", "text", "caption")
        return self.answer(pictures, beam_size=beam_size)

    def forecast(self, source: str | Path | None = None) -> Any:
        """The rows after the end of a CSV, or of the run's own series."""
        self._only("series", "forecast", "forecast")
        return self.answer([source])[0]

    def generate(
        self,
        prompts: Sequence[str] = ("",),
        max_length: int = 200,
        num: int = 1,
        whole_lines: bool = False,
        beam_size: int | None = None,
        listen: Callable[[str], None] | None = None,
        **choices: object,
    ) -> list[Continuation]:
        """``num`` continuations of each prompt, of at most ``max_length`` tokens.

        ``choices`` are fields of the search "sample": temperature, top_k, top_p, min_p,
        repetition_penalty, seed; the run's own where it has them. With ``beam_size`` the most
        probable text is looked for instead (1 is greedy). The run's rules hold for both.
        ``whole_lines`` ends a text with its line; ``listen`` is called with the text so far.
        """
        task, prompts = self.need(Language, "generate"), several(prompts, "generate")
        tree = continuing(self.config.decode.tree(), max_length, beam_size, choices)
        config = Search.Config.parse(tree, ("decode",))
        return generate(task, self.engine, prompts, config, num, whole_lines, listen)

    def answer(
        self, inputs: Sequence[Any], batch_tokens: int | None = None, beam_size: int | None = None
    ) -> list[Any]:
        """An answer for each input, whatever the task reads (`foveate.run.answering.answer`)."""
        request = SearchRequest(self.search(beam_size), batch_tokens=batch_tokens or BATCH_TOKENS)
        return list(answer(self.task, self.engine, several(inputs, "answer"), request))

    def need(self, ability: type[T], verb: str) -> T:
        """The run's task as one that has an ability (`foveate.tasks.base`), or of a kind.

        Raises ``ConfigError`` that names the run, its task and the verb.
        """
        if isinstance(self.task, ability):
            return self.task
        raise self._cannot(verb)

    def _only(self, reads: Reads, gives: Gives, verb: str) -> None:
        """Raise ``ConfigError`` where the task reads or gives something else."""
        if (self.task.reads, self.task.gives) != (reads, gives):
            raise self._cannot(verb)

    def _cannot(self, verb: str) -> ConfigError:
        kind = self.config.task.kind
        return ConfigError(f"{self.path} is a run of the task {kind}: it cannot {verb}")

    def search(
        self,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        num_hypotheses: int = 1,
    ) -> Search:
        """The run's own search, or a beam of the given choices, wide enough for the hypotheses."""
        config = with_beam(self.config.decode, beam_size, length_penalty)
        search: Search = config.giving(num_hypotheses).build()
        return search

    def decoding(self, kind: str | None = None, **fields: object) -> Run:
        """The same run with another search: other ``fields`` of its own, or another ``kind``.

        ``foveate kinds search`` lists them. Limits, rules and what else both kinds know are kept.
        """
        other, search = self.by(self._engine), another(self.config.decode, kind, fields)
        other.config = self.config.model_copy(update={"decode": search})
        return other

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """Log p(target | source) of given pairs, and of each target token, the end included."""
        task = self.need(Scores, "score")
        if isinstance(task, TextToText):
            lines = task.addressed([source for source, _ in pairs])
            pairs = [(line, target) for line, (_, target) in zip(lines, pairs, strict=True)]
        sources, targets = task.encode_pairs(pairs)
        scores = self.engine.score(list(zip(sources, targets, strict=True)))
        return [
            PairScore.of(ids, log_p, task.tokenizers_of(source)[1])
            for (source, _), ids, log_p in zip(pairs, targets, scores, strict=True)
        ]

    def evaluate(
        self,
        *columns: str | Sequence[str],
        split: str = "test",
        files: Sequence[Path] = (),
        **options: Unpack[EvaluateOptions],
    ) -> Evaluation:
        """Return all figures of the task, on a split of the run's own data or on your examples.

        A translation takes ``evaluate(sources, references)``. ``files`` are of inputs and of
        references, or one of both; `foveate.run.evaluation.EvaluateOptions` are the options.
        """
        return evaluate_run(self, columns, split, files, **options)

    def pairs(self, split: str = "test") -> tuple[Sequence[str], Sequence[str]]:
        """Sources and references of a split of the run's own data."""
        corpus = self.need(TextTask, "give pairs of texts").corpus(split)
        return corpus.sources, corpus.targets

    def links(
        self, pairs: Sequence[tuple[str, str | list[int]]], head: Head | None = None
    ) -> list[Links]:
        """Word links of pairs by a head, else the run's own; a target is a text or ids."""
        self.need(Aligns, "align")
        return self.engine.links(pairs, head)

    @property
    def corpora(self) -> Sequence[CorpusFiles]:
        """The files of its corpora, by which their languages are known."""
        return corpora_of(self.config, self.path)

    @property
    def languages(self) -> Sequence[str]:
        """The languages that it translates into, where it knows several by their tags."""
        return [tag[2:-1] for tag in self.need(Scores, "translate").source_tokenizer.tags]

    @property
    def aligns(self) -> bool:
        """Whether its task links the words of pairs."""
        return isinstance(self.task, Aligns)

    @cached_property
    def calibration(self) -> Calibration | None:
        """How log-probability predicts quality, where its packed file says so; read once."""
        file, _ = packed_file(self.path)
        return None if file is None else header_of(file).calibration

    def addressed(self, lines: Sequence[str], to: str | None) -> list[str]:
        """Lines after the tag of a language."""
        return self.need(TextToText, "translate").addressed(lines, to)

    def token_counts(self, lines: Sequence[str], target: bool = False) -> list[int]:
        """How many tokens sources, or targets, have."""
        task = self.need(Scores, "translate")
        tokenizer = task.target_tokenizer if target else task.source_tokenizer
        return list(map(len, tokenizer.encode_ids(lines)))

    def width(self, count: int) -> int:
        """How many hypotheses of a source are decoded at a time, where ``count`` are asked for."""
        return self.search(None, None, count).width

    def explain(
        self, source: Picture | None, target: str | list[int] | None = None, units: Units = "auto"
    ) -> AttentionRecord:
        """What each layer and head attended to while the target (or the answer) was produced.

        What source and target are is up to the task: lines of text, a picture, a series. Rows and
        columns of a text are its "tokens" or its "words"; with "auto" tokens for character, byte
        and symbol tokenizers and for scripts without blanks between words, else words.
        """
        return self.forced(source, target, units).record()

    def forced(
        self, source: Picture | None, target: str | list[int] | None = None, units: Units = "auto"
    ) -> ForcedPass:
        """The example with its target, as a pass that can be run repeatedly."""
        ready = forced(self.task, self.model, source, target, self.search())
        return replace(ready, units=units)


def load(
    path: str | Path,
    which: str = "best",
    ensemble: Sequence[str | Path] = (),
    trust: bool = False,
) -> Run:
    """Read a run; ``which`` is "best", "last", "average" or the number of a step.

    Runs of the ``ensemble`` decode with it: the next token has the mean of their p. ``path`` and
    these may be folders of single checkpoints too, such as RUN/checkpoints/step-00001000.
    With ``trust`` the modules that their configs import are imported, and run code.
    Raises ``ConfigError`` that says what is missing, or how the vocabularies of runs differ.
    """
    runs = [_load(Path(each), which, trust) for each in (path, *ensemble)]
    if len(runs) > 1:
        names = [f"{run.path}/{run.checkpoint}" for run in runs]
        vocabularies = [vocabulary_of(run.task).pieces() for run in runs]
        runs[0].model = together(vocabularies, [run.model for run in runs], names)
        runs[0].checkpoint = " + ".join(names)
    return runs[0]


def _load(path: Path, which: str, trust: bool) -> Run:
    sleep_at_barriers()
    path, folder = checkpoint.place(shipped(path))
    config = read_run(path, trust)
    task = config.task.build(config.data)
    try:
        task.restore(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"the run {path} is not complete: it has no file {error.filename}; train it "
            "(foveate train), or copy all of its folder"
        ) from error
    read = partial(rebuilt, config.model, task.build, path)
    folder, model = (folder, read(folder)) if folder else checkpoint.read_chosen(path, which, read)
    model.to(device()).eval()
    return Run(path, config, task, model, folder.relative_to(path).as_posix())


def read_run(path: Path, trust: bool = False) -> RunConfig:
    """The resolved config of a run; `read_resolved` says what ``trust`` is."""
    check_run(path)
    return read_resolved(RunConfig, path / "config.toml", trust)


def corpora_of(config: RunConfig, path: Path) -> Sequence[CorpusFiles]:
    """The corpora of a run. Raises ``ConfigError`` where it does not translate."""
    if not isinstance(config.task, TextToText.Config):
        raise ConfigError(f"{path} is a run of the task {config.task.kind}: it cannot translate")
    return config.task.parts()


def task_of(config: RunConfig) -> type[AnyTask]:
    """The class of the task of a config, whose abilities are known without loading the run."""
    task = config.task.owner
    assert task is not None and issubclass(task, Task)
    return task


def device() -> str:
    """The GPU where PyTorch sees one, else the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"
