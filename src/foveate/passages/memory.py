"""A translation memory: sentences that were translated before, found again exactly or nearly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rapidfuzz import fuzz, process

from foveate.config import ConfigError
from foveate.passages.catalogues import language, parse_xml, same
from foveate.passages.documents import decoded


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
