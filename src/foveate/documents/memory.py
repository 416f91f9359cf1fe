"""Translation aids: glossary, translation memory, word links for markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rapidfuzz import fuzz, process

from foveate.answers import TextAnswer
from foveate.config import ConfigError
from foveate.data.tokenizer import SPECIALS, UNK
from foveate.data.words import split_words
from foveate.decode.beam import Beam
from foveate.decode.choose import Wording
from foveate.documents.documents import decoded
from foveate.documents.formats import language, parse_xml, same
from foveate.documents.translate import Aligner
from foveate.run import Run, RunConfig
from foveate.tasks.base import Aligns

if TYPE_CHECKING:
    from foveate.align.aer import Head
    from foveate.run import Run


def aligner(run: Run, head: Head | None = None) -> Aligner:
    """Links by a head, else that of the run: ``foveate align RUN … --save`` chooses one.

    A run that cannot align gives no links; what is to be placed goes in proportion then.
    """
    if not isinstance(run.task, Aligns):
        return lambda pairs: [[] for _ in pairs]
    return lambda pairs: [sorted(links) for links in run.links(pairs, head)]


# ---------------------------------------------------------------------------------------- glossary
# A glossary: terms of the source, and what must stand in the target wherever one occurs.


class Glossary:
    """Terms with the variants that translate them, any of which will do.

    A term counts where it stands as whole words, in whatever case; of terms that overlap the
    longer one counts.
    """

    def __init__(self, terms: Mapping[str, tuple[str, ...]]) -> None:
        self.terms = {" ".join(term.casefold().split()): found for term, found in terms.items()}

    @classmethod
    def read(cls, path: Path) -> Glossary:
        """``TERM TAB VARIANT[|VARIANT…]`` a line. Raises ``ConfigError`` naming a line without."""
        try:
            text = decoded(path.read_bytes(), str(path))
        except OSError as error:
            raise ConfigError(f"cannot read the glossary {path}: {error.strerror}") from None
        terms: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            term, _, rest = line.partition("\t")
            variants = tuple(v.strip() for v in rest.split("\t")[0].split("|") if v.strip())
            if not term.strip() or not variants:
                raise ConfigError(f"{path}:{number} is no entry: write TERM TAB VARIANT|VARIANT")
            terms[term] = variants
        return cls(terms)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        ordered = sorted(self.terms, key=len, reverse=True)
        each = "|".join(r"\s+".join(map(re.escape, term.split())) for term in ordered)
        return re.compile(rf"(?<!\w)(?:{each})(?!\w)", re.IGNORECASE) if each else None

    def wanted(self, line: str) -> list[tuple[str, ...]]:
        """The variants of each term of a line, each term once."""
        if self._pattern is None:
            return []
        found = (" ".join(m.group().casefold().split()) for m in self._pattern.finditer(line))
        return [self.terms[term] for term in dict.fromkeys(found) if term in self.terms]


def holds(text: str, variants: tuple[str, ...]) -> bool:
    """Whether a text has one of the variants as whole words, in whatever case."""
    each = "|".join(map(re.escape, variants))
    return re.search(rf"(?<!\w)(?:{each})(?!\w)", text, re.IGNORECASE) is not None


# ------------------------------------------------------------------------------------------ memory
# A translation memory: sentences that were translated before, found again exactly or nearly.


class Match(NamedTuple):
    """What the memory has for a line: its translation, and how alike the sources are, in %."""

    target: str
    score: float


class Memory:
    """Pairs by their source; white space and nothing else is levelled for an exact match."""

    def __init__(self, pairs: Mapping[str, str], least: float = 100.0) -> None:
        self.pairs = {" ".join(source.split()): target for source, target in pairs.items()}
        self.least = least  # % of likeness from which a match counts
        self._sources = list(self.pairs)

    @classmethod
    def read(
        cls,
        path: Path,
        to: str | None = None,
        least: float = 100.0,
        source: str | None = None,
    ) -> Memory:
        """A TMX, or a TSV of source and target.

        Of a TMX the variants in the languages ``source`` (else that of its header, else the first)
        and ``to`` (else the next) are taken. Raises ``ConfigError`` naming what is neither.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the memory {path}: {error.strerror}") from None
        tmx = path.suffix.lower() == ".tmx"
        pairs = _of_tmx(data, str(path), to, source) if tmx else _of_tsv(data, str(path))
        return cls(dict(pairs), least)

    def find(self, line: str) -> Match | None:
        """The translation of the same line, or of the one most like it from ``least`` on.

        100 · (1 − d / (|a| + |b|)), d the number of insertions and deletions.
        """
        key = " ".join(line.split())
        if not key:
            return None
        if key in self.pairs:
            return Match(self.pairs[key], 100.0)
        if self.least >= 100:
            return None
        found = process.extractOne(
            key, self._sources, scorer=fuzz.ratio, score_cutoff=self.least, processor=None
        )
        return None if found is None else Match(self.pairs[found[0]], float(found[1]))


def _of_tsv(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(decoded(data, where).splitlines(), start=1):
        source, tab, rest = line.partition("\t")
        if line.strip() and not tab:
            raise ConfigError(f"{where}:{number} has no tab: give source TAB target")
        if tab:
            yield source, rest.partition("\t")[0]


def _of_tmx(
    data: bytes, where: str, to: str | None, source: str | None
) -> Iterator[tuple[str, str]]:
    root = parse_xml(data, where)
    header = root.find("header")
    said = None if header is None else header.get("srclang")
    own = source or said or ""
    for unit in root.iter("tu"):
        variants = unit.findall("tuv")
        sources = [v for v in variants if same(language(v), own)]
        sources = sources or ([] if source else variants[:1])
        targets = [v for v in variants if v is not sources[0]] if sources else []
        targets = [v for v in targets if to is None or same(language(v), to)]
        texts = ["".join(seg.itertext()) for v in (*sources[:1], *targets[:1])
                 if (seg := v.find("seg")) is not None]  # fmt: skip
        if len(texts) == 2:
            yield texts[0], texts[1]


# -------------------------------------------------------------------------------------------- aids
# What helps a run translate: a memory before it, a glossary and banned phrases while it decodes,
# unknown words copied after it.

NAMED = 10  # terms that a report names at most


@dataclass(frozen=True, eq=False)
class Aids:
    """What a run may be helped with; none of it is the default."""

    glossary: Glossary | None = None
    forced: Sequence[str] = ()
    banned: Sequence[str] = ()
    memory: Memory | None = None
    copies_unknown: bool = False

    def __bool__(self) -> bool:
        named = self.glossary is not None or self.memory is not None
        return named or bool(self.forced or self.banned or self.copies_unknown)

    def refuse(self, config: RunConfig, name: str) -> None:
        """Raise ``ConfigError`` where the search of a run cannot force terms."""
        search = config.decode.build()
        if (self.glossary is not None or self.forced) and type(search) is not Beam:
            kind = search.config.kind
            raise ConfigError(f"{name}: a search {kind} cannot force terms; use decode.kind=beam")


@dataclass
class Done:
    """What aids did, counted."""

    exact: int = 0  # from the memory
    fuzzy: int = 0  # from the memory, by likeness
    least: float = 100.0  # % of likeness, the lowest of these
    wanted: int = 0  # terms
    missed: int = 0
    names: list[str] = field(default_factory=list)  # of the first that were missed
    copied: int = 0  # unknown words

    def take(self, other: Done) -> None:
        """Count what another has counted."""
        for name in ("exact", "fuzzy", "wanted", "missed", "copied"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least = min(self.least, other.least)
        self.names = list(dict.fromkeys([*self.names, *other.names]))[:NAMED]


@dataclass
class Aided:
    """A run with its aids; it translates as a run does, and can say at the end what they did."""

    run: Run
    aids: Aids = Aids()
    done: Done = field(default_factory=Done)

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.run.path

    def translate(self, lines: Sequence[str], **choices: Any) -> list[TextAnswer]:
        """As `foveate.run.Run.translate`; what the memory knows is not asked of the run."""
        found = [self._known(line) for line in lines]
        open_ = [n for n, answer in enumerate(found) if answer is None]
        asked = [lines[n] for n in open_]
        prefix = choices.get("prefix")
        if prefix is not None and not isinstance(prefix, str):
            choices["prefix"] = [prefix[n] for n in open_]
        for n, answer in zip(open_, self._worded(asked, choices), strict=True):
            found[n] = self._copied_into(answer) if self.aids.copies_unknown else answer
        return [answer for answer in found if answer is not None]

    def _worded(self, lines: Sequence[str], choices: dict[str, Any]) -> list[TextAnswer]:
        """The answers that hold the terms of their lines.

        Where the free search's best output holds them it is the best of those that do, and stays;
        only the other lines, and those of which further outputs do not hold them, are searched once
        more, in a beam with terms.
        """
        ban = self.aids.banned
        banned: dict[str, Any] = {"wording": Wording(banned=ban)} if ban else {}
        answers = self.run.translate(lines, **(choices | banned))
        wanted = [self._terms(line) for line in lines]
        short = [
            n
            for n, (answer, terms) in enumerate(zip(answers, wanted, strict=True))
            if not all(holds(text, term) for text in answer.hypotheses for term in terms)
        ]
        if short:
            wording = Wording([wanted[n] for n in short], ban)
            prefix = choices.get("prefix")
            if prefix is not None and not isinstance(prefix, str):
                choices = choices | {"prefix": [prefix[n] for n in short]}
            again = self.run.translate([lines[n] for n in short], **choices, wording=wording)
            for n, answer in zip(short, again, strict=True):
                answers[n] = _together(answers[n], answer, wanted[n])
        for answer, terms in zip(answers, wanted, strict=True):
            self._check(terms, answer)
        return answers

    def _known(self, line: str) -> TextAnswer | None:
        match = None if self.aids.memory is None else self.aids.memory.find(line)
        if match is None:
            return None
        if match.score >= 100:
            self.done.exact += 1
        else:
            self.done.fuzzy += 1
            self.done.least = min(self.done.least, match.score)
        return TextAnswer(line, [match.target], [0.0], run=self.run)

    def _terms(self, line: str) -> list[tuple[str, ...]]:
        if not line.strip():
            return []
        own = [] if self.aids.glossary is None else self.aids.glossary.wanted(line)
        return [*own, *((phrase,) for phrase in self.aids.forced)]

    def _check(self, terms: Sequence[tuple[str, ...]], answer: TextAnswer) -> None:
        missed = [term[0] for term in terms if not holds(str(answer), term)]
        self.done.wanted += len(terms)
        self.done.missed += len(missed)
        self.done.names = list(dict.fromkeys([*self.done.names, *missed]))[:NAMED]

    def _copied_into(self, answer: TextAnswer) -> TextAnswer:
        """The answer with each unknown word's counterpart of the source (Luong et al., 2015)."""
        if not answer.outputs or UNK not in answer.outputs[0].ids:
            return answer
        source, text = answer.source, str(answer)
        places = {start: n for n, (start, _) in enumerate(split_words(text))}
        linked = {t: s for s, t in answer.alignment()}
        spans = split_words(source)

        def copied(match: re.Match[str]) -> str:
            inside = (places.get(p) for p in range(*match.span()))
            words = [linked[n] for n in inside if n is not None and n in linked]
            if not words:
                return match.group()
            self.done.copied += 1
            a, b = spans[words[0]]
            return source[a:b]

        mended = re.sub(re.escape(SPECIALS[UNK]), copied, text)
        return replace(answer, hypotheses=[mended, *answer.hypotheses[1:]])

    def report(self) -> list[str]:
        """What the aids did, in sentences."""
        said, done = [], self.done
        if self.aids.memory is not None:
            said.append(f"{done.exact:,} from the memory, {done.fuzzy:,} more by likeness")
            if done.fuzzy:
                said[-1] += f", {done.least:.0f} % at least"
        if done.wanted:
            said.append(f"{done.wanted - done.missed:,} of {done.wanted:,} terms present")
        if done.missed:
            said[-1] += f"; missing: {', '.join(done.names)}"
        if done.copied:
            said.append(f"{done.copied:,} unknown words copied")
        return said


def _together(free: TextAnswer, held: TextAnswer, terms: Sequence[tuple[str, ...]]) -> TextAnswer:
    """The outputs of a free search that hold the terms, then further ones of a beam with terms."""
    kept = [n for n, text in enumerate(free.hypotheses) if all(holds(text, t) for t in terms)]
    if 0 not in kept:
        return held
    texts = {free.hypotheses[n] for n in kept}
    more = [n for n, text in enumerate(held.hypotheses) if text not in texts]
    more = more[: len(free.hypotheses) - len(kept)]

    def both(name: str) -> list[Any]:
        ours, theirs = getattr(free, name), getattr(held, name)
        first = [ours[n] for n in kept if n < len(ours)]
        return first + [theirs[n] for n in more if n < len(theirs)]

    outputs = both("outputs")
    return replace(free, hypotheses=both("hypotheses"), scores=both("scores"), outputs=outputs)


def read_aids(
    glossary: Path | None,
    memory: Path | None,
    to: str | None,
    least: float,
    forced: Sequence[str] | None,
    banned: Sequence[str] | None,
    copies_unknown: bool,
) -> Aids:
    """Aids, some of them in files. Raises ``ConfigError`` naming a line that is wrong."""
    terms = None if glossary is None else Glossary.read(glossary)
    known = None if memory is None else Memory.read(memory, to, least)
    return Aids(terms, forced or (), banned or (), known, copies_unknown)


def refuse_processes(aids: Aids, silence: Sequence[str] | None) -> None:
    """Raise ``ConfigError`` where several processes, or those of a folder, are to do what one can
    do.
    """
    if silence:
        raise ConfigError("--silence works in this process alone: leave out --processes, folders")
    if aids:
        raise ConfigError("glossary, memory, phrases work in one process: no --processes, folders")
