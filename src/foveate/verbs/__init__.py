"""The verbs that read and write streams: thin functions of a run, streams and a few choices.

Lives here: what happens between a run and the lines of a file. Does not live here: the command
line (`foveate.cli`), and what a run can do (`foveate.run`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TextIO

from foveate.config import ConfigError
from foveate.data.catalogue import DataError, MissingData
from foveate.data.readers import read_lines
from foveate.files import replace_file
from foveate.tasks.base import CUT
from foveate.verbs.crew import Crew, Job
from foveate.verbs.decoding import Prefixes

if TYPE_CHECKING:
    from foveate.answers import Translation
    from foveate.documents.memory import Aided
    from foveate.look.capture import AttentionRecord
    from foveate.run import Run
    from foveate.tasks.base import Evaluation

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
