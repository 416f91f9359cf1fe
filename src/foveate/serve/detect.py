"""Which language a text is in: the Naive Bayes classifier of py3langid, offline.

log p(l | x) ∝ log p(l) + Σ_n count(n, x) log p(n | l) over the n-grams of bytes n that tell
languages apart (Lui and Baldwin, 2012).
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

MOST = 4096  # characters that are looked at; more change nothing


class Detected(NamedTuple):
    """A language and its probability in per cent, as clients of LibreTranslate expect it."""

    language: str
    confidence: float

    def tree(self) -> dict[str, Any]:
        """As it is sent."""
        return {"confidence": self.confidence, "language": self.language}


class Detector:
    """Tells languages by text; the classifier is read at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identifier: Any = None

    def rank(self, text: str) -> list[Detected]:
        """All languages, the most probable first; none where the text has no letter."""
        if not any(character.isalpha() for character in text[:MOST]):
            return []
        with self._lock:
            if self._identifier is None:
                langid = importlib.import_module("py3langid.langid")  # it has no types

                make = langid.LanguageIdentifier.from_model_file
                self._identifier = make(langid.MODEL_FILE, norm_probs=True)
            ranked = self._identifier.rank(text[:MOST])
        return [Detected(str(code), round(100 * float(p), 2)) for code, p in ranked]

    def best(self, text: str, among: Sequence[str]) -> Detected:
        """The most probable of some languages; the first of them where nothing tells."""
        found = {one.language: one for one in self.rank(text)}
        known = [found[code] for code in among if code in found]
        return max(known, key=lambda one: one.confidence, default=Detected(among[0], 0.0))
