"""From the texts of a request to sentences in queues, and from their answers to texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from foveate.answers import Translation
from foveate.documents.html import html_passage
from foveate.documents.translate import Passage, text_passage
from foveate.serve.asking import StreamBody, TranslateBody
from foveate.serve.detect import Detected
from foveate.serve.errors import Refused
from foveate.serve.fleet import Place
from foveate.serve.guard import Record
from foveate.serve.kinds import Translate
from foveate.serve.languages import Direction
from foveate.serve.service import Futures, Service

AUTO = "auto"
SHORT = 2_000  # characters that the loop may cut and join by itself


@dataclass(frozen=True)
class Visitor:
    """Who asks, and where it is written down."""

    client: str
    record: Record


@dataclass(frozen=True)
class Way:
    """How a text becomes another: by a run, or as it is where ``place`` is None."""

    place: Place | None
    direction: Direction
    detected: Detected | None = None


@dataclass(frozen=True)
class Underway:
    """A text whose sentences wait in a queue; none of them where it stays as it is."""

    way: Way
    passage: Passage
    futures: Futures


@dataclass(frozen=True)
class Joined:
    """What became of a text: its versions, the best first; how many tokens had to be left out."""

    versions: list[str]
    cut: int = 0


async def translate(here: Service, ask: TranslateBody, who: Visitor) -> dict[str, Any]:
    """The answer to /translate: as many translations as texts, in their order."""
    texts = [ask.q] if isinstance(ask.q, str) else ask.q
    if ask.alternatives > here.limits.alternatives:
        raise Refused(400, f"alternatives: at most {here.limits.alternatives}")
    check_size(here, texts, who)
    ways = await find_ways(here, ask.source, ask.target, texts)
    passages = [await cut(here, text, ask.format) for text in texts]
    underway = begin(here, passages, ways, who, 1 + ask.alternatives)
    found = await joined(here, underway, who)
    versions = [
        [text] if way.place is None else one.versions
        for text, way, one in zip(texts, ways, found, strict=True)
    ]
    tree: dict[str, Any] = {"translatedText": [one[0] for one in versions]}
    if ask.alternatives:
        tree["alternatives"] = [one[1:] for one in versions]
    if ask.source == AUTO:
        tree["detectedLanguage"] = [way.detected.tree() for way in ways if way.detected]
    if isinstance(ask.q, str):
        tree = {name: values[0] for name, values in tree.items()}
    if left_out := sum(one.cut for one in found):
        tree["cut"] = left_out
    return tree


async def stream(here: Service, ask: StreamBody, who: Visitor) -> Underway:
    """A text whose sentences wait; what is wrong with it is told before anything is sent."""
    check_size(here, [ask.q], who)
    ways = await find_ways(here, ask.source, ask.target, [ask.q])
    return begin(here, [await cut(here, ask.q, ask.format)], ways, who)[0]


async def sentences(one: Underway, until: float) -> AsyncIterator[dict[str, Any]]:
    """Each sentence and its translation in their order, as soon as it is there.

    Raises ``TimeoutError`` where one is not there ``until`` a time of the loop.
    """
    for number in range(len(one.futures)):
        async with asyncio.timeout_at(until):
            answer: Translation = await one.futures.one(number)
        tree = {"index": number, "count": len(one.futures), "source": answer.source}
        yield tree | {"translatedText": answer.hypotheses[0]}


# ------------------------------------------------------------------------------ parts


def check_size(
    here: Service,
    texts: Sequence[str],
    who: Visitor,
    characters: int | None = None,
    items: int | None = None,
) -> None:
    """Count texts and characters; the server's own limits hold where no others are given.

    Raises `Refused`: 413 for more of them than are allowed, 400 for what is no text.
    """
    size = sum(map(len, texts))
    most = here.limits.characters if characters is None else characters
    count = here.limits.items if items is None else items
    if len(texts) > count:
        raise Refused(413, f"{len(texts):,} texts at once; at most {count:,}")
    if size > most:
        raise Refused(413, f"{size:,} characters at once; at most {most:,}")
    for text in texts:
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise Refused(400, "a text holds half a character: a lone surrogate")
    who.record.add(texts=len(texts), characters=size)
    here.metrics.characters.inc(size)


async def find_ways(here: Service, source: str, target: str, texts: Sequence[str]) -> list[Way]:
    """How each text is translated. Raises `Refused` (400) naming the languages that there are."""
    table = here.fleet.table()
    sources = [code for code, targets in table.items() if target in targets]
    known = ", ".join(dict.fromkeys(code for targets in table.values() for code in targets))
    if not sources and source != target:
        raise Refused(400, f"target: {target} is not supported; there are: {known}")
    if source == AUTO:
        best = partial(here.detector.best, among=list(dict.fromkeys((*sources, target))))
        found = await here.aside(lambda: [best(text) for text in texts])
        return [_way(here, one.language, target, one) for one in found]
    if source not in table and source != target:
        raise Refused(400, f"source: {source} is not supported; there are: {', '.join(table)}")
    if source not in sources and source != target:
        there = ", ".join(table[source])
        raise Refused(400, f"target: {target} is not available from {source}; there are: {there}")
    return [_way(here, source, target)] * len(texts)


def _way(here: Service, source: str, target: str, detected: Detected | None = None) -> Way:
    found = here.fleet.find(source, target)
    if found is None:  # from a language to itself
        return Way(None, Direction(source, target), detected)
    return Way(*found, detected)


async def cut(here: Service, text: str, form: str) -> Passage:
    """A text as sentences."""
    work = partial(html_passage if form == "html" else text_passage, text, here.rules)
    return work() if len(text) <= SHORT else await here.aside(work)


def begin(
    here: Service,
    passages: Sequence[Passage],
    ways: Sequence[Way],
    who: Visitor,
    versions: int = 1,
) -> list[Underway]:
    """The sentences of all passages in the queues of the runs that translate them, or of none."""
    together: dict[tuple[str, Translate], list[int]] = {}
    for number, way in enumerate(ways):
        if way.place is not None:
            helped = way.place.helped.get(way.direction)
            key = way.place.name, Translate(way.direction.to, versions, helped)
            together.setdefault(key, []).append(number)
    futures = [Futures([]) for _ in passages]
    try:
        for (name, kind), numbers in together.items():
            lines = [passages[number].sentences for number in numbers]
            who.record.add(sentences=sum(map(len, lines)))
            place = here.fleet.places[name]
            asked = here.ask(place, who.client, kind, [line for part in lines for line in part])
            for number, part in zip(numbers, asked.split(list(map(len, lines))), strict=True):
                futures[number] = part
    except Refused:
        for one in futures:
            one.cancel()
        raise
    return list(map(Underway, ways, passages, futures))


async def joined(here: Service, underway: Sequence[Underway], who: Visitor) -> list[Joined]:
    """The texts with the answers in their places; tokens that were left out are counted."""
    try:
        answers: list[list[Translation]] = [await one.futures.all() for one in underway]
        work = partial(_joined, here, underway, answers, who)
        size = sum(len(line) for one in underway for line in one.passage.sentences)
        plain = size <= SHORT and all(one.passage.plain for one in underway)
        found = work() if plain else await here.aside(work)
    finally:
        for one in underway:
            one.futures.cancel()
    if left_out := sum(one.cut for one in found):
        who.record.add(cut=left_out)
        here.metrics.cut.inc(left_out)
    return found


def _joined(
    here: Service,
    underway: Sequence[Underway],
    answers: Sequence[Sequence[Translation]],
    who: Visitor,
) -> list[Joined]:
    found = []
    for one, said in zip(underway, answers, strict=True):
        if one.way.place is None:
            found.append(Joined([]))
            continue
        align = here.aligner(one.way.place, who.client, one.way.direction.to)
        count = max((len(answer.hypotheses) for answer in said), default=1)
        chosen = ([a.hypotheses[min(k, len(a.hypotheses) - 1)] for a in said] for k in range(count))
        versions = dict.fromkeys(one.passage.joined(lines, align) for lines in chosen)
        found.append(Joined(list(versions), sum(answer.cut for answer in said)))
    return found
