"""What helps a run translate: a memory before it, a glossary and banned phrases while it decodes,
unknown words copied after it.
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
from foveate.decode.wording import Wording
from foveate.passages.glossary import Glossary, holds
from foveate.passages.memory import Memory
from foveate.run import Run


@dataclass
class Aided:
    """A run with its aids; it translates as a run does, and can say at the end what they did."""

    run: Run
    glossary: Glossary | None = None
    forced: Sequence[str] = ()
    banned: Sequence[str] = ()
    memory: Memory | None = None
    copies_unknown: bool = False
    _exact: int = field(default=0, init=False)
    _fuzzy: list[float] = field(default_factory=list, init=False)
    _wanted: int = field(default=0, init=False)
    _missed: list[str] = field(default_factory=list, init=False)
    _copied: int = field(default=0, init=False)

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
            found[n] = self._copied_into(answer) if self.copies_unknown else answer
        return [answer for answer in found if answer is not None]

    def _worded(self, lines: Sequence[str], choices: dict[str, Any]) -> list[Translation]:
        """The answers that hold the terms of their lines.

        Where the free search's best output holds them it is the best of those that do, and stays;
        only the other lines are searched once more, in a beam with terms.
        """
        banned: dict[str, Any] = {"wording": Wording(banned=self.banned)} if self.banned else {}
        answers = self.run.translate(lines, **(choices | banned))
        wanted = [self._terms(line) for line in lines]
        short = [
            n
            for n, (answer, terms) in enumerate(zip(answers, wanted, strict=True))
            if not all(holds(str(answer), term) for term in terms)
        ]
        if short:
            wording = Wording([wanted[n] for n in short], self.banned)
            prefix = choices.get("prefix")
            if prefix is not None and not isinstance(prefix, str):
                choices = choices | {"prefix": [prefix[n] for n in short]}
            again = self.run.translate([lines[n] for n in short], **choices, wording=wording)
            for n, answer in zip(short, again, strict=True):
                answers[n] = answer
        for answer, terms in zip(answers, wanted, strict=True):
            self._check(terms, answer)
        return answers

    def _known(self, line: str) -> Translation | None:
        match = None if self.memory is None else self.memory.find(line)
        if match is None:
            return None
        if match.score >= 100:
            self._exact += 1
        else:
            self._fuzzy.append(match.score)
        return Translation(line, [match.target], [0.0], run=self.run)

    def _terms(self, line: str) -> list[tuple[str, ...]]:
        if not line.strip():
            return []
        own = [] if self.glossary is None else self.glossary.wanted(line)
        return [*own, *((phrase,) for phrase in self.forced)]

    def _check(self, terms: Sequence[tuple[str, ...]], answer: Translation) -> None:
        self._wanted += len(terms)
        self._missed += [term[0] for term in terms if not holds(str(answer), term)]

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
            self._copied += 1
            a, b = spans[words[0]]
            return source[a:b]

        mended = re.sub(re.escape(SPECIALS[UNK]), copied, text)
        return replace(answer, hypotheses=[mended, *answer.hypotheses[1:]])

    def report(self) -> list[str]:
        """What the aids did, in sentences."""
        said = []
        if self.memory is not None:
            said.append(f"{self._exact:,} from the memory, {len(self._fuzzy):,} more by likeness")
            if self._fuzzy:
                said[-1] += f", {min(self._fuzzy):.0f} % at least"
        if self._wanted:
            said.append(f"{self._wanted - len(self._missed):,} of {self._wanted:,} terms present")
        if self._missed:
            said[-1] += f"; missing: {', '.join(dict.fromkeys(self._missed[:10]))}"
        if self._copied:
            said.append(f"{self._copied:,} unknown words copied")
        return said


def read_aids(
    glossary: Path | None, memory: Path | None, to: str | None, least: float
) -> tuple[Glossary | None, Memory | None]:
    """The glossary and the memory of files. Raises ``ConfigError`` naming a line that is wrong."""
    terms = None if glossary is None else Glossary.read(glossary)
    return terms, None if memory is None else Memory.read(memory, to, least)


def refuse_processes(aids: Sequence[object], silence: Sequence[str] | None) -> None:
    """Raise ``ConfigError`` where several processes, or those of a folder, are to do what one can
    do.
    """
    if silence:
        raise ConfigError("--silence works in this process alone: leave out --processes, folders")
    if any(aids):
        raise ConfigError("glossary, memory, phrases work in one process: no --processes, folders")
