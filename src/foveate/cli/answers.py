"""The verbs that answer: answer, classify, generate, score and evaluate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO, TypeVar

import typer

import foveate.cli.options as options
from foveate.cli.engines import EngineName, RunSpec, Verbose
from foveate.cli.options import CHUNK, Tally, hint, load, one_line, say, to_json
from foveate.errors import ConfigError, UserError

if TYPE_CHECKING:
    from foveate.engine.answers import Answer, Continuation, LabelAnswer
    from foveate.engine.packed import PackedModel
    from foveate.run import Run
    from foveate.run.evaluation import Evaluation

AnswerType = TypeVar("AnswerType", bound="Answer")
Answering = Callable[[Sequence[Any], int | None], Iterable[AnswerType]]  # of inputs; batch tokens
EMPTY = "empty, no label"
RULE = "-" * 40  # between two texts, which may have many lines

Above0 = Annotated[float | None, typer.Option(min=0.0, help="default: the run's own")]


@dataclass(frozen=True)
class EngineChoice:
    """The options of verbs that PyTorch or a packed file answers: which weights, by which."""

    ensemble: options.Ensemble = None
    checkpoint: options.Checkpoint = "best"
    engine: EngineName = "auto"
    threads: options.Threads = None
    verbose: Verbose = False

    def load(self, run: Path, torch_only: Mapping[str, object] | None = None) -> Run | PackedModel:
        """Load the packed file that answers, else the run: see `RunSpec.packed`."""
        weights = self.checkpoint, tuple(map(str, self.ensemble or ()))
        spec = RunSpec(str(run), *weights, engine=self.engine)
        return spec.packed(torch_only or {}, self.threads, self.verbose) or spec.load()


def answer(
    run: options.RunPath,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT…]", help="pictures or series; text comes on stdin"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object each")] = False,
    batch_tokens: options.BatchTokens = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Run any model on lines, pictures or series."""
    loaded, tally = load(run, checkpoint), Tally()
    reads = loaded.task.reads
    if reads == "text" and inputs:
        raise ConfigError(f"{run} reads text: write it on stdin, one per line, not as arguments")
    if reads == "picture" and not inputs:
        raise ConfigError(f"{run} reads pictures: add some, JPEG or PNG, or numbers")
    for each in answered(loaded.answer, reads, inputs or [], batch_tokens, tally):
        text = str(each) if reads == "series" else one_line(str(each))
        typer.echo(to_json(each.json(), None) if as_json else text)
    say(tally.report())


def answered(
    answer: Answering[AnswerType],
    reads: str,
    names: Sequence[str],
    batch_tokens: int | None,
    tally: Tally,
) -> Iterator[AnswerType]:
    """Yield the answers to lines of standard input, or to the pictures or series of some names.

    Inputs that were cut are noted.
    """
    from foveate.data.text import CUT, portions

    items: Iterable[Sequence[Any]] = [names or [None]]
    if reads == "text":
        hint("Type one text per line; Ctrl-D ends.")
        items = tally.read(sys.stdin.buffer)
    elif reads == "picture":
        from foveate.look.views.examples import picture_of

        items = portions(list(map(picture_of, names)), CHUNK)
    for number, each in enumerate(chain.from_iterable(answer(i, batch_tokens) for i in items), 1):
        if each.cut:
            tally.note(CUT, number)
        yield each


def classify(
    run: options.RunPath,
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="[IMAGE…]", help="JPEG or PNG, or numbers of test pictures"),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="print LABEL TAB P of each")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object per line")] = False,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="tokens or pictures per batch")
    ] = None,
    choice: EngineChoice = EngineChoice(),
) -> None:
    """Label each line of stdin, or each picture."""
    if scores and as_json:
        raise ConfigError("--scores and --json are two output formats: choose one")
    tally, names = Tally(), images or repeat(None)
    model = choice.load(run, {"pictures": images})
    each = answered(model.classify, _labelled(model, images), images or [], batch_tokens, tally)
    for number, (name, label) in enumerate(zip(names, each, strict=False), 1):
        typer.echo(label_text(label, name, scores, as_json))
        if not label.probabilities:
            tally.note(EMPTY, number)
    say(tally.report())


def _labelled(model: Run | PackedModel, images: Sequence[str] | None) -> str:
    """Return what a model labels. Raises ``ConfigError`` if there is something else to label."""
    from foveate.engine.packed import PackedModel

    if isinstance(model, PackedModel):
        return "text"
    from foveate.tasks.image_classification import PictureTask

    if images:
        lines = f"lines of text go on stdin: foveate classify {model.path} < {images[0]}"
        model.need(PictureTask, f"classify pictures; {lines}")
    elif model.task.reads == "picture":
        raise ConfigError(
            f"{model.path} labels pictures: name some behind it, JPEG or PNG, or numbers of test "
            "pictures"
        )
    return model.task.reads


def label_text(answer: LabelAnswer, picture: str | None, all_labels: bool, as_json: bool) -> str:
    """Return ``[PICTURE TAB] LABEL TAB p``, of all labels the most probable first, or JSON."""
    pairs = list(answer.probabilities.items())
    if as_json:
        name, source = ("text", answer.source) if picture is None else ("picture", picture)
        record = {name: source, "label": answer.label or None, "probabilities": dict(pairs)}
        return to_json(record, None)
    columns = [] if picture is None else [one_line(picture)]
    for label, p in pairs if all_labels else pairs[:1]:
        columns += [one_line(label), f"{p:.6f}"]
    return "\t".join(columns)


@dataclass(frozen=True)
class SamplingOptions:
    """The options of how the next token is drawn."""

    temperature: Above0 = None
    top_k: Annotated[int | None, typer.Option(min=1, help="sample from the k most probable")] = None
    top_p: Annotated[float | None, typer.Option(help="sample from the top mass p")] = None
    min_p: Annotated[float | None, typer.Option(help="minimum p, relative to the largest")] = None
    repetition_penalty: Above0 = None
    seed: Annotated[int | None, typer.Option(min=0, help="seed of the random numbers")] = None


def generate(
    run: options.RunPath,
    prompt: Annotated[str | None, typer.Option(help="default: each line of stdin")] = None,
    max_length: Annotated[int, typer.Option(min=1, help="tokens per text")] = 200,
    num: Annotated[int, typer.Option(min=1, help="texts per prompt")] = 1,
    sampling: SamplingOptions = SamplingOptions(),
    beam_size: Annotated[int | None, typer.Option(min=1, help="use beam search; 1: greedy")] = None,
    whole_lines: Annotated[bool, typer.Option("--whole-lines", help="end with the line")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object per text")] = False,
    choice: EngineChoice = EngineChoice(),
) -> None:
    """Continue a text with a language model."""
    chosen = options.chosen(sampling)
    if beam_size is not None and chosen:
        name = next(iter(chosen)).replace("_", "-")
        raise ConfigError(f"--beam-size searches, --{name} samples: leave one of them out")
    stdin = None if prompt is not None or sys.stdin.isatty() else sys.stdin.buffer
    tally = Tally()
    texts = prompts(prompt, stdin, tally)
    single = len(texts) == 1 and num == 1 and beam_size is None
    continue_text = partial(
        choice.load(run).generate,
        max_length=max_length, num=num, whole_lines=whole_lines, beam_size=beam_size, **chosen,
    )  # fmt: skip
    write_texts(continue_text, texts, sys.stdout, as_json, stream=single)
    say(tally.report())


def prompts(prompt: str | None, stdin: BinaryIO | None, tally: Tally) -> list[str]:
    """Return the prompt, or the lines of standard input, or an empty one."""
    if stdin is None:
        return [prompt or ""]
    return list(chain.from_iterable(tally.read(stdin))) or [""]


def write_texts(
    continue_text: Callable[..., list[Continuation]],
    texts: Sequence[str],
    target: TextIO,
    as_json: bool,
    stream: bool = False,
) -> None:
    """Write each prompt with its continuations, divided by a rule, or as JSON a line each.

    With ``stream`` a single text appears on a terminal while it is generated.
    """
    if stream and target.isatty() and not as_json:
        _stream(continue_text, texts[0], target)
        return
    for number, generation in enumerate(continue_text(texts)):
        if as_json:
            target.write(to_json(generation.json(), None) + "\n")
        else:
            target.write(f"{RULE}\n" * (number > 0) + f"{generation}\n")


def _stream(continue_text: Callable[..., list[Continuation]], prompt: str, target: TextIO) -> None:
    written = 0
    target.write(prompt)

    def listen(text: str) -> None:
        nonlocal written
        complete = text.rstrip("\ufffd")  # of a character of which bytes are still to come
        target.write(complete[written:])
        target.flush()
        written = max(written, len(complete))

    (generation,) = continue_text([prompt], listen=listen)
    target.write(generation.text[written:] + "\n")


def score(
    run: options.RunPath,
    tokens: Annotated[bool, typer.Option("--tokens", help="print each token's, too")] = False,
    choice: EngineChoice = EngineChoice(),
) -> None:
    """Print log-probabilities of given pairs (TSV, stdin)."""
    loaded = choice.load(run)
    layout = loaded.sides("score").format
    check = None if layout is None else layout.build().source
    hint("Type SOURCE TAB TARGET; Ctrl-D ends.")
    say(score_lines(loaded, sys.stdin.buffer, sys.stdout, tokens, check).report())


def score_lines(
    run: Run | PackedModel,
    source: BinaryIO,
    target: TextIO,
    tokens: bool = False,
    check: Callable[[str], str] | None = None,
) -> Tally:
    """Score pairs ``source TAB target``: their log-probability, then that of each token.

    ``check`` raises `UserError` for a text that is not a source, and converts raw lines of the
    data. Raises `ConfigError` naming the line that has no tab, or no source before it.
    """
    tally, number = Tally(), 0
    for chunk in tally.read(source):
        pairs = []
        for line in chunk:
            number += 1
            left, tab, right = line.partition("\t")
            if not tab:
                raise ConfigError(f"line {number} has no tab: give source TAB target")
            right = right.partition("\t")[0]
            if check is not None:
                _check_source(left, right, line, number, check)
            pairs.append((left, right))
        for scored in run.score(pairs):
            columns = [f"{scored.log_probability:.6f}"]
            if tokens:
                each = zip(scored.tokens, scored.token_log_probabilities, strict=True)
                columns += [f"{one_line(token)} {value:.4f}" for token, value in each]
            target.write("\t".join(columns) + "\n")
        target.flush()
    return tally


def _check_source(
    source: str, target: str, line: str, number: int, check: Callable[[str], str]
) -> None:
    """Raise ``ConfigError`` for an invalid source, with the pair of a raw line of the data."""
    try:
        check(source)
    except UserError as error:
        try:
            pair = f"{check(line)} TAB {target}"
        except UserError:
            raise ConfigError(f"line {number}: {error}") from None
        raise ConfigError(
            f"line {number} is a line of the data, not SOURCE TAB TARGET: write {pair}"
        ) from None


@dataclass(frozen=True)
class HeldOut:
    """The options of the data on which a run is measured."""

    source: Annotated[Path | None, typer.Option("--data", help="file of inputs, or of pairs")] = (
        None
    )
    reference: Annotated[Path | None, typer.Option(help="file of references")] = None
    split: Annotated[str, typer.Option(help="split of the run's own data")] = "test"


@dataclass(frozen=True)
class Measuring:
    """The options of what is measured, and how: keyword arguments of ``Run.evaluate``."""

    beam_size: options.BeamSize = None
    length_penalty: options.LengthPenalty = None
    batch_tokens: options.BatchTokens = None
    bleu_tokenizer: Annotated[
        str | None, typer.Option(help="default: chosen by the references' script")
    ] = None
    signature: Annotated[
        str | None, typer.Option(metavar="papers|sacrebleu|both", help="form of the BLEU signature")
    ] = None
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="run to test against, with p values")
    ] = None
    output: Annotated[Path | None, typer.Option(help="write the outputs here")] = None
    baseline: Annotated[bool, typer.Option(help="add a baseline that trains in seconds")] = True


def evaluate(
    run: options.RunPath,
    overrides: options.Decode = None,
    data: HeldOut = HeldOut(),
    measuring: Measuring = Measuring(),
    ensemble: options.Ensemble = None,
    checkpoint: options.Checkpoint = "best",
    precision: options.Precision = "fp32",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Compute all metrics of the task on held-out data."""
    from foveate.data.catalogue import DataError, MissingData

    others = tuple(map(str, ensemble or ())), tuple(overrides or ())
    loaded = RunSpec(str(run), checkpoint, *others, precision).load()
    source, reference, fields = data.source, data.reference, dict(vars(measuring))
    if source is None and reference is not None:
        raise ConfigError(f"--reference {reference} also needs --data SOURCE")
    output = fields.pop("output")
    if measuring.against is not None:
        fields["against"] = RunSpec(str(measuring.against), precision=precision).load()
    measure = partial(loaded.evaluate, **fields)
    files = [file for file in (source, reference) if file is not None]
    try:
        evaluation = measure(files=files) if files else measure(split=data.split)
    except MissingData as error:
        if files:
            raise
        other = "" if data.split == "valid" else ", or measure on --split valid"
        reason = error.reason.rstrip(" .:;")
        raise DataError(
            f"{loaded.folder}: no {data.split} data ({reason}); name a file of examples: "
            f"foveate evaluate {loaded.folder} --data FILE{other}"
        ) from None
    if output is not None:
        if not evaluation.outputs:
            raise ConfigError(f"--output {output}: the task {loaded.task.config.kind} gives none")
        from foveate.files import replace_file

        replace_file(output, "".join(one_line(text) + "\n" for text in evaluation.outputs))
    typer.echo(evaluation_text(evaluation, as_json))
    tally = Tally()
    for event, numbers in evaluation.noted.items():
        tally.note(event, *numbers)
    say(tally.report())


def evaluation_text(evaluation: Evaluation, as_json: bool) -> str:
    """Return the figures of an evaluation with their signatures, as a table or as JSON."""
    count = len(evaluation.outputs)
    if as_json:
        shown = ("figures", "signatures", "tables", "baseline", "against")
        fields = asdict(evaluation)
        return to_json({"examples": count} | {name: fields[name] for name in shown})
    lines = [f"{count:,} examples"] if count else []
    width = max((len(name) for name in evaluation.figures), default=0)
    values = _figures(list(evaluation.figures.values()))
    for name, value in zip(evaluation.figures, values, strict=True):
        lines.append(f"{name:<{width}}  {value}  {evaluation.signatures.get(name, '')}".rstrip())
    if beside := evaluation.baseline:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in beside.figures.items())
        lines.append(f"baseline: {figures}{' ' * bool(figures)}({beside.about})")
        if beside.better:
            lines.append(f"warning: the baseline beats the model in {', '.join(beside.better)}")
    if other := evaluation.against:
        figures = ", ".join(f"{n} {v:.4g} (p = {other.p[n]:.4f})" for n, v in other.figures.items())
        lines.append(f"against {other.run}: {figures}, p of the difference, by paired bootstrap")
    for table in evaluation.tables.values():
        lines += ["", *table.lines()]
    return "\n".join(lines)


def _figures(values: Sequence[float]) -> list[str]:
    """Write two decimals from 10 on (31.50), four digits below (0.3845), aligned at the point."""
    texts = [f"{v:#.4g}" if 0 < abs(v) < 10 else f"{v:.2f}" for v in values]
    before = max((len(text.partition(".")[0]) for text in texts), default=0)
    placed = [" " * (before - len(text.partition(".")[0])) + text for text in texts]
    return [f"{text:<{max(map(len, placed))}}" for text in placed]
