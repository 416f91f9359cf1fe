"""Are the outputs of another program ours? Token by token, or by chrF where weights were rounded.

Lives here: the sample, the searches that are tried, the comparison. Does not live here: how the
other program is asked (the targets).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foveate.data.catalogue import DataError
from foveate.decode.beam import Beam
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Search
from foveate.export.huggingface_rules import ExchangeError
from foveate.run import Run

Ids = list[int]
CHRF = 0.3  # what rounded weights may cost, in points of chrF
TIE = 1e-3  # two outputs whose log p differ by less are a tie, which rounding decides


class Different(ExchangeError):
    """An export that does not answer as the run does: names the sentence and the tokens."""


@dataclass(frozen=True)
class Sample:
    """Sentences on which an export is tried, with references where there are any."""

    sources: list[str]
    references: list[str] | None = None


@dataclass(frozen=True)
class Checked:
    """What an export was held against.

    ``ties`` counts sentences where the run finds both outputs equally probable, ``cut_otherwise``
    those that another tokenizer cut otherwise, which are left out; ``chrf`` is ours and theirs,
    where tokens may differ.
    """

    sentences: int
    searches: list[str]
    tokens: int = 0
    ties: int = 0
    chrf: list[float] | None = None
    cut_otherwise: int = 0

    def __str__(self) -> str:
        tried = f"{self.sentences:,} sentences, {' and '.join(self.searches)}"
        if self.cut_otherwise:
            tried += f" ({self.cut_otherwise} more are cut otherwise there, and left out)"
        if self.chrf is not None:
            return f"{tried}: chrF {self.chrf[1]:.2f}, the run's own {self.chrf[0]:.2f}"
        if not self.tokens:
            return f"{tried}: the same"
        ties = f", {self.ties} of them a tie" if self.ties else ""
        return f"{tried}: the same {self.tokens:,} tokens{ties}"


def sample_of(run: Run, count: int, source: Path | None = None) -> Sample:
    """Some lines of a file, or of the run's validation data, the whole of it being stepped through.

    A line of the file is SOURCE or SOURCE TAB REFERENCE. Raises ``DataError`` where there is none.
    """
    if source is not None:
        lines = source.read_text(encoding="utf-8").splitlines()
        pairs = [line.split("\t", 1) for line in lines if line.strip()][:count]
        if not pairs:
            raise DataError(f"{source} is empty: nothing to try an export on")
        both = all(len(pair) == 2 for pair in pairs)
        return Sample([p[0] for p in pairs], [p[1] for p in pairs] if both else None)
    try:
        sources, references = run.pairs("valid")
    except (DataError, OSError) as error:
        raise DataError(f"{error}; or name sentences to try the export on: --sample FILE") from None
    step = max(1, len(sources) // count)
    return Sample(list(sources[::step][:count]), list(references[::step][:count]))


def searches(run: Run) -> dict[str, Search]:
    """Greedy search and the run's own beam (or one of four), with the run's limits of length."""
    own = run.config.decode
    beam = own if type(own) is Beam.Config else Beam.Config.like(own, beam_size=4)
    plain = [config.model_copy(update={"rules": ()}) for config in (Greedy.Config.like(own), beam)]
    return {
        "greedy": plain[0].build(),
        f"beam of {beam.beam_size}": plain[1].build(),
    }


Theirs = Callable[[list[Ids], Search], list[Ids]]


def compare(
    run: Run, sample: Sample, tried: dict[str, Search], theirs: Theirs, exact: bool
) -> Checked:
    """Hold what ``theirs`` finds for source ids against what the run finds.

    Raises `Different` where tokens differ, or if not ``exact`` where chrF is more than 0.3 lower.
    """
    if not exact and sample.references is None:
        raise ExchangeError(
            "rounded weights are compared by chrF, which needs references: "
            "lines SOURCE TAB REFERENCE in --sample FILE"
        )
    ids = encoded(run, sample.sources)
    if not exact:
        tried = dict(list(tried.items())[-1:])
    tokens = ties = 0
    for name, search in tried.items():
        ours = [found[0].ids if found else [] for found in run.task.search(run.model, ids, search)]
        others = theirs(ids, search)
        if not exact:
            return by_chrf(run, sample, name, ours, others)
        for number, (one, other) in enumerate(zip(ours, others, strict=True)):
            tokens += len(one)
            if one == other:
                continue
            if not _tie(run, ids[number], one, other):
                raise Different(_told(run, sample.sources[number], number, name, one, other))
            ties += 1
    return Checked(len(ids), list(tried), tokens, ties)


def by_length(sources: Sequence[Ids]) -> dict[int, list[int]]:
    """The numbers of the sources of each length, which have the same limit; no empty ones."""
    alike = defaultdict[int, list[int]](list)
    for number, ids in enumerate(sources):
        if ids:
            alike[len(ids)].append(number)
    return alike


def encoded(run: Run, lines: Sequence[str]) -> list[Ids]:
    """The ids of source lines as `foveate.run.Run.translate` reads them."""
    found = run.task.source_tokenizer.encode_ids(run.task.addressed(lines))
    limit = run.task.data.max_length
    return [i[:limit] if line.strip() else [] for i, line in zip(found, lines, strict=True)]


def _tie(run: Run, source: Ids, ours: Ids, theirs: Ids) -> bool:
    """Whether the run finds both equally probable: in all, or where they part."""
    one, other = run.task.force(run.model, [(source, ours), (source, theirs)])
    parted = next((n for n, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)  # noqa: B905
    parted = min(len(ours), len(theirs)) if parted is None else parted
    return abs(sum(one) - sum(other)) < TIE or abs(one[parted] - other[parted]) < TIE


def _told(run: Run, line: str, number: int, name: str, ours: Ids, theirs: Ids) -> str:
    pieces = run.task.target_tokenizer.pieces
    one, other = (" ".join(pieces[i] for i in ids) for ids in (ours, theirs))
    return (
        f"sentence {number + 1} of the sample comes out otherwise ({name}): {line!r} gives "
        f"[{one}] here and [{other}] there; nothing was written"
    )


def by_chrf(run: Run, sample: Sample, name: str, ours: list[Ids], theirs: list[Ids]) -> Checked:
    """The same by chrF: rounded weights may choose other words, no worse ones."""
    decode = run.task.target_tokenizer.decode
    one, other = (list(map(decode, ids)) for ids in (ours, theirs))
    scores = held_by_chrf(one, other, sample.references)
    return Checked(len(ours), [name], sum(map(len, ours)), 0, scores)


def held_by_chrf(ours: list[str], theirs: list[str], references: list[str] | None) -> list[float]:
    """ChrF of both. Raises `Different` where theirs is more than 0.3 lower."""
    from foveate.tasks.metrics import figures_of

    one, other = (figures_of(o, references or [], ["chrf"])[0]["chrf"] for o in (ours, theirs))
    if other < one - CHRF:
        raise Different(
            f"chrF {other:.2f} where the run has {one:.2f}: more than {CHRF} is lost; take another "
            "--quantization, or a larger sample: --check N; nothing was written"
        )
    return [one, other]
