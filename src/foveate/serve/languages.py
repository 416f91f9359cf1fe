"""Languages: their codes and names, and which of them a run translates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveate.config import ConfigError
from foveate.run import RunConfig

_NAMES = """
af Afrikaans, am Amharic, an Aragonese, ar Arabic, as Assamese, az Azerbaijani, be Belarusian,
bg Bulgarian, bn Bengali, br Breton, bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish,
de German, dz Dzongkha, el Greek, en English, eo Esperanto, es Spanish, et Estonian, eu Basque,
fa Persian, fi Finnish, fo Faroese, fr French, ga Irish, gl Galician, gu Gujarati, ha Hausa,
he Hebrew, hi Hindi, hr Croatian, ht Haitian Creole, hu Hungarian, hy Armenian, id Indonesian,
ig Igbo, is Icelandic, it Italian, ja Japanese, jv Javanese, ka Georgian, kk Kazakh, km Khmer,
kn Kannada, ko Korean, ku Kurdish, ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian,
lv Latvian, mg Malagasy, mi Maori, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay,
mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali, nl Dutch, nn Norwegian Nynorsk,
no Norwegian, oc Occitan, or Odia, pa Punjabi, pl Polish, ps Pashto, pt Portuguese, qu Quechua,
ro Romanian, ru Russian, rw Kinyarwanda, se Northern Sami, si Sinhala, sk Slovak, sl Slovenian,
sn Shona, so Somali, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, te Telugu, th Thai,
tl Tagalog, tn Tswana, tr Turkish, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese,
vo Volapük, wa Walloon, xh Xhosa, yi Yiddish, yo Yoruba, zh Chinese, zu Zulu
"""
NAMES = {part.split()[0]: part.split(maxsplit=1)[1] for part in _NAMES.split(",")}
CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
_PACKED = re.compile(r"\.(gz|bz2|xz|zst)$")
_BETWEEN = re.compile(r"(?<![a-z])([a-z]{2})-(?=([a-z]{2})(?![a-z]))")


@dataclass(frozen=True)
class Direction:
    """From one language to another; ``to`` is what a run of several languages is told."""

    source: str
    target: str
    to: str | None = None


def name_of(code: str) -> str:
    """The English name of a language; its code where that is not known."""
    return NAMES.get(code) or NAMES.get(code[:2], code)


def directions(config: RunConfig, folder: Path, said: str | None = None) -> list[Direction]:
    """What a run translates, by the endings of its files, its tags, or names such as ``en-fr``.

    ``said`` is "en:fr" where the user names it; for a run with tags "en" is enough. Raises
    ``ConfigError`` where the run does not translate, or nobody can tell from what to what.
    """
    if not hasattr(config.task, "parts"):
        raise ConfigError(f"{folder} is a run of the task {config.task.kind}: it cannot translate")
    source, _, target = (said or "").partition(":")
    if said and not all(CODE.fullmatch(one) for one in (source, target or source)):
        raise ConfigError(f"--as {said}: name two languages by their codes, such as en:fr")
    found: dict[Direction, None] = {}
    for part in config.task.parts():
        tag = part.tag[2:-1] if part.tag else None
        guessed = _guessed(part, folder)
        pair = source or guessed[0], tag or target or guessed[1]
        if pair[0] is None or pair[1] is None:
            raise ConfigError(
                f"{folder}: from which language to which? {part.source} does not tell; "
                f"say --as {folder.name}=en:fr"
            )
        found[Direction(pair[0], pair[1], tag)] = None
    return list(found)


def _guessed(part: Any, folder: Path) -> tuple[str | None, str | None]:
    """The endings of the files of both sides; else two codes with a hyphen in a name."""
    ends = [_ending(name) for name in (part.source, part.target)]
    if all(ends):
        return ends[0], ends[1]
    for one in _names(part, folder):
        for source, target in reversed(_BETWEEN.findall(one)):
            if source in NAMES and target in NAMES:
                return source, target
    return ends[0], ends[1]


def _names(part: Any, folder: Path) -> Iterator[str]:
    yield from reversed(Path(part.source).parts)
    yield folder.name


def _ending(name: str | None) -> str | None:
    code = _PACKED.sub("", name or "").rpartition(".")[2]
    return code if code in NAMES else None
