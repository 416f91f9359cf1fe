"""Differences of alternative translations from the first: probability, words, form of address."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import chain
from math import exp
from typing import Any, Literal

Formality = Literal["", "informal", "formal"]

# Words of informal and of formal address; capitals count, but not where a sentence begins.
ADDRESS = {
    "de": ("du dich dir dein deine deinen deiner", "Sie Ihnen Ihr Ihre Ihrem Ihren Ihrer"),
    "es": ("tú te ti tu tus contigo", "usted ustedes"),
    "fr": ("tu te toi t' ton ta tes", "vous votre vos"),
    "id": ("kamu kau engkau", "anda"),
    "it": ("tu te ti tuo tua tuoi tue", "Lei Suo Sua Suoi Sue"),
    "nl": ("je jij jou jouw", "u uw"),
    "pt": ("tu te ti teu tua teus tuas contigo", "senhor senhora senhores senhoras"),
    "ru": ("ты тебя тебе тобой твой твоя твоё твои", "вы вас вам вами ваш ваша ваше ваши"),
    "tr": ("sen seni sana senin sende senden", "siz sizi size sizin sizde sizden"),
}
FORMALITIES: tuple[Formality, ...] = ("informal", "formal")


def formality(text: str, language: str | None) -> Formality:
    """Return "formal" or "informal" by the words of address; "" for none, or for both."""
    words = re.findall(r"[^\W\d_]+'?|[.!?…:]", text.replace("’", "'"))
    inside = {b for a, b in zip([".", *words], words, strict=False) if a.isalpha() or a[-1] == "'"}
    present = inside | {word.lower() for word in words}
    lists = ADDRESS.get(re.split("[-_]", language or "")[0].lower(), ("", ""))
    named = [name for name, own in zip(FORMALITIES, lists, strict=True) if present & {*own.split()}]
    return named[0] if len(named) == 1 else ""


def changes(first: str, other: str) -> list[tuple[str, str]]:
    """Return the words of one text that another does not have, each with those in their place."""
    a, b = first.split(), other.split()
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [(" ".join(a[i:j]), " ".join(b[k:n])) for tag, i, j, k, n in codes if tag != "equal"]


def differences(
    versions: Sequence[Sequence[str]], log_p: Sequence[float], language: str | None
) -> list[dict[str, Any]]:
    """Return how each version but the first differs; versions are translations of sentences.

    Its ``share`` is its probability divided by that of the first; its ``changes`` are words of the
    first, and those in their place.
    """
    return [
        {
            "logProbability": own,
            "share": exp(min(700, own - log_p[0])),
            "changes": list(chain.from_iterable(map(changes, versions[0], version))),
            "formality": formality(" ".join(version), language),
        }
        for version, own in zip(versions[1:], log_p[1:], strict=True)
    ]
