"""What helps a run translate: a memory before it, a glossary and banned phrases while it decodes,
unknown words copied after it.

Lives here: the aids, a run with them, and the count of what they did. Does not live here: which
aids a server has for which direction (`foveate.serve.helping`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foveate.answers import Translation
from foveate.config import ConfigError
from foveate.data.vocabulary import SPECIALS, UNK
from foveate.data.words import split_words
from foveate.decode.beam import Beam
from foveate.decode.wording import Wording
from foveate.passages.glossary import Glossary, holds
from foveate.passages.memory import Memory
from foveate.run import Run, RunConfig

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

    def translate(self, lines: Sequence[str], **choices: Any) -> list[Translation]:
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

    def _worded(self, lines: Sequence[str], choices: dict[str, Any]) -> list[Translation]:
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

    def _known(self, line: str) -> Translation | None:
        match = None if self.aids.memory is None else self.aids.memory.find(line)
        if match is None:
            return None
        if match.score >= 100:
            self.done.exact += 1
        else:
            self.done.fuzzy += 1
            self.done.least = min(self.done.least, match.score)
        return Translation(line, [match.target], [0.0], run=self.run)

    def _terms(self, line: str) -> list[tuple[str, ...]]:
        if not line.strip():
            return []
        own = [] if self.aids.glossary is None else self.aids.glossary.wanted(line)
        return [*own, *((phrase,) for phrase in self.aids.forced)]

    def _check(self, terms: Sequence[tuple[str, ...]], answer: Translation) -> None:
        missed = [term[0] for term in terms if not holds(str(answer), term)]
        self.done.wanted += len(terms)
        self.done.missed += len(missed)
        self.done.names = list(dict.fromkeys([*self.done.names, *missed]))[:NAMED]

    def _copied_into(self, answer: Translation) -> Translation:
        """The answer with each unknown word's counterpart of the source (Luong et al., 2015)."""
        if not answer.found or UNK not in answer.found[0].ids:
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


def _together(
    free: Translation, held: Translation, terms: Sequence[tuple[str, ...]]
) -> Translation:
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

    return replace(free, hypotheses=both("hypotheses"), scores=both("scores"), found=both("found"))


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
