"""Which language a side of a corpus is in, by its script and its most common words.

For a warning that files or columns are swapped, not for sentences by themselves: `language_of`
reads many lines. Does not live here: the classifier that the service asks about single texts
(`foveate.serve.detect`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

ENOUGH = 8.0  # common words, or characters of a script, from which a language is named
CLEARLY = 1.5  # times as many as of the next language

COMMON = {
    language: frozenset(words.split())
    for language, words in {
        "cs": "a se na je že to v do s jsem jsou ale pro který si jako za nebo muž žena dva",
        "da": "og det at jeg er ikke til af på med der som har men til en hun blev efter",
        "de": "der die das und ist nicht ein eine mit auf sich dem den im zu ich von sie wird mann",
        "en": "the of and to in is that with for was on it a are you his from this at man i",
        "es": "el la los las de que y un una en es con por para se está del su no lo hombre",
        "fi": "ja on ei se että oli hän mutta ovat kun myös tai kuin joka sen nyt mitä minä",
        "fr": "le la les des et un une est dans que pour du qui sur pas avec ce il je homme vous",
        "hu": "a az és nem hogy egy is ez volt de meg csak mint van már ki el még ha azt",
        "it": "il di che e la un una è per non con sono del gli della nel si lo uomo più",
        "nl": "de het een van en is dat niet in op te zijn met voor hij wij aan die ook man",
        "pl": "i w na się nie to jest do z że jak ale po co tak za od czy jego mężczyzna",
        "pt": "o a os as de que e um uma em é não com para se do da por no na homem mais",
        "ro": "și de la în cu un o nu este pe care sa din pentru mai că ce sunt dar fi",
        "sv": "och det att i en jag är inte som på för med den har av ett till om man kvinna",
        "tr": "ve bir bu da de için ile çok ama o ne var daha gibi olarak olan ben sen değil",
    }.items()
}
SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
LIKE = dict.fromkeys(("uk", "be", "bg", "mk", "sr", "kk"), "ru")  # not told apart: one script
LIKE |= {"fa": "ar", "ur": "ar", "mr": "hi", "ne": "hi", "no": "da", "nb": "da"}
KNOWN = {*COMMON, *SCRIPTS, *LIKE}
_SHARED = Counter(word for words in COMMON.values() for word in words)
_WORD = re.compile(r"[^\W\d_]+")


def _evidence(texts: Iterable[str]) -> dict[str, float]:
    """Common words of each language, one that n languages share counting 1/n, and characters."""
    found = defaultdict[str, float](float)
    for text in texts:
        if not text.isascii():
            for language, script in SCRIPTS.items():
                found[language] += len(script.findall(text)) / 3
        for word in _WORD.findall(text[:2000].lower()):
            if word in _SHARED:
                for language, words in COMMON.items():
                    found[language] += (word in words) / _SHARED[word]
    if found["ja"] > found["zh"] / 20:  # Japanese has Chinese characters too
        found["ja"], found["zh"] = found["ja"] + found["zh"], 0.0
    return found


def language_of(texts: Iterable[str]) -> str | None:
    """The code of the language of many lines, or None where it cannot be told."""
    evidence = _evidence(texts)
    first = max(evidence, key=evidence.__getitem__)
    most, next_ = sorted(evidence.values())[:-3:-1]
    return first if most >= ENOUGH and most >= CLEARLY * next_ else None


def reads_as(text: str, language: str, other: str) -> bool:
    """Whether a line is rather in one language than in another, by at least two common words."""
    found = _evidence([text])
    return found[language] >= 1.5 and found[other] == 0


def declared(name: str) -> list[str]:
    """The codes of languages in the name of a file or a column, such as ``train.en.gz``."""
    parts = re.split(r"[._-]", Path(name).name.lower())
    return [LIKE.get(part, part) for part in parts if part in KNOWN]
