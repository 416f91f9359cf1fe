"""What is counted in each pair of texts, so that what is odd in all of them can be told.

Lives here: a few numbers for each pair, in spans that several processes look through. Does not live
here: what the numbers of all pairs together say (`report`).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.columns import Texts
from foveate.data.prepared import PreparedCorpus
from foveate.data.progress import Meter
from foveate.data.text import Corpus
from foveate.data.workers import Arrays, Work, in_order, spans_of

BLOCK = 500  # pairs that are tested together for a shift of one side
SHIFTS = (0, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5)

# UTF-8 that was read as Latin-1 or Windows-1252 and written again, as in "Ã©" for "é".
_AFTER = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MOJIBAKE = re.compile(f"[ÂÃ][{_AFTER}]|â[{_AFTER}]{{2}}|ï»¿|ðŸ|(?:[ÐÑ][{_AFTER}]){{2}}")
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060\ufeff]")

UNSPACED = re.compile(  # Thai to Khmer, Chinese and Japanese
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)

# What may be true of a pair, by its name in reports; its place here is its bit in `Traits.odd`.
SAME = "both sides the same, or both empty"
_TESTS: dict[str, Callable[[str, str], object]] = {
    "empty side": lambda s, t: not s.strip() or not t.strip(),
    SAME: lambda s, t: s.strip() == t.strip(),
    "replacement character U+FFFD": lambda s, t: "\ufffd" in s or "\ufffd" in t,
    "wrong charset, such as Ã© for é": lambda s, t: _MOJIBAKE.search(s) or _MOJIBAKE.search(t),
    "control or invisible character": lambda s, t: CONTROL.search(s) or CONTROL.search(t),
    "not in Unicode form NFC": lambda s, t: not (_composed(s) and _composed(t)),
}


@dataclass(frozen=True)
class Traits:
    """Numbers of N pairs: ``words`` and ``characters`` (N, 2) of source and target; ``keys``
    (N, 2), hashes of the source and of the pair; ``odd`` (N,), a bit for each test that holds;
    ``agreement`` (blocks, shifts) of the sides of each `BLOCK` pairs when one is moved.
    """

    words: NDArray[np.int32]
    characters: NDArray[np.int32]
    keys: NDArray[np.uint64]
    odd: NDArray[np.uint8]
    agreement: NDArray[np.float64]

    def test(self, name: str) -> NDArray[np.bool_]:
        """Of which pairs a test holds."""
        return (self.odd >> list(_TESTS).index(name) & 1).astype(bool)


def traits_of(corpus: Corpus, name: str = "") -> Traits:
    """Look through a corpus, a prepared one with all processors."""
    spans = spans_of(len(corpus)) or [(0, 0)]
    with Meter(f"looking through {name}", len(corpus), "pairs") as meter:
        if isinstance(corpus, PreparedCorpus):
            found = in_order(_looker, {"folder": str(corpus.folder)}, spans)
        else:
            sides = corpus.sources, corpus.targets
            found = (_looked(sides[0][a:b], sides[1][a:b]) for a, b in spans)
        parts = []
        for (first, stop), arrays in zip(spans, found, strict=True):
            parts.append(arrays)
            meter.add(stop - first)
    return Traits(**{key: np.concatenate([part[key] for part in parts]) for key in parts[0]})


def _looker(values: Mapping[str, Any]) -> Work:
    source, target = (Texts.open(Path(values["folder"]), side) for side in ("source", "target"))
    return lambda first, stop: _looked(source[first:stop], target[first:stop])


def _looked(sources: Sequence[str], targets: Sequence[str]) -> Arrays:
    """The traits of some pairs; all spans but the last are of whole blocks."""
    size, pairs = len(sources), list(zip(sources, targets, strict=True))
    tests = list(enumerate(_TESTS.values()))
    odd = (sum(1 << bit for bit, test in tests if test(*pair)) for pair in pairs)
    return {
        "words": _sides(count_words, sources, targets),
        "characters": _sides(len, sources, targets),
        "keys": np.array(
            [(_key(s), _key(f"{len(s)} {s}{t}")) for s, t in pairs], np.uint64
        ).reshape(-1, 2),
        "odd": np.fromiter(odd, np.uint8, size),
        "agreement": _agreements(_features(sources), _features(targets)),
    }


def count_words(text: str) -> int:
    """The words between blanks; of scripts without blanks each character is one."""
    if text.isascii() or not UNSPACED.search(text):
        return len(text.split())
    return len(UNSPACED.findall(text)) + len(UNSPACED.sub(" ", text).split())


def _sides(
    size: Callable[[str], int], sources: Sequence[str], targets: Sequence[str]
) -> NDArray[np.int32]:
    both = [np.fromiter(map(size, side), np.int32, len(side)) for side in (sources, targets)]
    return np.stack(both, axis=1)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _composed(text: str) -> bool:
    return unicodedata.is_normalized("NFC", text)


def _agreements(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """How well the sides of each block agree, moved by each of `SHIFTS`."""
    blocks = [slice(at, at + BLOCK) for at in range(0, len(source) - BLOCK // 2 + 1, BLOCK)]
    scores = [[_agreement(source[b], target[b], shift) for shift in SHIFTS] for b in blocks]
    return np.array(scores, np.float64).reshape(-1, len(SHIFTS))


def _features(sentences: Sequence[str]) -> NDArray[np.float64]:
    """Root of the length, digits, question and exclamation marks, commas: (N, 4)."""
    counts = [
        (len(t) ** 0.5, sum(map(t.count, "0123456789")), t.count("?") + t.count("!"), t.count(","))
        for t in sentences
    ]
    features = np.array(counts, np.float64).reshape(-1, 4)
    if not len(features):
        return features
    # One huge line would decide every correlation: it counts like a line of many times the usual.
    return np.minimum(features, 3 * np.maximum(np.percentile(features, 95, axis=0), 1))


def _agreement(source: NDArray[np.float64], target: NDArray[np.float64], shift: int) -> float:
    """Mean of artanh r (Fisher's z) over features; row i beside row i + shift, (N, F) each."""
    size = len(source) - abs(shift)
    a, b = source[max(0, -shift) :][:size], target[max(0, shift) :][:size]
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norm = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    varies = norm > 1e-9
    r = (a * b).sum(axis=0)[varies] / norm[varies]
    return float(np.arctanh(np.clip(r, -0.999, 0.999)).mean()) if len(r) else 0.0
