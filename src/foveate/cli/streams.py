"""What the commands do between a run and the lines, documents or pictures that users give."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TextIO

from foveate.answers import Translation
from foveate.cli.workers import Crew, Job, Prefixes
from foveate.config import ConfigError
from foveate.data.catalogue import DataError, MissingData
from foveate.data.readers import read_lines
from foveate.documents.documents import Choices, Document, format_of, read_document
from foveate.documents.formats import same
from foveate.documents.memory import Aided, aligner
from foveate.documents.translate import joined_all
from foveate.files import replace_file
from foveate.run import Run
from foveate.server.languages import directions
from foveate.tasks.base import CUT
from foveate.tasks.image_classification import PictureTask

if TYPE_CHECKING:
    from foveate.look.capture import AttentionRecord
    from foveate.look.views.examples import Picture
    from foveate.tasks.base import Evaluation
    from foveate.tasks.classification import Classification


CHUNK = 4096  # lines translated together: enough to sort by length, little enough for memory
SHARE = 512  # lines that a process of several translates together
PAGE = 200  # sentences drawn on one HTML page at most; browsers want no more
NAMED = 10  # line numbers printed of what is reported
DAMAGED = "not UTF-8, the bytes read as U+FFFD"


@dataclass(frozen=True)
class Wanted:
    """What `translate` reads and writes beside the lines and their best hypotheses."""

    num_hypotheses: int = 1
    scores: bool = False
    alignments: Path | None = None
    attention: Path | None = None
    prefixes: Path | None = None  # how each output begins, a line for a line of the input


Place = int | str  # the number of a line, from 1, or FILE:LINE


@dataclass
class Tally:
    """Which input lines something happened to: counted, and the first ones named."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[Place]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def note(self, what: str, line: Place) -> None:
        """Count a line; remember its number if it is among the first."""
        self.counts[what] = self.counts.get(what, 0) + 1
        if len(self.first.setdefault(what, [])) < NAMED:
            self.first[what].append(line)

    def note_all(self, what: str, lines: Iterable[int]) -> None:
        """Count many lines at once."""
        for line in lines:
            self.note(what, line)

    def report(self) -> list[str]:
        """A sentence for each thing that happened."""
        sentences = []
        for what, count in self.counts.items():
            numbers = ", ".join(map(str, self.first[what])) + (", …" if count > NAMED else "")
            lines = "1 line" if count == 1 else f"{count:,} lines"
            sentences.append(f"{lines} {what}: {numbers}")
        return [*sentences, *self.remarks]


# ------------------------------------------------------------------------------ streams


def one_line(text: str) -> str:
    """A text without the characters that would make two lines of it."""
    return text.replace("\r", " ").replace("\n", " ")


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of ``size`` lines, the last one shorter."""
    iterator = iter(lines)
    while chunk := list(islice(iterator, size)):
        yield chunk


# ------------------------------------------------------------------------------ translate, score


def translate(
    run: Run | Aided | Crew,
    source: BinaryIO,
    target: TextIO,
    wanted: Wanted,
    search: dict[str, Any],
) -> Tally:
    """Translate a stream, a line for a line and in order, in bounded memory.

    ``search`` goes to ``run.translate``. With more than one hypothesis the form is the n-best
    list of the field: ``line ||| hypothesis ||| features ||| score``, lines counted from 0.
    """
    tally, number, damaged = Tally(), 0, list[int]()
    size = 1 if source.isatty() else CHUNK if not isinstance(run, Crew) else SHARE
    choices = search | {"num_hypotheses": wanted.num_hypotheses}
    with _Beside(wanted, tally) as beside:
        jobs = (
            (chunk, beside.begun(len(chunk)) | choices)
            for chunk in chunks(read_lines(source, damaged), size)
        )
        for answers in run.translate(jobs) if isinstance(run, Crew) else _in_turn(run, jobs):
            for answer in answers:
                target.writelines(_written(answer, number, wanted))
                number += 1
                beside.add(answer, number)
            target.flush()
    tally.note_all(DAMAGED, damaged)
    return tally


def _in_turn(run: Run | Aided, jobs: Iterable[Job]) -> Iterator[list[Translation]]:
    return (run.translate(lines, **choices) for lines, choices in jobs)


class _Beside:
    """The files that go along with the translations: beginnings, links, the page of maps."""

    def __init__(self, wanted: Wanted, tally: Tally) -> None:
        self.wanted, self.tally = wanted, tally
        self.records: list[AttentionRecord] = []
        self.links: TextIO | None = None
        self.prefixes: Prefixes | None = None

    def __enter__(self) -> Self:
        page = self.wanted.attention
        if page is not None and page.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"--attention {page}: the maps go into one .html file; end it so")
        if self.wanted.alignments is not None:
            self.links = self.wanted.alignments.open("w", encoding="utf-8", newline="\n")
        if self.wanted.prefixes is not None:
            self.prefixes = Prefixes(self.wanted.prefixes)
        return self

    def begun(self, count: int) -> dict[str, Any]:
        """How the outputs of the next lines begin, as `foveate.run.Run.translate` takes it."""
        return {} if self.prefixes is None else {"prefix": self.prefixes.take(count)}

    def add(self, answer: Translation, number: int) -> None:
        """Take in the answer to one line (from 1): its links, its map, whether it was cut."""
        if answer.cut:
            self.tally.note(CUT, number)
        if self.links is not None:
            self.links.write(" ".join(f"{i}-{j}" for i, j in answer.alignment()) + "\n")
        if self.wanted.attention is None or not answer.source.strip():
            return
        if len(self.records) < PAGE:
            self.records.append(answer.record())
        else:
            self.tally.note(f"not drawn, {self.wanted.attention} holds {PAGE}", number)

    def __exit__(self, *error: object) -> None:
        if self.links is not None:
            self.links.close()
        if self.prefixes is not None:
            self.tally.remarks += self.prefixes.close()
        if self.wanted.attention is not None and self.records:
            from foveate.look.page import save_html

            self.tally.remarks += save_html(self.records, self.wanted.attention).notes


def _written(answer: Translation, number: int, wanted: Wanted) -> Iterator[str]:
    pairs = list(zip(answer.hypotheses, answer.scores, strict=True))
    if wanted.num_hypotheses > 1:
        for hypothesis, score in pairs:
            yield f"{number} ||| {one_line(hypothesis)} ||| model= {score:.6f} ||| {score:.6f}\n"
    elif wanted.scores:
        yield f"{pairs[0][1]:.6f}\t{one_line(pairs[0][0])}\n"
    else:
        yield one_line(pairs[0][0]) + "\n"


def score(run: Run, source: BinaryIO, target: TextIO, tokens: bool = False) -> Tally:
    """Score pairs ``source TAB target``: their log-probability, then each token's if asked.

    Raises `ConfigError` naming the line that has no tab.
    """
    tally, number, damaged = Tally(), 0, list[int]()
    for chunk in chunks(read_lines(source, damaged), CHUNK):
        pairs = []
        for line in chunk:
            number += 1
            left, tab, right = line.partition("\t")
            if not tab:
                raise ConfigError(f"line {number} has no tab: give source TAB target")
            pairs.append((left, right.partition("\t")[0]))
        for scored in run.score(pairs):
            columns = [f"{scored.log_probability:.6f}"]
            if tokens:
                each = zip(scored.tokens, scored.token_log_probabilities, strict=True)
                columns += [f"{one_line(token)} {value:.4f}" for token, value in each]
            target.write("\t".join(columns) + "\n")
        target.flush()
    tally.note_all(DAMAGED, damaged)
    return tally


# ------------------------------------------------------------------------------ evaluate


def evaluate(
    run: Run, source: Path | None, reference: Path | None, split: str, search: dict[str, Any]
) -> Evaluation:
    """Figures on the examples of files, or on a split of the run's own data."""
    if source is not None:
        return run.evaluate_files(source, reference, **search)
    if reference is not None:
        raise ConfigError(f"--reference {reference} needs --data SOURCE beside it")
    try:
        return run.evaluate(split=split, **search)
    except MissingData as error:
        other = "" if split == "valid" else ", or measure on --split valid"
        reason = error.reason.rstrip(" .:;")
        raise DataError(
            f"{run.path}: no {split} data ({reason}); name a file of examples: "
            f"foveate evaluate {run.path} --data FILE{other}"
        ) from None


def evaluation_text(evaluation: Evaluation, as_json: bool) -> str:
    """The figures of an evaluation with their signatures, for people or as JSON."""
    count = len(evaluation.outputs)
    if as_json:
        tree = {
            "examples": count,
            "figures": evaluation.figures,
            "signatures": evaluation.signatures,
            "tables": {name: asdict(table) for name, table in evaluation.tables.items()},
        }
        return as_text(tree)
    lines = [f"{count:,} examples"]
    width = max((len(name) for name in evaluation.figures), default=0)
    values = _figures(list(evaluation.figures.values()))
    for name, value in zip(evaluation.figures, values, strict=True):
        lines.append(f"{name:<{width}}  {value}  {evaluation.signatures.get(name, '')}".rstrip())
    for table in evaluation.tables.values():
        lines += ["", *table.lines()]
    return "\n".join(lines)


def _figures(values: Sequence[float]) -> list[str]:
    """Two decimals from 10 on (31.50), four digits below (0.3845); point under point."""
    texts = [f"{v:#.4g}" if 0 < abs(v) < 10 else f"{v:.2f}" for v in values]
    before = max((len(text.partition(".")[0]) for text in texts), default=0)
    placed = [" " * (before - len(text.partition(".")[0])) + text for text in texts]
    return [f"{text:<{max(map(len, placed))}}" for text in placed]


def noted(evaluation: Evaluation) -> Tally:
    """What happened to which examples."""
    tally = Tally()
    for what, numbers in evaluation.noted.items():
        tally.note_all(what, numbers)
    return tally


def write_outputs(outputs: Sequence[str], path: Path) -> None:
    """Write the outputs, a line for an example."""
    replace_file(path, "".join(one_line(o) + "\n" for o in outputs))


# ------------------------------------------------------------------------------ show


def description(run: Run) -> str:
    """What a run differs in from the defaults, and its last figures."""
    from foveate.train.journal import read

    lines = [str(run.path), "", "differs from the defaults in"]
    differences = run.config.differences()
    width = max(map(len, differences), default=0)
    lines += [f"  {key:<{width}}  {as_text(value, None)}" for key, value in differences.items()]
    log = read(run.path)
    changed = [line for line in log if line["event"] == "config"]
    lines += ["", "changed when it went on"] if changed else []
    for line in changed:
        lines += [
            f"  step {line['step']:,}: {key} {values['old']} → {values['new']}"
            for key, values in line["changes"].items()
        ]
    for event, title in (("start", "at the start"), ("valid", "at the last validation")):
        logged = [line for line in log if line["event"] == event]
        lines += ["", title] if logged else []
        for key, value in (logged[-1] if logged else {}).items():
            if isinstance(value, int | float | str) and key != "event":
                lines.append(f"  {key:<14} {value:,}" if key == "step" else f"  {key:<14} {value}")
    return "\n".join(lines)


def as_text(tree: Any, indent: int | None = 2) -> str:
    """Plain values as JSON, on many lines or on one."""
    return json.dumps(tree, ensure_ascii=False, indent=indent)


# --------------------------------------------------------------------------------------- documents
# Documents through a run: what is cut into sentences is translated and put together again.


@dataclass(frozen=True)
class Files:
    """What is read and written: files, or streams where there are none."""

    format: str | None
    source: Path | None
    target: Path | None

    @property
    def given(self) -> bool:
        """Whether a document is meant, and not lines."""
        return (self.format or self.source or self.target) is not None

    @property
    def folder(self) -> bool:
        """Whether all documents of a folder are meant."""
        return self.source is not None and self.source.is_dir()

    def refuse(self, wanted: Wanted, processes: int) -> None:
        """Raise ``ConfigError`` where a document is asked for more than its translation."""
        if self.given and (wanted != Wanted() or (processes > 1 and not self.folder)):
            raise ConfigError("a document has one answer, of one process: no n-best, maps, …")
        if self.given and not self.folder:
            self.kind()

    def kind(self) -> str:
        """The format, by its name or by the ending of the file."""
        return self.format or format_of(self.source or Path(""))

    def read(self, stream: BinaryIO) -> bytes:
        """The document. Raises ``ConfigError`` naming a file that cannot be read."""
        if self.source is None:
            return stream.read()
        try:
            return self.source.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self.source}: {error.strerror}") from None

    def write(self, data: bytes, stream: BinaryIO) -> None:
        """Write it to a file, which appears whole, or to the stream."""
        if self.target is None:
            stream.write(data)
            stream.flush()
        else:
            replace_file(self.target, data)


def from_known(run: Run, choices: Choices) -> Choices:
    """The choices with the languages that a run translates from and into, where its files tell."""
    try:
        known = directions(run.config, run.path)
    except ConfigError:
        return choices
    if choices.to is not None:
        fitting = [one for one in known if same(one.target, choices.to)]
        if not fitting:
            there = ", ".join(f"{one.source} to {one.target}" for one in known)
            raise ConfigError(f"--to {choices.to}: {run.path} translates from {there}")
        known = fitting
    source, target = _only(one.source for one in known), _only(one.target for one in known)
    return replace(choices, source=source, to=choices.to or target)


def _only(languages: Iterable[str]) -> str | None:
    """The one that all of them are."""
    there = set(languages)
    return there.pop() if len(there) == 1 else None


def translate_document(
    run: Aided,
    files: Files,
    choices: Choices,
    search: dict[str, Any],
) -> Tally:
    """Translate a document; its structure, protected spans and markup stay.

    Raises ``ConfigError`` where the run is known not to translate into the language that is wanted.
    """
    where = str(files.source or "standard input")
    choices = from_known(run.run, choices)
    document = read_document(files.kind(), files.read(sys.stdin.buffer), choices, where)
    data, answers = translated(run, document, search)
    tally = Tally()
    for number, answer in enumerate(answers, start=1):
        if answer.cut:
            tally.note(f"of the sentences {CUT}", number)
    files.write(data, sys.stdout.buffer)
    many = f"{len(answers):,} sentence" + "s" * (len(answers) != 1)
    tally.remarks.append(f"{many} translated{document.said}")
    return tally


def translated(
    run: Aided, document: Document, search: dict[str, Any]
) -> tuple[bytes, list[Translation]]:
    """The document in the other language, and the answers to its sentences."""
    lines = [line for passage in document.passages for line in passage.sentences]
    if not run.run.task.source_tokenizer.tags:
        search = search | {"to": None}  # said for the document: the run has one pair
    answers = run.translate(lines, **search) if lines else []
    found = [str(answer) for answer in answers]
    done, each = 0, list[Sequence[str]]()
    for passage in document.passages:
        each.append(found[done : done + len(passage.sentences)])
        done += len(passage.sentences)
    return document.written(joined_all(document.passages, each, aligner(run.run))), answers


# ------------------------------------------------------------------------------------------ vision
# The verb of pictures: captions.


def pictures_of(names: Sequence[str]) -> list[Picture]:
    """Files, or numbers of pictures of the run's test data. Raises `ConfigError` for neither."""
    from foveate.look.views.examples import picture_of

    return [picture_of(name) for name in names]


def caption(
    run: Run, names: Sequence[str], beam_size: int | None, scores: bool = False
) -> Iterator[str]:
    """A line for each picture: its name TAB its caption, after its score where that is wanted."""
    for answer in run.caption(pictures_of(names), beam_size):
        line = f"{answer.name}\t{answer.caption}"
        yield f"{answer.score:.4f}\t{line}" if scores else line


# ------------------------------------------------------------------------------------------ labels
# Labels for the lines of a stream, and for pictures.

EMPTY = "empty, no label"


class Form(Protocol):
    """An answer as a line of output, after the name of the picture where it is one."""

    def __call__(self, answer: Classification, picture: str | None = None) -> str: ...


def form(scores: bool, as_json: bool) -> Form:
    """How an answer is written. Raises ``ConfigError`` where two forms are wanted."""
    if scores and as_json:
        raise ConfigError("--scores and --json are two forms of the output: choose one")
    return _json if as_json else _all if scores else _best


def classify(
    run: Run, source: BinaryIO, target: TextIO, form: Form, batch_tokens: int | None = None
) -> Tally:
    """Label a stream, a line for a line and in order, in bounded memory.

    Raises `ConfigError` for a run that labels pictures.
    """
    if run.task.reads == "picture":
        raise ConfigError(
            f"{run.path} labels pictures: name some behind it, JPEG or PNG, or numbers of test "
            "pictures"
        )
    tally, number, damaged = Tally(), 0, list[int]()
    size = 1 if source.isatty() else CHUNK
    for chunk in chunks(read_lines(source, damaged), size):
        for answer in run.classify(chunk, batch_tokens):
            number += 1
            target.write(form(answer) + "\n")
            if not answer.probabilities:
                tally.note(EMPTY, number)
            if answer.cut:
                tally.note(CUT, number)
        target.flush()
    tally.note_all(DAMAGED, damaged)
    return tally


def classify_pictures(
    run: Run, names: Sequence[str], target: TextIO, form: Form, batch_size: int | None = None
) -> None:
    """Label pictures, a line for each and in order.

    All are read before a line is written: the first that is none is named and refused. Raises
    ``DataError``, and `ConfigError` also for a run that labels no pictures.
    """
    run.need(PictureTask, "classify pictures; give it lines of text on stdin")
    answers = run.classify_images(pictures_of(names), batch_size)
    for name, answer in zip(names, answers, strict=True):
        target.write(form(answer, name) + "\n")
    target.flush()


def _best(answer: Classification, picture: str | None = None) -> str:
    """``LABEL TAB p``; an empty line for an empty one."""
    return "\t".join([*_named(picture), *_pairs(answer)[:2]])


def _all(answer: Classification, picture: str | None = None) -> str:
    """``LABEL TAB p TAB LABEL TAB p …``, the most probable first."""
    return "\t".join([*_named(picture), *_pairs(answer)])


def _named(picture: str | None) -> list[str]:
    return [] if picture is None else [one_line(picture)]


def _pairs(answer: Classification) -> list[str]:
    return [
        part for label, p in answer.probabilities.items() for part in (one_line(label), f"{p:.6f}")
    ]


def _json(answer: Classification, picture: str | None = None) -> str:
    asked = {"text": answer.source} if picture is None else {"picture": picture}
    found = {"label": answer.label or None, "probabilities": answer.probabilities}
    return json.dumps(asked | found, ensure_ascii=False)


# ---------------------------------------------------------------------------------------- language
# What the verbs of language models do: prompts in, texts out, as they come where one looks on.

RULE = "-" * 40  # between two texts, which may have many lines


def prompts(given: str | None, stdin: BinaryIO | None, damaged: list[int]) -> list[str]:
    """The prompt that was given, or a line of standard input each, or an empty one.

    Lines that are not UTF-8 are read with U+FFFD, and their numbers added to ``damaged``.
    """
    if stdin is None:
        return [given or ""]
    return list(read_lines(stdin, damaged)) or [""]


def generate(
    run: Run, starts: Sequence[str], target: TextIO, choices: dict[str, Any], as_json: bool
) -> None:
    """Write each prompt with its continuations. ``choices`` go to ``run.generate``.

    On a terminal a single text appears as it is made. Texts are divided by a rule; as JSON each is
    an object on a line of its own.
    """
    alone = len(starts) == 1 and choices.get("num", 1) == 1 and "beam_size" not in choices
    if target.isatty() and alone and not as_json:
        _stream(run, starts[0], target, choices)
        return
    for number, found in enumerate(run.generate(starts, **choices)):
        if as_json:
            target.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
        else:
            target.write(f"{RULE}\n" * (number > 0) + f"{found}\n")


def _stream(run: Run, start: str, target: TextIO, choices: dict[str, Any]) -> None:
    done = 0
    target.write(start)

    def listen(text: str) -> None:
        nonlocal done
        whole = text.rstrip("\ufffd")  # of a character of which bytes are still to come
        target.write(whole[done:])
        target.flush()
        done = max(done, len(whole))

    (found,) = run.generate([start], listen=listen, **choices)
    target.write(found.text[done:] + "\n")


# ---------------------------------------------------------------------------------------- forecast
# The verb of forecasting: a table of forecasts.


def forecast(run: Run, source: Path | None, out: Path | None) -> str:
    """The forecast after the end of a file as CSV; or, written to ``out``, where it went."""
    text = run.forecast(source).csv()
    if out is None:
        return text.rstrip("\n")
    replace_file(out, text.encode())
    return f"wrote {out}"
