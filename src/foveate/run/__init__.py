"""A run directory as an object: load it, translate, score, evaluate, explain.

A run holds ``config.toml`` (resolved: every field), the tokenizers, ``log.jsonl``, checkpoints and
``best.json``; nothing else is needed to use it or to go on training. ``config.1.toml``, … are the
configs before the values changed (`foveate.train.config`).
"""

import copy
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import pydantic
import torch
from torch import nn

from foveate.config import Config, ConfigError, check_run, published, read_resolved, shipped
from foveate.data.text import TextData
from foveate.data.tokenizer import TextSides, Tokenizer
from foveate.decode.beam import Beam, another
from foveate.decode.engine import (
    EngineError,
    Example,
    Ids,
    Module,
    SearchRequest,
    chosen,
    continuing,
)
from foveate.decode.search import Search
from foveate.engine import answers
from foveate.engine.compiled import CompiledModel
from foveate.engine.links import Head, Links
from foveate.engine.packed import PackedEngine, TaskKind
from foveate.engine.program import compile_model
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.kinds import load_kinds
from foveate.look.hooks import ForcedPass
from foveate.look.records import AttentionRecord, Units
from foveate.models.encoder_decoder import Model
from foveate.nn.adapters import adapt, merged
from foveate.nn.attention import BaseAttention
from foveate.nn.native.kernels import WeightCache, as_written, library, sleep_at_barriers
from foveate.run.answering import answer
from foveate.run.evaluation import (
    Evaluation,
    against_other,
    as_examples,
    beside_baseline,
    evaluate,
    examples,
    read_examples,
)
from foveate.run.passes import forced, word_maps
from foveate.run.start import Start, begin
from foveate.tasks import metrics
from foveate.tasks.abilities import Aligns, vocabulary_of
from foveate.tasks.base import AnyTask, Task
from foveate.tasks.classification import TextClassification
from foveate.tasks.engine import TorchEngine, substitutes, together
from foveate.tasks.language import Language
from foveate.tasks.objectives import CrossEntropy, Objective
from foveate.tasks.prefix_translation import PrefixTranslation
from foveate.tasks.text import TextTask, TextToText
from foveate.tasks.translation import Translation
from foveate.train import checkpoint
from foveate.train.checkpoint import rebuilt
from foveate.train.config import TrainConfig
from foveate.train.stored import MANIFEST, WEIGHTS, Size, Within, read_manifest, sha256

BASE = "base.json"  # of a run with adapters: the digest of the weights that they belong to
T = TypeVar("T")


class RunConfig(Config):
    """A whole experiment; the tables of a config file are its fields."""

    seed: int = pydantic.Field(1, ge=0)  # of all random numbers of the training
    imports: tuple[str, ...] = ()  # modules of yours that register kinds, also by --import FILE
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
    def _of_the_task_and_start(cls, fields: dict[str, Any]) -> dict[str, Any]:
        task, start = fields.get("task"), fields.get("start")
        if isinstance(start, Start) and isinstance(task, Task.Config):
            sides = "joint" in type(task).model_fields and "joint" not in task.model_fields_set
            sides &= start.vocabulary != "replace"
            if sides or "model" not in fields:
                earlier = read_run(located(Path(start.run)))
                fields = {"model": earlier.model} | fields
                joint = getattr(earlier.task, "joint", None)
                if sides and joint is not None:
                    fields["task"] = task = task.model_copy(update={"joint": joint})
        if "objective" in fields or not isinstance(task, Task.Config):
            return fields
        return fields | {"objective": Objective.Config.parse(task.default_objective)}


# What a packed file calls a task; classes that derive from these may decode otherwise.
PACKED: dict[type, TaskKind] = {
    Translation: "translation",
    PrefixTranslation: "prefix_translation",
    Language: "language",
    TextClassification: "classification",
}


def packed_kind(task: AnyTask) -> TaskKind | None:
    """Return what a packed file calls a task, or None if the engine in C does not support it."""
    return PACKED.get(type(task))


def reach_of(task: AnyTask, model: Module) -> int | None:
    """Return how many tokens of a text the model may read at once, or None for any number."""
    return task.reach(model) if isinstance(task, Language) else None


def observed(module: nn.Module) -> bool:
    """Return whether a tap or a hook reads or changes what a module computes."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return bool(hooked) or (isinstance(module, BaseAttention) and module.observed)


_COMPILED = WeightCache[tuple[CompiledModel | None]]()


def compiled(model: nn.Module) -> CompiledModel | None:
    """A model for the engine in C, with its present weights; made again once these have changed.

    None where it is in training, has taps, hooks or other methods, weights that are not finite fp32
    in main memory or a part that the engine lacks, and without native kernels, which see changes.
    """
    modules = [model]  # and then all in it, ten times as fast as by ``modules()``
    for each in modules:
        modules += [part for part in each._modules.values() if part is not None]
    if library() is None or any(module.training or observed(module) for module in modules):
        return None
    return _COMPILED.get(model, modules, lambda: (_compiled(model, modules),))[0]


def _compiled(model: nn.Module, modules: Sequence[nn.Module]) -> CompiledModel | None:
    each = (weights for part in modules for weights in (part._parameters, part._buffers))
    tensors = (tensor for weights in each for tensor in weights.values() if tensor is not None)
    plain = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
    if not plain or not all(map(as_written, modules)):
        return None
    try:
        return compile_model(model)
    except UserError:  # the engine lacks a part, or a library for this processor
        return None


def packed_engine(task: AnyTask, kind: TaskKind, model: Module, own: CompiledModel) -> PackedEngine:
    """Return the engine in C for a task and a compiled model."""
    tokenizers = list(task.tokenizers_by_name().values())
    return PackedEngine(own, kind, tokenizers, torch.get_num_threads(), reach_of(task, model))


def in_c(engine: TorchEngine, request: SearchRequest) -> PackedEngine | None:
    """Return the engine in C with the present weights, or None if PyTorch answers a request."""
    task: AnyTask = engine.task
    kind = packed_kind(task)
    alone = request.search.width == 1 and any(request.required)  # no beam, to the engine in C
    if kind is None or alone or (model := compiled(engine.model)) is None:
        return None
    packed = packed_engine(task, kind, engine.model, model)
    try:
        packed.check(request)
    except EngineError:
        return None
    if kind == "translation" and request.shortens:
        packed.shortlist = engine.task.shortlist.arrays
    return packed


substitutes.append(in_c)


class RunEngine(TorchEngine, answers.ModelEngine):
    """The engine of a run in PyTorch; ``search`` finds the target that is explained by default."""

    def __init__(
        self, task: AnyTask, model: Module, search: Callable[[], Search] | None = None
    ) -> None:
        super().__init__(task, model)
        self._search = search

    @property
    def aligns(self) -> bool:
        return isinstance(self.task, Aligns)

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        """Return word links of pairs by a head, else the one that the run has saved, else its own.

        Raises `UserError` if the task has no attention between words.
        """
        task = self.task
        if not isinstance(task, Translation):
            raise UserError(f"the task {task.config.kind} has no maps between words")
        head = head or Head.load(task.folder, Head(*task.head))
        maps_of_pairs = word_maps(task, self.model, pairs, head.rows)
        return [head.links(maps) if maps else set() for maps in maps_of_pairs]

    def explain(self, source: Example, target: str | Ids | None, units: Units) -> AttentionRecord:
        search = None if self._search is None else self._search()
        return forced(self.task, self.model, source, target, search, units).record()


class EvaluateOptions(TypedDict, total=False):
    """The keyword arguments of `Run.evaluate` beside its examples.

    ``bleu_tokenizer`` is another than that of the task's config (`foveate.tasks.metrics.bleu`),
    ``signature`` says which BLEU: sacreBLEU's cased one, that of lower-cased tokens which papers
    report, or both.
    ``against`` is another run that answers the same lines, with p of the difference; ``baseline``
    asks for the figures of one beside.
    """

    beam_size: int | None
    length_penalty: float | None
    batch_tokens: int | None
    bleu_tokenizer: metrics.BleuTokenizer | None
    signature: metrics.BleuSignature | None
    against: "Run | None"
    baseline: bool


class Run(answers.Translator):
    """A trained model with everything that it needs to answer."""

    def __init__(
        self,
        path: Path,
        config: RunConfig,
        task: AnyTask,
        model: Any,
        step: str,
        engine: answers.ModelEngine | None = None,
    ) -> None:
        """``engine`` is what searches, scores and links; PyTorch where it is None."""
        self.path, self.config, self.task, self.model = path, config, task, model
        self.checkpoint, self._engine = step, engine  # the checkpoint relative to the run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.checkpoint})"

    @property
    def folder(self) -> Path:
        """The folder that a user gives: of an imported run, the published one."""
        return Path(checkpoint.origin_of(self.path).get("folder", self.path))

    @property
    def engine(self) -> answers.ModelEngine:
        return self._engine or RunEngine(self.task, self.model, self.search)

    def by(self, engine: answers.ModelEngine | None) -> "Run":
        """The same run by another engine."""
        return Run(self.path, self.config, self.task, self.model, self.checkpoint, engine)

    def classify(
        self, inputs: Sequence[answers.Picture], batch_tokens: int | None = None
    ) -> list[answers.LabelAnswer]:
        """Return the label of each line or picture, with p of every label; none if it is empty.

        Pictures are files, or numbers of the test data; ``batch_tokens`` are judged together.
        """
        if self.task.gives != "label":
            raise self._cannot("classify" + " pictures" * (self.task.reads == "picture"))
        return self.answer(inputs, batch_tokens)

    def _continuing(
        self, max_length: int, beam_size: int | None, choices: Mapping[str, object]
    ) -> tuple[Tokenizer, Search]:
        tree = continuing(self.config.decode.tree(), max_length, beam_size, choices)
        search: Search = Search.Config.parse(tree, ("decode",)).build()
        return self.need(Language, "generate").tokenizer, search

    def answer(
        self, inputs: Sequence[Any], batch_tokens: int | None = None, beam_size: int | None = None
    ) -> list[Any]:
        """An answer for each input, whatever the task reads (`foveate.run.answering.answer`)."""
        size = batch_tokens or answers.BATCH_TOKENS
        request = SearchRequest(self.search(beam_size), batch_tokens=size)
        return list(answer(self.task, self.engine, answers.several(inputs, "answer"), request))

    def sides(self, verb: str) -> TextSides:
        return self.need(TextToText, verb).sides

    def need(self, ability: type[T], verb: str) -> T:
        """The run's task as one that has an ability (`foveate.tasks.base`), or of a kind.

        Raises ``ConfigError`` that names the run, its task and the verb.
        """
        if isinstance(self.task, ability):
            return self.task
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
        config: Search.Config = self.config.decode
        if beam_size is not None or length_penalty is not None:
            tree = chosen(config.tree(), beam_size, length_penalty)
            config = Search.Config.parse(tree, ("decode",))
        return config.giving(num_hypotheses).build()

    def decoding(self, kind: str | None = None, **fields: object) -> "Run":
        """The same run with another search: other ``fields`` of its own, or another ``kind``.

        ``foveate kinds search`` lists them. Limits, rules and what else both kinds know are kept.
        """
        other, search = self.by(self._engine), another(self.config.decode, kind, fields)
        other.config = self.config.model_copy(update={"decode": search})
        return other

    def evaluate(
        self,
        *columns: str | Sequence[str],
        split: str = "test",
        files: Sequence[Path] = (),
        **options: Unpack[EvaluateOptions],
    ) -> Evaluation:
        """Return all figures of the task, on a split of the run's own data or on your examples.

        A translation takes ``evaluate(sources, references)``. ``files`` are of inputs and of
        references, or one of both; `EvaluateOptions` are the options.
        """
        task, against = copy.copy(self.task), options.get("against")
        for each in (self, against) if against is not None else ():
            each.need(TextToText, "answer the same lines as another run")
        if files:
            data = read_examples(task, *files)
        elif columns:
            data = as_examples(task, *columns)
        else:
            registered = evaluate.dispatch(type(task)) is not evaluate.dispatch(object)
            data = examples(task, split) if registered else split
        changes = dict[str, object]()
        if (tokenizer := options.get("bleu_tokenizer")) is not None:
            changes["bleu_tokenizer"] = tokenizer
        if (signature := options.get("signature")) is not None:
            known = getattr(task.config, "metrics", ())
            changes["metrics"] = metrics.signed_metrics(known, signature)
        if changes:
            task.config = type(task.config).parse(task.config.tree() | changes, ("task",))
        evaluation = evaluate(task, self.engine, data, self._request(options))
        if against is not None:
            assert isinstance(task, TextToText)
            request = against._request(options)
            theirs = list(map(str, answer(against.task, against.engine, data.sources, request)))
            other = against_other(task, data, against.path, theirs, evaluation.outputs)
            evaluation = replace(evaluation, against=other)
        return beside_baseline(task, data, evaluation) if options.get("baseline") else evaluation

    def _request(self, options: EvaluateOptions) -> SearchRequest:
        search = self.search(options.get("beam_size"), options.get("length_penalty"))
        size = options.get("batch_tokens") or answers.BATCH_TOKENS
        return SearchRequest(search, batch_tokens=size)

    def pairs(self, split: str = "test") -> tuple[Sequence[str], Sequence[str]]:
        """Return sources and references of a split of the run's own data."""
        corpus = self.need(TextTask, "give pairs of texts").corpus(split)
        return corpus.sources, corpus.targets

    def forced(
        self, source: Example, target: str | Ids | None = None, units: Units = "auto"
    ) -> ForcedPass:
        """The example with its target, as a pass that can be run repeatedly."""
        return forced(self.task, self.model, source, target, self.search(), units)


def load(
    path: str | Path, which: str = "best", ensemble: Sequence[str | Path] = (), trust: bool = False
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
    path, folder = checkpoint.run_of(located(path))
    config = read_run(path, trust)
    task = config.task.build(config.data)
    try:
        task.restore(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"the run {path} is not complete: it has no file {error.filename}; train it "
            "(foveate train), or copy all of its folder"
        ) from error
    adapted = config.train.adapter is not None
    build = partial(_with_adapters, config, task, path) if adapted else task.build
    read = partial(rebuilt, config.model, build, path)
    folder, model = (folder, read(folder)) if folder else checkpoint.read_chosen(path, which, read)
    model = merged(model) if adapted else model
    model.to(device()).eval()
    return Run(path, config, task, model, folder.relative_to(path).as_posix())


def located(path: Path) -> Path:
    """Return where a run is: one that is installed, or the import of a published folder."""
    if published(path):  # by a room that stands on this one
        path = importlib.import_module("foveate.exchange.importing").cached_run(path)
    return shipped(path)


def base_of(config: RunConfig, path: Path) -> Run:
    """Return the run that the adapters of a run belong to; record the digest of its weights.

    Raises ``ConfigError`` if it is not configured, or has other weights than are recorded.
    """
    if (start := config.start) is None:
        raise ConfigError("an adapter needs a base: set start.run", ("train", "adapter"))
    base = load(start.run, start.checkpoint)
    folder = base.path / base.checkpoint
    sealed = (folder / MANIFEST).is_file()
    digest = read_manifest(folder)[0][WEIGHTS][1] if sealed else sha256(folder / WEIGHTS)
    if not (path / BASE).is_file():
        replace_file(path / BASE, json.dumps({"weights": digest}) + "\n")
    if json.loads((path / BASE).read_text(encoding="utf-8")).get("weights") != digest:
        raise ConfigError(
            f"{folder} has other weights than when {path} was trained from it: restore them, or "
            "train the adapter again in another folder",
            ("start", "run"),
        )
    return base


def start_with_adapters(config: RunConfig, task: AnyTask, base: Run, model: nn.Module) -> str:
    """Copy the weights of the base into a model and add adapters; return a sentence about both."""
    assert config.start is not None and config.train.adapter is not None
    copied = begin(config.start, base.model, model, (base.task, task))
    return f"{copied}\n{adapt(model, config.train.adapter)}"


def _with_adapters(config: RunConfig, task: AnyTask, path: Path, of: Model.Config) -> nn.Module:
    base = base_of(config, path)
    numbers = [weight.numel() for weight in base.model.state_dict().values()]
    with Within(Size(len(numbers), sum(numbers)), f"{path / 'config.toml'}: model"):
        model = task.build(of)
    start_with_adapters(config, task, base, model)
    return model


def read_run(path: Path, trust: bool = False) -> RunConfig:
    """The resolved config of a run; `read_resolved` says what ``trust`` is."""
    check_run(path)
    return read_resolved(RunConfig, path / "config.toml", trust)


def task_of(config: RunConfig) -> type[AnyTask]:
    """The class of the task of a config, whose abilities are known without loading the run."""
    task = config.task.owner
    assert task is not None and issubclass(task, Task)
    return task


def device() -> str:
    """The GPU where PyTorch sees one, else the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


load_kinds()  # those of foveate.align need this module
