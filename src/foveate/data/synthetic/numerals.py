"""Numbers in words, dates and hours in both languages, with the links between their words.

Lives here: cardinals from 1 to 999 and the calendar. Does not live here: the nouns they count.
"""

from __future__ import annotations

import datetime

from foveate.data.synthetic.surface import Link, Phrase, new_link

_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = [
    "-",
    "-",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]
_FRENCH = [
    "zéro",
    "un",
    "deux",
    "trois",
    "quatre",
    "cinq",
    "six",
    "sept",
    "huit",
    "neuf",
    "dix",
    "onze",
    "douze",
    "treize",
    "quatorze",
    "quinze",
    "seize",
    "dix-sept",
    "dix-huit",
    "dix-neuf",
]
_FRENCH_TENS = [
    "-",
    "-",
    "vingt",
    "trente",
    "quarante",
    "cinquante",
    "soixante",
    "-",
    "quatre-vingt",
    "-",
]


def english_number(number: int) -> str:
    """A number below 100 in English, as one word: 21 → twenty-one."""
    if number < 20:
        return _ENGLISH[number]
    tens, units = divmod(number, 10)
    return _ENGLISH_TENS[tens] + (f"-{_ENGLISH[units]}" if units else "")


def french_number(number: int, gender: int) -> str:
    """A number below 100 in French: 21 → vingt et un, vingt et une; 80 → quatre-vingts."""
    tens, units = divmod(number, 10)
    if tens in (1, 7, 9):  # 10 to 19, 70 to 79 and 90 to 99 count on from ten
        tens, units = tens - 1, units + 10
    words = _FRENCH[units] + ("e" if units == 1 and gender else "")
    if not tens:
        return words
    stem = _FRENCH_TENS[tens]
    if not units:
        return stem + ("s" if tens == 8 else "")
    if units in (1, 11) and tens != 8:
        return f"{stem} et {words}"
    return f"{stem}-{words}"


def cardinal(number: int, gender: int) -> Phrase:
    """A number from 1 to 999: 201 → two hundred and one, deux cent un."""
    hundreds, rest = divmod(number, 100)
    phrase = Phrase([], [])
    if hundreds:
        count, hundred = new_link(), new_link()
        phrase.english.extend([(_ENGLISH[hundreds], count), ("hundred", hundred)])
        if hundreds == 1:
            phrase.french.append(("cent", count + hundred))
        else:
            cent = "cent" if rest else "cents"
            phrase.french.extend([(_FRENCH[hundreds], count), (cent, hundred)])
    if rest:
        link = new_link()
        phrase.english.extend([("and", ())] if hundreds else [])
        phrase.english.append((english_number(rest), link))
        phrase.french.extend((word, link) for word in french_number(rest, gender).split())
    return phrase


def day(date: datetime.date, names: tuple[str, str], weekday: tuple[str, str] | None) -> Phrase:
    """A date: on 3 May 2019, le 3 mai 2019; the first day is 1er in French."""
    on: Link = new_link()
    ordinal = "1er" if date.day == 1 else str(date.day)
    pairs = [weekday] if weekday else []
    pairs += [(str(date.day), ordinal), names, (str(date.year), str(date.year))]
    links = [new_link() for _ in pairs]
    return Phrase(
        [("on", on), *((pair[0], link) for pair, link in zip(pairs, links, strict=True))],
        [("le", on), *((pair[1], link) for pair, link in zip(pairs, links, strict=True))],
    )


def hour(number: int) -> Phrase:
    """A full hour: at three o'clock, à trois heures; at one o'clock, à une heure."""
    at, count, clock = new_link(), new_link(), new_link()
    heures = "heure" if number == 1 else "heures"
    return Phrase(
        [("at", at), (_ENGLISH[number], count), ("o'clock", clock)],
        [("à", at), (french_number(number, 1), count), (heures, clock)],
    )
