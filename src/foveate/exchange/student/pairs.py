"""The pairs that a student learns from: which are kept and why, noise, back-translations."""

import math
import random
import statistics
import unicodedata
from collections.abc import Sequence

from foveate.documents.languages import detected
from foveate.exchange.student.teachers import Replies

Pair = tuple[str, str]
ACCEPTED = "kept"
BACK = "<bt>"  # before a source that a reverse teacher wrote (Caswell et al., 2019)
LONG, SURE, UNLIKELY = 30, 95.0, 1.0  # characters; per cent of another and of the right language
SMOOTHING, TIMES = 10, 3.0  # characters added to both lengths; how far a ratio may be off


def decisions(
    sources: Sequence[str], replies: Replies, language: str, least_score: float
) -> list[str]:
    """Return for each source `ACCEPTED`, or why it makes no pair.

    With r = (|y| + 10) / (|x| + 10) in characters, a length is wrong if r is more than three times,
    or less than a third of, its median. A language is wrong if another one is sure.
    """
    texts = {x: replies[x].text for x in sources if x in replies}
    middle = statistics.median([_ratio(x, y) for x, y in texts.items() if y] or [1.0])
    seen, result = set[str](), []
    for source in sources:
        reply = replies.get(source)
        if not source.strip():
            why = "empty source"
        elif source in seen:
            why = "duplicate"
        elif reply is None or reply.text is None:
            why = "refused"
        elif not reply.text.strip():
            why = "empty answer"
        elif reply.text.casefold() == source.casefold() and " " in source.strip():
            why = "copy"
        elif abs(math.log(_ratio(source, reply.text) / middle)) > math.log(TIMES):
            why = "length"
        elif reply.score is not None and reply.score < least_score:
            why = "score"
        elif is_other_language(reply.text, language):
            why = "language"
        else:
            why = ACCEPTED
        seen.add(source)
        result.append(why)
    return result


def _ratio(source: str, target: str) -> float:
    return (len(target) + SMOOTHING) / (len(source) + SMOOTHING)


def is_other_language(text: str, code: str) -> bool:
    """Return whether a long text is surely in another language; False if the code is unknown."""
    ranked = detected(text) if len(text) >= LONG else []
    right = next((each.confidence for each in ranked if each.language == code), SURE)
    return bool(ranked) and right < UNLIKELY and ranked[0].confidence > SURE


def upper_case(pair: Pair, draw: random.Random) -> Pair:
    """Both sides in capital letters."""
    return pair[0].upper(), pair[1].upper()


def without_stop(pair: Pair, draw: random.Random) -> Pair:
    """Both sides without their last full stop."""
    return pair[0].rstrip().removesuffix("."), pair[1].rstrip().removesuffix(".")


def without_accents(pair: Pair, draw: random.Random) -> Pair:
    """A source without combining marks."""
    parts = unicodedata.normalize("NFD", pair[0])
    return "".join(c for c in parts if unicodedata.category(c) != "Mn"), pair[1]


def mistyped(pair: Pair, draw: random.Random) -> Pair:
    """A source with a letter left out, doubled, or swapped with the next, in one of ten words."""
    words = pair[0].split(" ")
    for n in draw.sample(range(len(words)), math.ceil(len(words) / 10)):
        word, i = words[n], draw.randrange(max(1, len(words[n]) - 1))
        edits = word[:i] + word[i + 1 :], word[: i + 1] + word[i:]
        swapped = word[:i] + word[i : i + 2][::-1] + word[i + 2 :]
        words[n] = draw.choice([*edits, swapped]) if len(word) > 3 else word
    return " ".join(words), pair[1]


NOISES = upper_case, without_stop, without_accents, mistyped


def noisy(pairs: Sequence[Pair], share: float) -> list[Pair]:
    """Return copies of a share of the pairs, each with one kind of noise that changes it."""
    draw = random.Random(1)
    chosen = draw.sample(pairs, round(share * len(pairs)))
    copies = [(pair, draw.choice(NOISES)(pair, draw)) for pair in chosen]
    return [copy for pair, copy in copies if copy != pair]
