"""Languages: codes and names, the directions that a run translates, detection from text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foveate.data.words import identifier
from foveate.engine.packed import NAME, header_of, packed_file
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from foveate.engine.packed import PackedCorpus
    from foveate.tasks.text import CorpusFiles

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
MOST_CHARACTERS = 4096  # of a text that are examined


@dataclass(frozen=True)
class Direction:
    """A source and a target language; ``to`` is the target's name in a multilingual run."""

    source: str
    target: str
    to: str | None = None

    @property
    def code(self) -> str:
        """The form used on the command line: ``en:fr``."""
        return f"{self.source}:{self.target}"


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if the name is unknown."""
    return NAMES.get(code) or NAMES.get(code[:2], code)


def corpora_of(folder: Path) -> Sequence[PackedCorpus | CorpusFiles]:
    """Return the corpora of a run or a packed file, without loading it.

    Raises ``ConfigError`` if it does not translate.
    """
    file = folder if folder.is_file() else packed_file(folder)[0]
    if file is None:
        from foveate.run import read_run
        from foveate.tasks.text import TextToText

        task = read_run(folder).task
        if not isinstance(task, TextToText.Config):
            raise ConfigError(f"{folder} is a run of the task {task.kind}: it cannot translate")
        return task.parts()
    header = header_of(file)
    if not header.corpora:
        raise ConfigError(f"{folder} is a model for the task {header.task} and cannot translate")
    return header.corpora


def directions(
    corpora: Sequence[PackedCorpus | CorpusFiles], folder: Path, named: str | None = None
) -> list[Direction]:
    """Return the directions of a run, by file suffixes, tags, or names such as ``en-fr``.

    ``named`` is "en:fr" if the user gives it; for a run with tags "en" is enough, and for a
    published one "en:fr:fra_Latn" names the target, "de:fr:deu_Latn:fra_Latn" the source too.
    Several are separated by commas. Raises ``ConfigError`` if the languages are unknown.
    """
    first, *others = (named or "").split(",")
    if others:
        return [d for name in (first, *others) for d in directions(corpora, folder, name)]
    source, _, rest = first.partition(":")
    target, _, to = rest.partition(":")
    if named and not all(CODE.fullmatch(code) for code in (source, target or source)):
        raise ConfigError(f"--as {named}: expected two language codes, such as en:fr")
    result: dict[Direction, None] = {}
    for part in corpora:
        tag = to or (part.tag[2:-1] if part.tag else None)
        guess = _guess(part, folder)
        pair = source or guess[0], (target if to else tag or target) or guess[1]
        if pair[0] is None or pair[1] is None:
            raise ConfigError(
                f"{folder}: {part.source} does not show the languages; "
                f"set them with --as {folder.name}=en:fr"
            )
        result[Direction(pair[0], pair[1], tag)] = None
    return list(result)


def _guess(part: PackedCorpus | CorpusFiles, folder: Path) -> tuple[str | None, str | None]:
    """Return the suffixes of the files of both sides, else two codes with a hyphen in a name."""
    endings = (_PACKED.sub("", f or "").rpartition(".")[2] for f in (part.source, part.target))
    source, target = (code if code in NAMES else None for code in endings)
    if source and target:
        return source, target
    own = folder.parent.name if folder.name == NAME else folder.name
    for name in (*reversed(Path(part.source).parts), own):
        for pair in reversed(_BETWEEN.findall(name)):
            if pair[0] in NAMES and pair[1] in NAMES:
                return pair[0], pair[1]
    return source, target


class Detected(NamedTuple):
    """A language and its probability in per cent, as clients of LibreTranslate expect it."""

    language: str
    confidence: float


def detected(text: str) -> list[Detected]:
    """Return all languages, the most probable first; none if the text has no letter."""
    if not any(character.isalpha() for character in text[:MOST_CHARACTERS]):
        return []
    ranked = identifier().rank(text[:MOST_CHARACTERS])
    return [Detected(str(code), round(100 * float(p), 2)) for code, p in ranked]


def most_probable(text: str, among: Sequence[str]) -> Detected:
    """Return the most probable of some languages, or the first if the text has no letter."""
    known = (language for language in detected(text) if language.language in among)
    return next(known, Detected(among[0], 0.0))
