"""The verbs that answer: answer, classify, generate, forecast, caption, score and evaluate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO, TypeVar, cast

import typer

import foveate.cli.engines as engines
import foveate.cli.options as options
from foveate.cli.engines import RunSpec
from foveate.cli.options import CHUNK, Tally, chunks, hint, load, one_line, say, to_json
from foveate.errors import ConfigError, UserError

if TYPE_CHECKING:
    from foveate.engine.answers import Answer, Continuation, LabelAnswer
    from foveate.engine.packed import PackedModel
    from foveate.run import Run
    from foveate.run.evaluation import Evaluation
    from foveate.tasks.metrics import BleuSignature, BleuTokenizer
    from foveate.views.examples import Picture

AnswerType = TypeVar("AnswerType", bound="Answer")
Answering = Callable[[Sequence[Any], int | None], Iterable[AnswerType]]  # of inputs; batch tokens
EMPTY = "empty, no label"
RULE = "-" * 40  # between two texts, which may have many lines

Above0 = Annotated[float | None, typer.Option(min=0.0, help="default: the run's own")]


def answer(
    run: options.RunPath,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT…]", help="pictures, or files of series; text is on stdin"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object each")] = False,
    batch_tokens: options.BatchTokens = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Answer lines, pictures or series by any run."""
    loaded, tally = load(run, checkpoint), Tally()
    reads = loaded.task.reads
    if reads == "text" and inputs:
        raise ConfigError(f"{run} reads text: write it on stdin, one per line, not as arguments")
    if reads == "picture" and not inputs:
        raise ConfigError(f"{run} reads pictures: add some, JPEG or PNG, or numbers")
    for each in answered(loaded, loaded.answer, inputs or [], batch_tokens, tally):
        text = str(each) if reads == "series" else one_line(str(each))
        typer.echo(to_json(each.json(), None) if as_json else text)
    say(tally.report())


def answered(
    run: Run,
    answer: Answering[AnswerType],
    names: Sequence[str],
    batch_tokens: int | None,
    tally: Tally,
) -> Iterator[AnswerType]:
    """The answers to lines of standard input, or to the pictures or series of some names."""
    if run.task.reads == "text":
        return lines_answered(answer, batch_tokens, tally)
    items: Iterable[Sequence[Any]] = [names or [None]]
    if run.task.reads == "picture":
        items = chunks(pictures_of(names), CHUNK)
    return _noted(items, answer, batch_tokens, tally)


def lines_answered(
    answer: Answering[AnswerType],
    batch_tokens: int | None,
    tally: Tally,
) -> Iterator[AnswerType]:
    """The answers to lines of standard input."""
    hint("Type one text per line; Ctrl-D ends.")
    return _noted(tally.read(sys.stdin.buffer), answer, batch_tokens, tally)


def _noted(
    items: Iterable[Sequence[Any]],
    answer: Answering[AnswerType],
    batch_tokens: int | None,
    tally: Tally,
) -> Iterator[AnswerType]:
    """The answers to all items; inputs that were cut are noted."""
    from foveate.data.text import CUT

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
    scores: Annotated[bool, typer.Option("--scores", help="LABEL TAB P of every label")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="tokens, or pictures, per batch")
    ] = None,
    ensemble: options.Ensemble = None,
    checkpoint: options.Checkpoint = "best",
    engine: engines.EngineName = "auto",
    threads: options.Threads = None,
    verbose: engines.Verbose = False,
) -> None:
    """Label each line of stdin, or each picture."""
    if scores and as_json:
        raise ConfigError("--scores and --json are two output formats: choose one")
    tally, names = Tally(), images or repeat(None)
    spec = RunSpec(str(run), checkpoint, tuple(map(str, ensemble or ())), engine=engine)
    model = spec.packed({"pictures": images}, threads, verbose)
    if model is None:
        each = answered(*_labeller(spec, images or []), images or [], batch_tokens, tally)
    else:
        each = lines_answered(model.classify, batch_tokens, tally)
    for number, (name, label) in enumerate(zip(names, each, strict=False), 1):
        typer.echo(label_json(label, name) if as_json else label_line(label, name, scores))
        if not label.probabilities:
            tally.note(EMPTY, number)
    say(tally.report())


def _labeller(spec: RunSpec, images: Sequence[str]) -> tuple[Run, Answering[LabelAnswer]]:
    """The run and its verb. Raises ``ConfigError`` where it reads something else."""
    from foveate.tasks.image_classification import PictureTask

    loaded = spec.load()
    if images:
        lines = f"lines of text go on stdin: foveate classify {loaded.path} < {images[0]}"
        loaded.need(PictureTask, f"classify pictures; {lines}")
    elif loaded.task.reads == "picture":
        raise ConfigError(
            f"{loaded.path} labels pictures: name some behind it, JPEG or PNG, or numbers of test "
            "pictures"
        )
    return loaded, loaded.classify


def label_line(answer: LabelAnswer, picture: str | None, all_labels: bool) -> str:
    """``[PICTURE TAB] LABEL TAB p``, of all labels the most probable first; empty without one."""
    pairs = list(answer.probabilities.items())
    columns = [] if picture is None else [one_line(picture)]
    for label, p in pairs if all_labels else pairs[:1]:
        columns += [one_line(label), f"{p:.6f}"]
    return "\t".join(columns)


def label_json(answer: LabelAnswer, picture: str | None) -> str:
    """The text or picture, its label and all probabilities, as JSON on a line."""
    record: dict[str, object] = {"text": answer.source} if picture is None else {"picture": picture}
    record |= {"label": answer.label or None, "probabilities": answer.probabilities}
    return to_json(record, None)


def pictures_of(names: Sequence[str]) -> list[Picture]:
    """Files, or numbers of pictures of the run's test data. Raises `ConfigError` for neither."""
    from foveate.views.examples import picture_of

    return [picture_of(name) for name in names]


def generate(
    run: options.RunPath,
    prompt: Annotated[
        str | None, typer.Option(help="or lines on stdin; a blank line is an empty prompt")
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="tokens")] = 200,
    num: Annotated[int, typer.Option(min=1, help="texts for each prompt")] = 1,
    temperature: Above0 = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="only the k most probable")] = None,
    top_p: Annotated[float | None, typer.Option(help="only the top probability mass p")] = None,
    min_p: Annotated[float | None, typer.Option(help="p times the most probable")] = None,
    repetition_penalty: Above0 = None,
    seed: Annotated[int | None, typer.Option(min=0, help="equal seeds give equal texts")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="search instead; 1: greedy")] = None,
    whole_lines: Annotated[bool, typer.Option("--whole-lines", help="end with the line")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, one text per line")] = False,
    ensemble: options.Ensemble = None,
    checkpoint: options.Checkpoint = "best",
    engine: engines.EngineName = "auto",
    threads: options.Threads = None,
    verbose: engines.Verbose = False,
) -> None:
    """Go on with a text, by a language model."""
    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    sampling |= {"min_p": min_p, "repetition_penalty": repetition_penalty, "seed": seed}
    sampling = {name: value for name, value in sampling.items() if value is not None}
    if beam_size is not None and sampling:
        name = next(iter(sampling)).replace("_", "-")
        raise ConfigError(f"--beam-size searches, --{name} samples: leave one of them out")
    stdin = None if prompt is not None or sys.stdin.isatty() else sys.stdin.buffer
    tally = Tally()
    texts = prompts(prompt, stdin, tally)
    single = len(texts) == 1 and num == 1 and beam_size is None
    spec = RunSpec(str(run), checkpoint, tuple(map(str, ensemble or ())), engine=engine)
    model = spec.packed({}, threads, verbose)
    continue_text = partial(
        spec.load().generate if model is None else model.generate,
        max_length=max_length, num=num, whole_lines=whole_lines, beam_size=beam_size, **sampling,
    )  # fmt: skip
    write_texts(continue_text, texts, sys.stdout, as_json, stream=single)
    say(tally.report())


def prompts(prompt: str | None, stdin: BinaryIO | None, tally: Tally) -> list[str]:
    """The prompt, or the lines of standard input, or an empty one."""
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


def caption(
    run: options.RunPath,
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGE…", help="JPEG or PNG, or numbers of test pictures")
    ],
    beam_size: options.BeamSize = None,
    scores: Annotated[bool, typer.Option("--scores", help="SCORE TAB NAME TAB CAPTION")] = False,
    checkpoint: options.Checkpoint = "best",
) -> None:
    """Describe pictures, a line for each."""
    from foveate.tasks.captioning import Captioning

    loaded = load(run, checkpoint)
    loaded.need(Captioning, "caption")
    for answer in loaded.answer(pictures_of(images), beam_size=beam_size):
        line = f"{answer.name}\t{answer.caption}"
        typer.echo(f"{answer.score:.4f}\t{line}" if scores else line)


def forecast(
    run: options.RunPath,
    source: Annotated[
        Path | None, typer.Argument(metavar="[CSV]", help="the run's own series if absent")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="a CSV file instead of stdout")] = None,
    checkpoint: options.Checkpoint = "best",
) -> None:
    """The rows after the end of a series, as CSV."""
    from foveate.tasks.forecasting import Forecasting

    loaded = load(run, checkpoint)
    loaded.need(Forecasting, "forecast")
    text = loaded.answer([source])[0].csv()
    if out is None:
        typer.echo(text.rstrip("\n"))
        return
    from foveate.files import replace_file

    replace_file(out, text.encode())
    typer.echo(f"wrote {out}")


def score(
    run: options.RunPath,
    tokens: Annotated[bool, typer.Option("--tokens", help="also each token's")] = False,
    ensemble: options.Ensemble = None,
    checkpoint: options.Checkpoint = "best",
    engine: engines.EngineName = "auto",
    threads: options.Threads = None,
    verbose: engines.Verbose = False,
) -> None:
    """Log-probabilities of given pairs (TSV, stdin)."""
    spec = RunSpec(str(run), checkpoint, tuple(map(str, ensemble or ())), engine=engine)
    loaded = spec.packed({}, threads, verbose) or _scorer(spec)
    layout = loaded.sides("score").format
    check = None if layout is None else layout.build().source
    hint("Type SOURCE TAB TARGET; Ctrl-D ends.")
    say(score_lines(loaded, sys.stdin.buffer, sys.stdout, tokens, check).report())


def _scorer(spec: RunSpec) -> Run:
    """The run. Raises ``ConfigError`` where it gives no scores of pairs."""
    from foveate.tasks.abilities import Scores

    loaded = spec.load()
    loaded.need(Scores, "score")
    return loaded


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
    """Raise ``ConfigError`` where a source is none, with the pair of a raw line of the data."""
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


def evaluate(
    run: options.RunPath,
    overrides: options.Decode = None,
    source: Annotated[Path | None, typer.Option("--data", help="inputs, or pairs")] = None,
    reference: Annotated[Path | None, typer.Option(help="references, line by line")] = None,
    split: Annotated[str, typer.Option(help="of the run's own data, without --data")] = "test",
    beam_size: options.BeamSize = None,
    length_penalty: options.LengthPenalty = None,
    batch_tokens: options.BatchTokens = None,
    bleu_tokenizer: Annotated[
        str | None, typer.Option(help="that cuts BLEU's words; default: by the references' script")
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option(metavar="papers|sacrebleu|both", help="which BLEU"),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="also another run on the same lines, with p")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="write the outputs here")] = None,
    baseline: Annotated[bool, typer.Option(help="add a baseline that trains in seconds")] = True,
    ensemble: options.Ensemble = None,
    checkpoint: options.Checkpoint = "best",
    precision: options.Precision = "fp32",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """All figures of the task on held-out data."""
    others = tuple(map(str, ensemble or ())), tuple(overrides or ())
    loaded = RunSpec(str(run), checkpoint, *others, precision).load()
    if source is None and reference is not None:
        raise ConfigError(f"--reference {reference} also needs --data SOURCE")
    measure = partial(
        loaded.evaluate,
        beam_size=beam_size,
        length_penalty=length_penalty,
        batch_tokens=batch_tokens,
        bleu_tokenizer=cast("BleuTokenizer | None", bleu_tokenizer),
        signature=cast("BleuSignature | None", signature),
        against=None if against is None else RunSpec(str(against), precision=precision).load(),
        baseline=baseline,
    )
    files = [file for file in (source, reference) if file is not None]
    evaluation = measure(files=files) if files else evaluate_split(loaded, split, measure)
    if output is not None:
        from foveate.files import replace_file

        replace_file(output, "".join(one_line(text) + "\n" for text in evaluation.outputs))
    typer.echo(evaluation_text(evaluation, as_json))
    tally = Tally()
    for event, numbers in evaluation.noted.items():
        tally.note(event, *numbers)
    say(tally.report())


def evaluate_split(run: Run, split: str, measure: Callable[..., Evaluation]) -> Evaluation:
    """Figures on a split of the run's own data. Raises ``DataError`` where it is missing."""
    from foveate.data.catalogue import DataError, MissingData

    try:
        return measure(split=split)
    except MissingData as error:
        other = "" if split == "valid" else ", or measure on --split valid"
        reason = error.reason.rstrip(" .:;")
        raise DataError(
            f"{run.path}: no {split} data ({reason}); name a file of examples: "
            f"foveate evaluate {run.path} --data FILE{other}"
        ) from None


def evaluation_text(evaluation: Evaluation, as_json: bool) -> str:
    """The figures of an evaluation with their signatures, as a table or as JSON."""
    count = len(evaluation.outputs)
    if as_json:
        tree = {
            "examples": count,
            "figures": evaluation.figures,
            "signatures": evaluation.signatures,
            "tables": {name: asdict(table) for name, table in evaluation.tables.items()},
            "baseline": asdict(evaluation.baseline) if evaluation.baseline else None,
            "against": asdict(evaluation.against) if evaluation.against else None,
        }
        return to_json(tree)
    lines = [f"{count:,} examples"]
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
    """Two decimals from 10 on (31.50), four digits below (0.3845), aligned at the point."""
    texts = [f"{v:#.4g}" if 0 < abs(v) < 10 else f"{v:.2f}" for v in values]
    before = max((len(text.partition(".")[0]) for text in texts), default=0)
    placed = [" " * (before - len(text.partition(".")[0])) + text for text in texts]
    return [f"{text:<{max(map(len, placed))}}" for text in placed]
