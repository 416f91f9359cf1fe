"""From the texts of a request to sentences in queues, and from their answers to texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from foveate.answers import Translation
from foveate.serve.asking import StreamBody, TranslateBody
from foveate.serve.detect import Detected
from foveate.serve.errors import Refused
from foveate.serve.fleet import Place
from foveate.serve.guard import Record
from foveate.serve.kinds import Translate
from foveate.serve.languages import Direction
from foveate.serve.lines import Passage, html_passage, text_passage
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
    """A text whose sentences wait in a queue."""

    way: Way
    passage: Passage | None  # None: it stays as it is
    text: str
    futures: Futures


async def translate(here: Service, ask: TranslateBody, who: Visitor) -> dict[str, Any]:
    """The answer to /translate: as many translations as texts, in their order."""
    texts = [ask.q] if isinstance(ask.q, str) else ask.q
    if ask.alternatives > here.limits.alternatives:
        raise Refused(400, f"alternatives: at most {here.limits.alternatives}")
    check_size(here, texts, who)
    ways = await find_ways(here, ask.source, ask.target, texts)
    underway: list[Underway] = []
    try:
        for text, way in zip(texts, ways, strict=True):
            underway.append(await begun(here, text, way, ask.format, who, 1 + ask.alternatives))
        found = [await joined(here, one, who) for one in underway]
    finally:
        for one in underway:
            one.futures.cancel()
    tree: dict[str, Any] = {"translatedText": [versions[0] for versions, _ in found]}
    if ask.alternatives:
        tree["alternatives"] = [versions[1:] for versions, _ in found]
    if ask.source == AUTO:
        tree["detectedLanguage"] = [way.detected.tree() for way in ways if way.detected]
    if isinstance(ask.q, str):
        tree = {name: values[0] for name, values in tree.items()}
    if cut := sum(cut for _, cut in found):
        who.record.add(cut=cut)
        here.metrics.cut.inc(cut)
        tree["cut"] = cut
    return tree


async def stream(here: Service, ask: StreamBody, who: Visitor) -> tuple[Underway, Way]:
    """A text whose sentences wait; what is wrong with it is told before anything is sent."""
    check_size(here, [ask.q], who)
    [way] = await find_ways(here, ask.source, ask.target, [ask.q])
    return await begun(here, ask.q, way, ask.format, who, 1), way


async def sentences(one: Underway) -> AsyncIterator[dict[str, Any]]:
    """Each sentence and its translation in their order, as soon as it is there."""
    for number, source in enumerate(one.passage.sentences if one.passage else []):
        answer: Translation = await one.futures.one(number)
        tree = {"index": number, "count": len(one.futures), "source": source}
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


async def begun(
    here: Service, text: str, way: Way, form: str, who: Visitor, versions: int
) -> Underway:
    """The sentences of a text in the queue of the run that translates them."""
    cut = partial(html_passage if form == "html" else text_passage, text)
    if way.place is None:
        return Underway(way, None, text, Futures([]))
    passage = cut() if len(text) <= SHORT else await here.aside(cut)
    return begun_with(here, passage, way, who, versions)


def begun_with(
    here: Service, passage: Passage, way: Way, who: Visitor, versions: int = 1
) -> Underway:
    """The sentences of a passage in the queue of the run that translates them."""
    assert way.place is not None
    kind, lines = Translate(way.direction.to, versions), passage.sentences
    who.record.add(sentences=len(lines))
    return Underway(way, passage, "", here.ask(way.place, who.client, kind, lines))


async def joined(here: Service, one: Underway, who: Visitor) -> tuple[list[str], int]:
    """The versions of a text, the best first, each once; how many tokens had to be left out."""
    passage = one.passage
    if passage is None or one.way.place is None:
        return [one.text], 0
    answers: list[Translation] = await one.futures.all()
    align = here.aligner(one.way.place, who.client, one.way.direction.to)
    count = max((len(answer.hypotheses) for answer in answers), default=1)

    def join() -> list[str]:
        chosen = (
            [a.hypotheses[min(k, len(a.hypotheses) - 1)] for a in answers] for k in range(count)
        )
        return list(dict.fromkeys(passage.joined(lines, align) for lines in chosen))

    return await here.aside(join), sum(answer.cut for answer in answers)
