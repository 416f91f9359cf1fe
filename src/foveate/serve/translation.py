"""The translation service: from the texts of a request to queued sentences, and back to texts.

`Service` is shared by all routes; the functions below it are the steps of a translation. The
routes are in `foveate.serve.translation_api`.
"""

import asyncio
import time
from collections import Counter as Counts
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request

from foveate.documents.alternatives import differences
from foveate.documents.html import html_passage
from foveate.documents.languages import Detected, Direction, most_probable
from foveate.documents.memory import AssistanceCounts, Glossary, holds
from foveate.documents.spans import Rules
from foveate.documents.translate import Passage, text_passage
from foveate.engine.answers import TextAnswer
from foveate.serve.assistance import RequestOptions, assistance_of, options_of, provided
from foveate.serve.batching import Links, PairOperation, TranslateLines
from foveate.serve.common import (
    CLIENT_LEFT,
    ByteStore,
    JsonObject,
    JsonValue,
    RequestError,
    RequestRecord,
)
from foveate.serve.document_processes import DocumentProcesses
from foveate.serve.glossary_store import GlossaryStore
from foveate.serve.keys import KeyFile, TokenBuckets
from foveate.serve.runs import RunPool, ServedRun
from foveate.serve.translation_schemas import Limits, TranslateBody
from foveate.serve.waiting import ENTRANCE, Answers, Pace, Pair

T = TypeVar("T")
AUTO = "auto"
SHORT = 2_000  # characters of a request that is prepared and joined in the event loop itself
COMPUTING = 2  # threads for work that would block the event loop, which waits for each in turn
LEFT = "left"  # in a request's state: a future that is done once the client closed the connection
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The figures of one application for Prometheus, in its own registry."""

    def __init__(self, pool: RunPool) -> None:
        self._pool = pool
        self.registry = own = CollectorRegistry()
        counter, gauge = partial(Counter, registry=own), partial(Gauge, registry=own)
        histogram = partial(Histogram, registry=own)
        self.requests = counter("foveate_requests", "requests", ["method", "route", "status"])
        seconds = "from the head to the last byte"
        self.seconds = histogram("foveate_request_seconds", seconds, ["route"])
        self.characters = counter("foveate_characters", "characters translated")
        self.cut = counter("foveate_cut_tokens", "tokens cut from long sentences")
        items = histogram("foveate_batch_items", "items of a batch", ["run"], buckets=BATCH_SIZES)
        times = histogram("foveate_batch_seconds", "time of a batch", ["run"])
        self._queue = gauge("foveate_queue_characters", "that wait", ["run"])
        self._loads = gauge("foveate_loads", "how often it was loaded", ["run"])
        self._known = gauge("foveate_memory_hits", "sentences that the memory knew", ["run", "by"])
        self._terms = gauge("foveate_terms", "glossary terms requested", ["run", "state"])
        for name, served in pool.runs.items():
            served.batcher.observe = items.labels(name).observe, times.labels(name).observe

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        for name, run in self._pool.runs.items():
            self._queue.labels(name).set(run.batcher.characters)
            self._loads.labels(name).set(run.loads)
            counts = AssistanceCounts()
            for done in (run.requested, *(own.done for own in run.assistance.values())):
                counts.add(done)
            self._known.labels(name, "exact").set(counts.exact)
            self._known.labels(name, "likeness").set(counts.fuzzy)
            self._terms.labels(name, "missing").set(counts.missed)
            self._terms.labels(name, "present").set(counts.terms - counts.missed)
        return generate_latest(self.registry)


class Service:
    """The parts of an application that translates: runs, limits, keys, metrics, files, threads."""

    def __init__(
        self,
        pool: RunPool,
        limits: Limits,
        keys: KeyFile | None = None,
        rules: Rules | None = None,
        glossaries: Path | None = None,
    ) -> None:
        """``rules`` protect spans in all texts; ``glossaries`` is a folder."""
        self.pool, self.limits, self.keys, self.rules = pool, limits, keys, rules or Rules()
        self.metrics, self.buckets = Metrics(pool), TokenBuckets()
        self.glossaries = GlossaryStore(limits.glossaries, glossaries)
        self.usage = Counts[str]()  # characters by the owners of keys
        self.files = ByteStore(limits.file_cache, 60 * limits.file_minutes)
        self.closing, self.pace = False, Pace(ENTRANCE * pool.batching.max_wait)
        self.computing = ThreadPoolExecutor(COMPUTING, thread_name_prefix="compute")
        self.documents = DocumentProcesses()

    async def computed(self, work: Callable[[], T], size: float = inf) -> T:
        """Return the result of a function for ``size`` characters; the event loop stays free."""
        if size <= SHORT:
            await self.pace.resume()
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.computing, work)

    async def for_client(self, request: Request, work: Coroutine[None, None, T]) -> T:
        """Return the result of the work, if the client waits for it and the time allows.

        Raises `RequestError` (499) when the client leaves, ``TimeoutError`` after the time limit.
        """
        task = asyncio.ensure_future(work)
        left: asyncio.Future[None] = request.scope["state"].get(LEFT) or asyncio.Future()

        def cancel(left: asyncio.Future[None]) -> None:
            task.cancel()

        left.add_done_callback(cancel)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await task
        except asyncio.CancelledError:
            if left.done():
                raise RequestError(CLIENT_LEFT, "the client closed the connection") from None
            raise
        finally:
            left.remove_done_callback(cancel)
            del task  # its error refers to this frame: a cycle

    def close(self, seconds: float) -> None:
        """Answer accepted requests, for so many seconds, and end."""
        self.closing = True
        self.pool.close(seconds)
        self.computing.shutdown(wait=False, cancel_futures=True)
        self.documents.close()


@dataclass(frozen=True)
class Client:
    """The name of a client in queues, and the record of its request."""

    name: str
    record: RequestRecord

    @property
    def owner(self) -> str:
        """The key that owns characters and glossaries, or "" without one."""
        return self.name if self.name.startswith("key:") else ""


@dataclass(frozen=True)
class Route:
    """The way to translate a text: by a run, or not at all if ``run`` is None."""

    run: ServedRun | None
    direction: Direction
    detected: Detected | None = None


@dataclass
class PendingTranslation:
    """A text, and the answers to its sentences from ``first`` on; None if it stays unchanged.

    `join` sets the ``versions`` of the translation, best first, and the ``lines`` of each, its
    sentences as the model wrote them. ``untranslated`` counts sentences in the first one that stay
    in the source language, since no translation of them preserved their markup or protected texts.
    """

    text: str
    route: Route
    passage: Passage
    options: RequestOptions
    operation: TranslateLines | None = None
    answers: Answers[TextAnswer] | None = None
    first: int = 0
    versions: list[str] = field(default_factory=list)
    lines: list[tuple[str, ...]] = field(default_factory=list)
    untranslated: int = 0

    @property
    def done(self) -> list[TextAnswer]:
        """The answers to its sentences, once they are complete."""
        if self.answers is None:
            return []
        return self.answers.future.result()[self.first : self.first + len(self.passage.sentences)]

    @property
    def cut(self) -> int:
        """The number of tokens that were truncated."""
        return sum(answer.cut for answer in self.done)

    def give_up(self) -> None:
        """Cancel its sentences, and those of texts that were sent with it."""
        if self.answers is not None:
            self.answers.future.cancel()


async def translate(service: Service, body: TranslateBody, client: Client) -> JsonObject:
    """Return the response to /translate: one translation for each text, in order."""
    texts = [body.q] if isinstance(body.q, str) else body.q
    if body.alternatives > service.limits.alternatives:
        raise RequestError(400, f"alternatives: at most {service.limits.alternatives}")
    pending = await start(service, texts, body, client, 1 + body.alternatives)
    await join(service, pending, client)
    compares = body.quality and body.alternatives  # words of versions
    is_long = body.glossary or compares or sum(map(len, texts)) > SHORT
    respond = partial(_response, body, pending)
    return await service.computed(respond) if is_long else respond()


def _response(body: TranslateBody, pending: Sequence[PendingTranslation]) -> JsonObject:
    columns: dict[str, Sequence[JsonValue]] = {}
    columns["translatedText"] = [text.versions[0] for text in pending]
    if body.alternatives:
        columns["alternatives"] = [text.versions[1:] for text in pending]
    if body.source == AUTO:
        detected = [part.route.detected for part in pending]
        columns["detectedLanguage"] = [language._asdict() for language in detected if language]
    if body.quality:
        columns["quality"] = [list(map(quality_of, text.done)) for text in pending]
    if body.quality and body.alternatives:
        columns["differences"] = [_differences(text) for text in pending]
    single = isinstance(body.q, str)
    response = {name: values[0] if single else values for name, values in columns.items()}
    return response | losses(pending)


def _differences(text: PendingTranslation) -> list[JsonObject]:
    """Return how the alternatives of a text differ; sentences from the memory count as certain."""
    pairs = ((each.hypotheses[::-1], each.outputs[::-1]) for each in text.done)
    known = [dict(zip(*both, strict=False)) for both in pairs]  # of equal texts the first
    log_p = [
        sum(own[t].log_probability for own, t in zip(known, lines, strict=True) if t in own)
        for lines in text.lines
    ]
    return differences(text.lines, log_p, text.route.direction.target)


def losses(pending: Sequence[PendingTranslation]) -> JsonObject:
    """Return the fields of a response about what translations lack; those without are omitted."""
    fields: JsonObject = {
        "cut": sum(text.cut for text in pending),
        "untranslated": sum(text.untranslated for text in pending),
        "missingTerms": missing_terms(pending),
    }
    return {name: value for name, value in fields.items() if value}


def quality_of(answer: TextAnswer) -> JsonObject:
    """Return log p of a sentence's translation; None for a sentence from the memory."""
    quality: JsonObject = {"source": answer.source, "translation": str(answer)}
    if not answer.outputs:
        return {**quality, "logProbability": None, "tokens": None}
    best = answer.outputs[0]
    return {**quality, "logProbability": best.log_probability, "tokens": 1 + len(best.ids)}


def missing_terms(pending: Sequence[PendingTranslation]) -> list[str]:
    """Return terms of the request's glossary missing in translations, by their first variant."""
    if not pending or not pending[0].options.glossary:
        return []
    glossary = Glossary(dict(pending[0].options.glossary))
    missing = (
        variants[0]
        for text in pending
        for answer in text.done
        for variants in glossary.variants(answer.source)
        if not holds(str(answer), variants)
    )
    return list(dict.fromkeys(missing))


async def start(
    service: Service,
    texts: Sequence[str],
    body: TranslateBody,
    client: Client,
    versions: int = 1,
) -> list[PendingTranslation]:
    """Add texts to the queues of their runs; errors of the request are raised before that."""
    check_size(service, texts, client, service.limits.characters, service.limits.items)
    routes = await find_routes(service, body.source, body.target, texts)
    for route in set(routes):
        if route.run is not None:
            route.run.batcher.check(client.name, time.perf_counter() - client.record.began)
    size = sum(map(len, texts)) if not provided(body) else inf
    prepare = partial(_prepared, service, body, texts, routes, versions)
    pending = await service.computed(prepare, size)
    submit(service, pending, client)
    return pending


def _prepared(
    service: Service,
    body: TranslateBody,
    texts: Sequence[str],
    routes: Sequence[Route],
    versions: int,
) -> list[PendingTranslation]:
    """Return the texts split into sentences, each with its operation."""
    options = options_of(body, service.limits)
    rules = options.rules(service.rules, texts)
    cut = partial(html_passage if body.format == "html" else text_passage, rules=rules)
    operations = {
        route: operation_of(route, options, versions)
        for route in dict.fromkeys(routes)
        if route.run is not None
    }
    return [
        PendingTranslation(text, route, cut(text), options, operations.get(route))
        for text, route in zip(texts, routes, strict=True)
    ]


def check_size(
    service: Service, texts: Sequence[str], client: Client, characters: int, items: int
) -> None:
    """Count texts and characters. Raises `RequestError` (413) for more than are allowed."""
    size = sum(map(len, texts))
    if len(texts) > items:
        raise RequestError(413, f"{len(texts):,} texts at once; at most {items:,}")
    if size > characters:
        raise RequestError(413, f"{size:,} characters at once; at most {characters:,}")
    client.record.numbers.update(texts=len(texts), characters=size)
    service.metrics.characters.inc(size)
    service.usage[client.owner] += size


async def find_routes(
    service: Service, source: str, target: str, texts: Sequence[str]
) -> list[Route]:
    """Return the route of each text. Raises `RequestError` (400) with the supported languages."""
    table = service.pool.table()
    sources = [code for code, targets in table.items() if target in targets]
    known = service.pool.targets()
    same = source == target and source in {*table, *known}
    if not sources and not same:
        there = f"there are: {', '.join(known)}"
        raise RequestError(400, f"target: {target} is not supported; {there}")

    def route(source: str, detected: Detected | None = None) -> Route:
        itself = None, Direction(source, target)  # which is copied
        run, direction = service.pool.find(source, target) or itself
        return Route(run, direction, detected)

    if source == AUTO:
        best = partial(most_probable, among=list(dict.fromkeys((*sources, target))))
        languages = await service.computed(lambda: list(map(best, texts)))
        return [route(detected.language, detected) for detected in languages]
    if source not in sources and not same:
        message = f"source: {source} is not supported; there are: {', '.join(table)}"
        if source in table:
            there = f"there are: {', '.join(table[source])}"
            message = f"target: {target} is not available from {source}; {there}"
        raise RequestError(400, message)
    return [route(source)] * len(texts)


def operation_of(route: Route, options: RequestOptions, versions: int = 1) -> TranslateLines:
    """Return the operation for a route's run, with the server's and the request's assistance."""
    assert route.run is not None
    assistance = assistance_of(route.run, route.direction, options)
    return TranslateLines(route.direction.to, versions, assistance)


def submit(service: Service, pending: Sequence[PendingTranslation], client: Client) -> None:
    """Add the sentences of all texts, or of none, to the queues of their runs."""
    groups: dict[tuple[str, TranslateLines], list[PendingTranslation]] = {}
    for text in pending:
        if text.route.run is not None and text.operation is not None:
            groups.setdefault((text.route.run.name, text.operation), []).append(text)
    try:
        for (name, operation), group in groups.items():
            lines = list[str]()
            for text in group:
                text.first = len(lines)
                lines += text.passage.sentences
            client.record.numbers.update(sentences=len(lines))
            answers = service.pool.runs[name].batcher.submit(client.name, operation, lines)
            for text in group:
                text.answers = answers
    except RequestError:
        for text in pending:
            text.give_up()
        raise


async def translate_lines(
    service: Service, lines: Sequence[str], route: Route, client: Client, options: RequestOptions
) -> list[str]:
    """Return the best translation of each line; truncated tokens are counted."""
    assert route.run is not None
    client.record.numbers.update(sentences=len(lines))
    operation = await service.computed(lambda: operation_of(route, options))
    submitted = route.run.batcher.submit(client.name, operation, lines)
    answers = await asyncio.wrap_future(submitted.future)
    both = lambda: (sum(a.cut for a in answers), [a.hypotheses[0] for a in answers])  # noqa: E731
    cut, best = await service.computed(both, len(lines))
    _count_cut(service, client, cut)
    return best


async def links_of(client: Client, route: Route, pairs: Sequence[Pair]) -> list[Links]:
    """Return the links of pairs; none if the run cannot align, or the pair is too long."""
    if route.run is None or not pairs:
        return []
    operation, none = PairOperation(route.direction.to), list[tuple[int, int]]()
    answers = route.run.batcher.submit(client.name, operation, pairs, none, admitted=True)
    return await asyncio.wrap_future(answers.future)


def _count_cut(service: Service, client: Client, tokens: int) -> None:
    if tokens:
        client.record.numbers.update(cut=tokens)
        service.metrics.cut.inc(tokens)


async def join(service: Service, pending: Sequence[PendingTranslation], client: Client) -> None:
    """Wait until the texts are translated, and set their versions; count truncated tokens."""
    try:
        for answers in dict.fromkeys(text.answers for text in pending):
            if answers is not None:
                await asyncio.wrap_future(answers.future)
        plain = all(text.passage.plain for text in pending)
        size = sum(len(line) for text in pending for line in text.passage.sentences)
        place = lambda: [each for each in map(_unplaced, pending) if each is not None]  # noqa: E731
        if unplaced := await service.computed(place, size if plain else inf):
            texts, versions, pairs = zip(*unplaced, strict=True)
            routes = (text.route for text in texts)
            links = await asyncio.gather(*map(partial(links_of, client), routes, pairs))
            await service.computed(lambda: list(map(_place, texts, versions, links)))
    finally:
        for text in pending:
            text.give_up()
    _count_cut(service, client, sum(text.cut for text in pending))


Versions = list[tuple[str, ...]]  # a translation of each sentence


def _unplaced(text: PendingTranslation) -> tuple[PendingTranslation, Versions, list[Pair]] | None:
    """Set the versions of a text, or return them with the pairs whose words need links first."""
    outputs = [answer.hypotheses for answer in text.done]
    count = max(map(len, outputs), default=1)
    lines = ([own[min(k, len(own) - 1)] for own in outputs] for k in range(count))
    versions = list(dict.fromkeys(map(tuple, lines))) if text.answers else []
    if pairs := [pair for own in versions for pair in text.passage.pairs(own)]:
        return text, versions, pairs
    _place(text, versions, ())
    return None


def _place(text: PendingTranslation, versions: Versions, links: Sequence[Links]) -> None:
    """Set the versions of a text, and the lines of each."""
    rest, passage = iter(links), text.passage
    unique: dict[str, tuple[str, ...]] = {}
    for n, lines in enumerate(versions or [()]):
        version = passage.placed(lines, rest) if versions else text.text
        unique.setdefault(version, lines)
        text.untranslated = text.untranslated if n else len(passage.stayed)
    text.versions, text.lines = list(unique), list(unique.values())
