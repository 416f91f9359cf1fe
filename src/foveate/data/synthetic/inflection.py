"""The regular inflection of both languages: plurals, feminines, tenses.

Lives here: rules over the spelling of one word. Does not live here: what is irregular, which
lexicon.toml lists.
"""

from __future__ import annotations

from collections.abc import Mapping

_FEMININE = {"eux": "euse", "er": "ère", "if": "ive", "ïf": "ïve", "en": "enne", "el": "elle"}
_VOWELS = "aeiou"


def plural(word: str) -> str:
    """The regular French plural of a noun, an adjective or a participle."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def feminine(word: str) -> str:
    """The regular French feminine of an adjective: heureux → heureuse, premier → première."""
    if word.endswith("e"):
        return word
    for ending, changed in _FEMININE.items():
        if word.endswith(ending):
            return word.removesuffix(ending) + changed
    return word + "e"


def english_s(word: str) -> str:
    """The regular English plural of a noun, or third person of a verb."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")


def english_past(word: str) -> str:
    """The regular English past of a verb."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def conjugate(infinitive: str, irregular: Mapping[str, str]) -> tuple[list[str], str, str]:
    """Present, stem of the future and past participle of a French verb."""
    if infinitive in irregular:
        present, future, participle = irregular[infinitive].split(" | ")
        return present.split(), future, participle
    stem, ending = infinitive[:-2], infinitive[-2:]
    endings = {"er": "e e ons ez ent", "ir": "is it issons issez issent", "re": "s - ons ez ent"}
    present_forms = [stem + e.strip("-") for e in endings[ending].split()]
    if infinitive.endswith("ger"):
        present_forms[2] = stem + "eons"
    if infinitive.endswith("cer"):
        present_forms[2] = stem[:-1] + "çons"
    return present_forms, infinitive.rstrip("e"), stem + {"er": "é", "ir": "i", "re": "u"}[ending]
