"""A glossary: terms of the source, and what must stand in the target wherever one occurs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from foveate.config import ConfigError
from foveate.passages.documents import decoded


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
