"""Glossaries, translation memories and phrases that assist a run; word links for markup."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple, Self, TypeVar, Unpack

from foveate.config import ConfigError
from foveate.data.bilingual import language_of, languages_of_tmx, units_of_tmx
from foveate.data.words import UNSPACED
from foveate.documents.base import decoded
from foveate.documents.spans import Rules
from foveate.documents.translate import Aligner
from foveate.engine.answers import TextAnswer, TranslateOptions, Translator
from foveate.files import split_lines

T = TypeVar("T")
Variants = tuple[str, ...]  # alternative translations of a term


def aligner(run: Translator, to: str | None = None) -> Aligner:
    """Return an aligner by the run's own head (``foveate align RUN … --save``).

    ``to`` is the target language if the run supports several. A run that cannot align gives no
    links; elements are then placed in proportion.
    """
    if not run.aligns:
        return lambda pairs: [[] for _ in pairs]
    return lambda pairs: list(map(sorted, run.links(pairs, to=to)))


LONGEST = 256  # characters in a term or a variant
MOST_VARIANTS = 100  # for one term
_LETTER = rf"[^\W{UNSPACED.pattern[1:-1]}]"  # in a script with spaces between words


def whole_words(phrases: Iterable[str]) -> str:
    """Return a pattern that matches the longest of several phrases as whole words.

    A neighbouring character may belong to a script without spaces. A look-around takes 1 ms to
    compile: there is one for all phrases of a kind.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for phrase in sorted((" ".join(phrase.split()) for phrase in phrases), key=len, reverse=True):
        before = "" if UNSPACED.match(phrase[:1]) else f"(?<!{_LETTER})"
        after = "" if UNSPACED.match(phrase[-1:]) else f"(?!{_LETTER})"
        groups.setdefault((before, after), []).append(phrase)
    return "|".join(a + _longest(own) + b for (a, b), own in groups.items())


def _longest(phrases: Sequence[str]) -> str:
    """Return a pattern that matches the longest of several phrases, common beginnings once."""
    branches = []
    for _, group in groupby(sorted(filter(None, phrases)), key=itemgetter(0)):
        start = commonprefix(own := list(group))  # noqa: RUF071
        rest = _longest([each[len(start) :] for each in own]) if own[-1] != start else ""
        branches.append(re.escape(start).replace(r"\ ", r"\s++") + rest)
    return f"(?:{'|'.join(branches)})" + "?" * ("" in phrases)


def folded(text: str) -> str:
    """Return a text with single spaces and folded case, for comparison."""
    return " ".join(text.casefold().split())


class PhraseIndex:
    """Phrases to find in texts as whole words, in time independent of their number.

    `whole_words` does the same as a regular expression, which tries alternatives in turn.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = {phrase for each in phrases if (phrase := folded(each))}
        lengths: dict[str, set[int]] = {}
        for phrase in self._phrases:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {first: sorted(each, reverse=True) for first, each in lengths.items()}

    def terms_in(self, text: str) -> Iterator[str]:
        """Yield the phrases in a text in order, folded; of overlapping ones the longest first."""
        text, start = folded(text), 0
        while start < len(text):
            lengths = self._lengths.get(text[start], ())
            ends = (start + length for length in lengths) if _separate(text, start, -1) else ()
            for end in ends:
                if text[start:end] in self._phrases and _separate(text, end - 1, 1):
                    yield text[start:end]
                    start = end - 1
                    break
            start += 1


def _separate(text: str, place: int, step: int) -> bool:
    """Return whether a word may end at a character: its neighbour in that direction is separate."""
    beside = text[place + 1 : place + 2] if step > 0 else text[max(0, place - 1) : place]
    letter = beside == "_" or beside.isalnum()
    return not letter or bool(UNSPACED.match(beside) or UNSPACED.match(text[place]))


class Glossary:
    """Source terms with their translations, one of which the output must contain.

    Terms are matched as whole words in any case, if their script has spaces between words; of
    overlapping terms the longest counts.
    """

    def __init__(self, terms: Mapping[str, Variants]) -> None:
        self.terms = {folded(term): v for term, v in terms.items()}
        self._index = PhraseIndex(self.terms)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read lines ``TERM TAB VARIANT[|VARIANT…]``. Raises ``ConfigError`` for any other line."""
        where = str(path)
        return cls(terms_of(entries_of_lines(decoded(path.read_bytes(), where), where)))

    def variants(self, line: str) -> list[Variants]:
        """Return the variants of each term of a line, each term once."""
        return [self.terms[term] for term in dict.fromkeys(self._index.terms_in(line))]


class TermEntry(NamedTuple):
    """An entry of a glossary, and its location."""

    where: str
    term: str
    variants: Sequence[str]


def entries_of_lines(text: str, where: str) -> Iterator[TermEntry]:
    """Yield entries ``TERM TAB VARIANT[|VARIANT…]``, one per line; ``#`` starts a comment line."""
    for number, line in enumerate(split_lines(text), start=1):
        if line.strip() and not line.startswith("#"):
            term, _, rest = line.partition("\t")
            yield TermEntry(f"{where}:{number}", term, rest.split("\t")[0].split("|"))


def terms_of(entries: Iterable[TermEntry]) -> dict[str, Variants]:
    """Return the variants of each term.

    Raises ``ConfigError`` for an entry without a term or a variant, and for one whose term has
    different variants in an earlier entry.
    """
    terms: dict[str, Variants] = {}
    places: dict[str, str] = {}
    for where, term, variants in entries:
        key = folded(term)
        own = tuple(" ".join(variant.split()) for variant in variants if variant.strip())
        if not key or not own:
            raise ConfigError(f"{where} is not an entry: write TERM TAB VARIANT|VARIANT")
        if len(own) > MOST_VARIANTS:
            message = f"{where} has {len(own):,} variants: a term has at most {MOST_VARIANTS}"
            raise ConfigError(message)
        if (size := max(map(len, (term, *own)))) > LONGEST:
            message = f"{where} has a term or variant of {size:,} characters: at most {LONGEST}"
            raise ConfigError(message)
        first = places.setdefault(key, where)
        if terms.setdefault(key, own) != own:
            raise ConfigError(
                f"{where} and {first} translate {term.strip()!r} differently; write one entry: "
                f"VARIANT|VARIANT"
            )
    return terms


def holds(text: str, variants: tuple[str, ...]) -> bool:
    """Return whether a text has one of the variants as whole words, in upper or lower case."""
    text = folded(text)
    for variant in filter(None, map(folded, variants)):
        start = text.find(variant)
        while start >= 0:
            if _separate(text, start, -1) and _separate(text, start + len(variant) - 1, 1):
                return True
            start = text.find(variant, start + 1)
    return False


_SENTENCE_END = re.compile(r"[.!?…。！？]+(?:[\"'’”)\]]|\s?»)*(?P<blank>\s+)(?=\S)")


def without_appended(text: str, source: str, terms: Sequence[Variants]) -> str:
    """Return a text without terms that were appended after its last sentence.

    A search that is forced to write a term where none fits appends it: the term is missing then.
    """
    ends = list(_SENTENCE_END.finditer(text))
    count = len(_SENTENCE_END.findall(source))
    if len(ends) <= count:
        return text
    body, tail = text[: ends[count].start("blank")], folded(text[ends[count].end() :])
    for variant in sorted((v for term in terms for v in term), key=len, reverse=True):
        tail = tail.replace(folded(variant), " ")
    return text if any(character.isalnum() for character in tail) else body


class Match(NamedTuple):
    """A translation from the memory, and the similarity of the sources in %."""

    target: str
    score: float


class TranslationMemory:
    """Earlier translations by source, matched exactly (except for white space) or by similarity."""

    def __init__(
        self, pairs: Mapping[str, str], least: float = 100.0, after: Self | None = None
    ) -> None:
        """``after`` is searched for what this memory does not contain."""
        self.pairs = {" ".join(source.split()): target for source, target in pairs.items()}
        self.least, self.after = least, after  # minimum similarity of a match in %
        self._sources = list(self.pairs)

    @classmethod
    def read(
        cls, path: Path, to: str | None = None, least: float = 100.0, source: str | None = None
    ) -> Self:
        """Read a TMX, or a TSV of source and target; pairs with an empty side are ignored.

        From a TMX, the variants in the languages ``source`` (else that of its header, else the
        first) and ``to`` (else the next) are taken. Raises ``ConfigError`` for another format.
        """
        pairs: Iterable[tuple[str, str]] = pairs_of_tsv(path.read_bytes(), str(path))
        if path.suffix.lower() == ".tmx":
            names = languages_of_tmx(path)
            own = source or next((name for name in names if name != language_of(to or "")), "")
            other = to or next((name for name in names if name != language_of(own)), "")
            pairs = ((unit.source, unit.target) for unit in units_of_tmx(path, (own, other)))
        return cls({a: b for a, b in pairs if a.strip() and b.strip()}, least)

    def find(self, line: str) -> Match | None:
        """Return the translation of the same line, else of the most similar one from ``least`` up.

        A similar line has the same numbers, placeholders and links: others would be wrong.

        similarity = 100 · (1 − d / (|a| + |b|)), d the number of insertions and deletions.
        """
        key = " ".join(line.split())
        if not key:
            return None
        return self._find(key) or (None if self.after is None else self.after.find(line))

    def _find(self, key: str) -> Match | None:
        if key in self.pairs:
            return Match(self.pairs[key], 100.0)
        if self.least >= 100:
            return None
        from rapidfuzz import fuzz, process

        best = process.extract(
            key, self._sources, scorer=fuzz.ratio, score_cutoff=self.least, limit=SHOWN
        )
        count = Rules().count
        spans = count([key]) if best else {}
        same = (Match(self.pairs[s], float(n)) for s, n, _ in best if count([s]) == spans)
        return next(same, None)


def pairs_of_tsv(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """Yield the first two columns. Raises ``ConfigError`` for a line with only one."""
    for number, line in enumerate(split_lines(decoded(data, where)), start=1):
        source, tab, rest = line.partition("\t")
        if line.strip() and not tab:
            raise ConfigError(f"{where}:{number} has no tab: give source TAB target")
        if tab:
            yield source, rest.partition("\t")[0]


SHOWN = 10  # terms listed in a report at most


@dataclass(frozen=True, eq=False)
class Assistance:
    """Help for a run: a memory before the search, and phrases during it."""

    glossary: Glossary | None = None
    forced: Sequence[str] = ()
    banned: Sequence[str] = ()
    memory: TranslationMemory | None = None

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a term whose translations are all banned."""
        terms = [] if self.glossary is None else list(self.glossary.terms.values())
        for variants in (*terms, *((phrase,) for phrase in self.forced)) if self.banned else ():
            if all(holds(variant, tuple(self.banned)) for variant in variants):
                raise ConfigError(f"{variants[0]!r} is required and banned; remove one of them")

    def refuse(self, search: str | None, name: str) -> None:
        """Raise ``ConfigError`` if the run's kind of search cannot force terms."""
        if (self.glossary is not None or self.forced) and search != "beam":
            raise ConfigError(f"{name}: {search} search cannot force terms; use decode.kind=beam")


@dataclass
class AssistanceCounts:
    """Counts of what assistance did."""

    exact: int = 0  # from the memory
    fuzzy: int = 0  # from the memory, by similarity
    least: float = 100.0  # lowest similarity of these in %
    terms: int = 0
    missed: int = 0
    names: list[str] = field(default_factory=list)  # of the first missed terms

    def add(self, other: Self) -> None:
        """Add the counts of another."""
        for name in ("exact", "fuzzy", "terms", "missed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least = min(self.least, other.least)
        self.names = list(dict.fromkeys([*self.names, *other.names]))[:SHOWN]


class AssistedRun:
    """A run whose translations are assisted; `report` summarises what was done."""

    def __init__(self, run: Translator, assistance: Assistance = Assistance()) -> None:
        self.run, self.assistance, self.counts = run, assistance, AssistanceCounts()

    def translate(
        self, lines: Sequence[str], **options: Unpack[TranslateOptions]
    ) -> list[TextAnswer]:
        """Translate as `foveate.run.Run.translate`; the run gets the lines not in the memory."""
        known = [self._known(line) for line in lines]
        unknown = [line for line, answer in zip(lines, known, strict=True) if answer is None]
        rest = iter(self._with_phrases(unknown, options))
        return [next(rest) if answer is None else answer for answer in known]

    def _with_phrases(self, lines: Sequence[str], options: TranslateOptions) -> list[TextAnswer]:
        """Return answers that contain the terms of their lines.

        The best output of the free search stays if it has them. Other lines, and those whose
        further outputs lack them, are searched once more, in a beam with terms.
        """
        banned = self.assistance.banned
        free: TranslateOptions = {**options, "banned": banned} if banned else options
        answers = self.run.translate(lines, **free)
        terms = [self._terms(line) for line in lines]
        short = [
            n
            for n, (answer, variants) in enumerate(zip(answers, terms, strict=True))
            if not all(holds(text, term) for text in answer.hypotheses for term in variants)
        ]
        if short:
            forced: TranslateOptions = {**options}
            forced["required"], forced["banned"] = [terms[n] for n in short], banned
            again = self.run.translate([lines[n] for n in short], **forced)
            for n, answer in zip(short, again, strict=True):
                texts = [without_appended(t, lines[n], terms[n]) for t in answer.hypotheses]
                answer = replace(answer, hypotheses=texts)
                answers[n] = _together(answers[n], answer, terms[n])
        for answer, variants in zip(answers, terms, strict=True):
            missed = [term[0] for term in variants if not holds(str(answer), term)]
            own = AssistanceCounts(terms=len(variants), missed=len(missed), names=missed)
            self.counts.add(own)
        return answers

    def _known(self, line: str) -> TextAnswer | None:
        match = None if self.assistance.memory is None else self.assistance.memory.find(line)
        if match is None:
            return None
        exact = int(match.score >= 100)
        self.counts.add(AssistanceCounts(exact=exact, fuzzy=1 - exact, least=match.score))
        return TextAnswer(line, [match.target], [0.0], explains=self.run.engine)

    def _terms(self, line: str) -> list[tuple[str, ...]]:
        if not line.strip():
            return []
        own = [] if self.assistance.glossary is None else self.assistance.glossary.variants(line)
        return [*own, *((phrase,) for phrase in self.assistance.forced)]

    def report(self) -> list[str]:
        """Return what the assistance did, in sentences."""
        sentences, counts = [], self.counts
        if self.assistance.memory is not None:
            sentences.append(f"{counts.exact:,} from the memory, {counts.fuzzy:,} more by likeness")
            if counts.fuzzy:
                sentences[-1] += f", {counts.least:.0f} % at least"
        if counts.terms:
            sentences.append(f"{counts.terms - counts.missed:,} of {counts.terms:,} terms present")
        if counts.missed:
            sentences[-1] += f"; missing: {', '.join(counts.names)}"
        return sentences


def _together(free: TextAnswer, forced: TextAnswer, terms: Sequence[tuple[str, ...]]) -> TextAnswer:
    """Return a free search's outputs that contain the terms, then more from a beam with terms."""
    first = [n for n, text in enumerate(free.hypotheses) if all(holds(text, t) for t in terms)]
    if 0 not in first:
        return forced
    texts = {free.hypotheses[n] for n in first}
    more = [n for n, text in enumerate(forced.hypotheses) if text not in texts]
    more = more[: len(free.hypotheses) - len(first)]

    def both(of_free: Sequence[T], of_forced: Sequence[T]) -> list[T]:
        return [of_free[n] for n in first if n < len(of_free)] + [
            of_forced[n] for n in more if n < len(of_forced)
        ]

    return replace(
        free,
        hypotheses=both(free.hypotheses, forced.hypotheses),
        scores=both(free.scores, forced.scores),
        outputs=both(free.outputs, forced.outputs),
    )
