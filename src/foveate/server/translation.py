"""The translation service: from the texts of a request to sentences in queues, and back to texts.

`Service` holds what all routes share; the functions below it are the steps of a translation. The
routes are in `foveate.server.translation_api`.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request

from foveate.answers import Estimates, TextAnswer
from foveate.documents.html import html_passage
from foveate.documents.memory import AssistanceCounts, Glossary, holds
from foveate.documents.spans import Rules
from foveate.documents.translate import Passage, text_passage
from foveate.errors import UserError
from foveate.server.assistance import RequestAssistance, RequestOptions, options_of
from foveate.server.batching import AlignPairs, Links, Pair, TranslateLines
from foveate.server.common import (
    CLIENT_LEFT,
    ByteStore,
    JsonObject,
    JsonValue,
    RequestError,
    RequestRecord,
)
from foveate.server.document_processes import DocumentProcesses
from foveate.server.glossary_store import GlossaryStore
from foveate.server.keys import KeyFile, TokenBuckets
from foveate.server.languages import Detected, Detector, Direction
from foveate.server.runs import RunPool, ServedRun
from foveate.server.translation_schemas import Limits, StreamBody, TranslateBody

T = TypeVar("T")
AUTO = "auto"
SHORT = 2_000  # characters that are cut and joined in the event loop itself
THREADS = 16  # for what would hold up the event loop: cutting, joining, detecting languages
LEFT = "left"  # in a request's state: a future that is done once the client has left
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


# ------------------------------------------------------------------------------ figures


class Metrics:
    """The figures of one application for Prometheus, in a registry of its own."""

    def __init__(self, pool: RunPool) -> None:
        self._pool = pool
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "foveate_requests", "requests", ["method", "route", "status"], registry=own
        )
        self.seconds = Histogram(
            "foveate_request_seconds", "from the head to the last byte", ["route"], registry=own
        )
        self.characters = Counter("foveate_characters", "characters translated", registry=own)
        self.cut = Counter("foveate_cut_tokens", "tokens of too long sentences", registry=own)
        self.batch_items = Histogram(
            "foveate_batch_items", "items of a batch", ["run"], buckets=BATCH_SIZES, registry=own
        )
        self.batch_seconds = Histogram(
            "foveate_batch_seconds", "time of a batch", ["run"], registry=own
        )
        self._queue = Gauge("foveate_queue_characters", "that wait", ["run"], registry=own)
        self._loaded = Gauge("foveate_loaded", "1 where it is in memory", ["run"], registry=own)
        self._loads = Gauge("foveate_loads", "how often it was loaded", ["run"], registry=own)
        self._known = Gauge(
            "foveate_memory_hits", "sentences that the memory knew", ["run", "by"], registry=own
        )
        self._terms = Gauge(
            "foveate_terms", "of the glossary, asked for", ["run", "state"], registry=own
        )
        pool.observe_batch = self._observe_batch

    def _observe_batch(self, run: str, size: int, seconds: float) -> None:
        self.batch_items.labels(run).observe(size)
        self.batch_seconds.labels(run).observe(seconds)

    def _set_counts(self, run: str, counts: Sequence[AssistanceCounts]) -> None:
        """The counts of glossaries and memories of a run, those of requests included."""
        self._known.labels(run, "exact").set(sum(count.exact for count in counts))
        self._known.labels(run, "likeness").set(sum(count.fuzzy for count in counts))
        missing = sum(count.missed for count in counts)
        self._terms.labels(run, "missing").set(missing)
        self._terms.labels(run, "present").set(sum(count.terms for count in counts) - missing)

    def text(self) -> bytes:
        """All figures in the text form of Prometheus."""
        for name, run in self._pool.runs.items():
            self._queue.labels(name).set(run.batcher.characters)
            self._loaded.labels(name).set(run.run is not None)
            self._loads.labels(name).set(run.loads)
            self._set_counts(name, [run.requested, *(own.done for own in run.assistance.values())])
        return generate_latest(self.registry)


# ------------------------------------------------------------------------------ the service


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
        """``rules`` say which spans of all texts are protected; ``glossaries`` is a folder."""
        self.pool, self.limits, self.keys, self.rules = pool, limits, keys, rules or Rules()
        self.metrics, self.detector, self.buckets = Metrics(pool), Detector(), TokenBuckets()
        self.assistance = RequestAssistance()
        self.glossaries = GlossaryStore(limits.glossaries, glossaries)
        self.usage = Counts[str]()  # characters by the owners of keys
        self.files = ByteStore(limits.file_cache, 60 * limits.file_minutes)
        self.closing = False
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="serve")
        self.documents = DocumentProcesses()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of a function that would hold up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def for_client(self, request: Request, work: Coroutine[None, None, T]) -> T:
        """The result of the work, as long as the client waits for it and the time allows.

        Raises `RequestError` (499) when the client leaves, ``TimeoutError`` after the time.
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
                raise RequestError(CLIENT_LEFT, "the client has left") from None
            raise
        finally:
            left.remove_done_callback(cancel)

    def align(self, route: Route, client: Client, pairs: Sequence[Pair]) -> list[Links]:
        """The links of pairs, not in the event loop.

        A pair has none where the run cannot align, or the pair is too long.
        """
        assert route.run is not None
        operation, links = AlignPairs(route.direction.to), list[Links]()
        for future in route.run.batcher.submit(client.name, operation, pairs):
            links.append([])
            with suppress(UserError, RequestError):
                links[-1] = future.result(self.limits.seconds)
        return links

    def close(self, seconds: float) -> bool:
        """Answer what was accepted; whether that was done in the time."""
        self.closing = True
        done = self.pool.close(seconds)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.documents.close()
        return done


async def results(futures: Sequence[Future[T]]) -> list[T]:
    """The results of all items; the first error is raised, and the other items are cancelled."""
    try:
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
    finally:
        cancel(futures)


def cancel(futures: Sequence[Future[T]]) -> None:
    """Give items up: one that has not begun is not computed."""
    for future in futures:
        future.cancel()


# ------------------------------------------------------------------------------ translating


@dataclass(frozen=True)
class Client:
    """The name of a client in queues, and the record of its request."""

    name: str
    record: RequestRecord

    @property
    def owner(self) -> str:
        """By whom characters are counted and glossaries kept: the key, "" where there is none."""
        return self.name if self.name.startswith("key:") else ""


@dataclass(frozen=True)
class Route:
    """How a text is translated: by a run, or not at all where ``run`` is None."""

    run: ServedRun | None
    direction: Direction
    detected: Detected | None = None


@dataclass
class PendingTranslation:
    """A text and the futures of its sentences; none of them where it is not translated."""

    route: Route
    passage: Passage
    options: RequestOptions
    answers: Sequence[Future[TextAnswer]] = ()


@dataclass(frozen=True)
class TranslatedText:
    """The translations of a text, best first, and the answers to its sentences."""

    versions: list[str]
    answers: Sequence[TextAnswer] = ()

    @property
    def cut(self) -> int:
        """The number of tokens that were cut off."""
        return sum(answer.cut for answer in self.answers)


async def translate(service: Service, body: TranslateBody, client: Client) -> JsonObject:
    """The response to /translate: as many translations as texts, in their order."""
    texts = [body.q] if isinstance(body.q, str) else body.q
    if body.alternatives > service.limits.alternatives:
        raise RequestError(400, f"alternatives: at most {service.limits.alternatives}")
    pending = await start(service, texts, body, client, 1 + body.alternatives)
    translations = await join(service, pending, client)
    versions = [
        [text] if part.route.run is None else translation.versions
        for text, part, translation in zip(texts, pending, translations, strict=True)
    ]
    columns: dict[str, Sequence[JsonValue]] = {"translatedText": [best for best, *_ in versions]}
    if body.alternatives:
        columns["alternatives"] = [others for _, *others in versions]
    if body.source == AUTO:
        detected = [part.route.detected for part in pending]
        columns["detectedLanguage"] = [language.json() for language in detected if language]
    if body.quality:
        columns["quality"] = [
            qualities(service, part.route, translation.answers)
            for part, translation in zip(pending, translations, strict=True)
        ]
    single = isinstance(body.q, str)
    response = {name: values[0] if single else values for name, values in columns.items()}
    if tokens_cut := sum(translation.cut for translation in translations):
        response["cut"] = tokens_cut
    answers = [answer for translation in translations for answer in translation.answers]
    if missing := missing_terms(pending[0].options, answers) if pending else []:
        response["missingTerms"] = missing
    return response


def qualities(service: Service, route: Route, answers: Sequence[TextAnswer]) -> list[JsonObject]:
    """Log p of the translation of each sentence, and the chrF that it predicts.

    Of a sentence from the memory nothing is predicted, nor by a model that is not calibrated.
    """
    run = route.run
    calibration = None if run is None else service.pool.run(run).calibration
    return [_quality(answer, calibration) for answer in answers]


def _quality(answer: TextAnswer, calibration: Estimates | None) -> JsonObject:
    quality: JsonObject = {"source": answer.source, "translation": str(answer)}
    if not answer.outputs:
        return {**quality, "logProbability": None, "tokens": None, "estimate": None}
    best = answer.outputs[0]
    tokens, log_p = 1 + len(best.ids), best.log_probability
    estimate = None if calibration is None else round(calibration.estimate(log_p, tokens), 1)
    return {**quality, "logProbability": log_p, "tokens": tokens, "estimate": estimate}


def missing_terms(options: RequestOptions, answers: Sequence[TextAnswer]) -> list[str]:
    """The terms of the request's glossary that translations lack, by their first variant."""
    if not options.glossary:
        return []
    glossary = Glossary(dict(options.glossary))
    missing = (
        variants[0]
        for answer in answers
        for variants in glossary.variants(answer.source)
        if not holds(str(answer), variants)
    )
    return list(dict.fromkeys(missing))


async def start(
    service: Service,
    texts: Sequence[str],
    body: TranslateBody | StreamBody,
    client: Client,
    versions: int = 1,
) -> list[PendingTranslation]:
    """Put texts into the queues of their runs; errors of the request are raised before that."""
    check_size(service, texts, client, service.limits.characters, service.limits.items)
    options = options_of(body, service.limits)
    routes = await find_routes(service, body.source, body.target, texts)
    rules = options.rules(service.rules, texts)
    cut = partial(html_passage if body.format == "html" else text_passage, rules=rules)
    passages = [
        cut(text) if len(text) <= SHORT else await service.in_thread(partial(cut, text))
        for text in texts
    ]
    return submit(service, passages, routes, client, options, versions)


async def stream_sentences(
    service: Service, pending: PendingTranslation, until: float, quality: bool
) -> AsyncIterator[JsonObject]:
    """Each sentence and its translation in their order, as soon as it is there.

    Raises ``TimeoutError`` where one is not there ``until`` a time of the loop.
    """
    for number, future in enumerate(pending.answers):
        async with asyncio.timeout_at(until):
            answer = await asyncio.wrap_future(future)
        sentence: JsonObject = {
            "index": number,
            "count": len(pending.answers),
            "source": answer.source,
            "translatedText": str(answer),
        }
        if quality:
            sentence["quality"] = qualities(service, pending.route, [answer])[0]
        yield sentence


def check_size(
    service: Service, texts: Sequence[str], client: Client, characters: int, items: int
) -> None:
    """Count texts and characters. Raises `RequestError` (413) for more than are allowed."""
    size = sum(map(len, texts))
    if len(texts) > items:
        raise RequestError(413, f"{len(texts):,} texts at once; at most {items:,}")
    if size > characters:
        raise RequestError(413, f"{size:,} characters at once; at most {characters:,}")
    client.record.add(texts=len(texts), characters=size)
    service.metrics.characters.inc(size)
    service.usage[client.owner] += size


async def find_routes(
    service: Service, source: str, target: str, texts: Sequence[str]
) -> list[Route]:
    """The route of each text. Raises `RequestError` (400) naming the languages that are served."""
    table = service.pool.table()
    sources = [code for code, targets in table.items() if target in targets]
    known = ", ".join(dict.fromkeys(code for targets in table.values() for code in targets))
    if not sources and source != target:
        raise RequestError(400, f"target: {target} is not supported; there are: {known}")

    def route(source: str, detected: Detected | None = None) -> Route:
        served = service.pool.find(source, target)
        if served is None:  # from a language to itself
            return Route(None, Direction(source, target), detected)
        return Route(*served, detected)

    if source == AUTO:
        best = partial(service.detector.best, among=list(dict.fromkeys((*sources, target))))
        languages = await service.in_thread(lambda: list(map(best, texts)))
        return [route(detected.language, detected) for detected in languages]
    if source not in sources and source != target:
        message = f"source: {source} is not supported; there are: {', '.join(table)}"
        if source in table:
            known = ", ".join(table[source])
            message = f"target: {target} is not available from {source}; there are: {known}"
        raise RequestError(400, message)
    return [route(source)] * len(texts)


def operation_of(
    service: Service, route: Route, options: RequestOptions, versions: int = 1
) -> TranslateLines:
    """What the run of a route computes, assisted by the server's options and the request's."""
    assert route.run is not None
    assistance = service.assistance.of(route.run, route.direction, options)
    return TranslateLines(route.direction.to, versions, assistance)


def submit(
    service: Service,
    passages: Sequence[Passage],
    routes: Sequence[Route],
    client: Client,
    options: RequestOptions,
    versions: int = 1,
) -> list[PendingTranslation]:
    """Put the sentences of all passages, or of none, into the queues of their runs."""
    pending = [
        PendingTranslation(route, passage, options)
        for route, passage in zip(routes, passages, strict=True)
    ]
    groups: dict[tuple[str, TranslateLines], list[PendingTranslation]] = {}
    for text in pending:
        if (run := text.route.run) is not None:
            operation = operation_of(service, text.route, options, versions)
            groups.setdefault((run.name, operation), []).append(text)
    try:
        for (name, operation), group in groups.items():
            lines = [line for text in group for line in text.passage.sentences]
            client.record.add(sentences=len(lines))
            futures = iter(service.pool.runs[name].batcher.submit(client.name, operation, lines))
            for text in group:
                text.answers = list(islice(futures, len(text.passage.sentences)))
    except RequestError:
        for text in pending:
            cancel(text.answers)
        raise
    return pending


async def translate_lines(
    service: Service, lines: Sequence[str], route: Route, client: Client, options: RequestOptions
) -> list[str]:
    """The best translation of each line; tokens that were cut off are counted."""
    assert route.run is not None
    client.record.add(sentences=len(lines))
    futures = route.run.batcher.submit(client.name, operation_of(service, route, options), lines)
    answers: list[TextAnswer] = await results(futures)
    _count_cut(service, client, sum(answer.cut for answer in answers))
    return [answer.hypotheses[0] for answer in answers]


def _count_cut(service: Service, client: Client, tokens: int) -> None:
    if tokens:
        client.record.add(cut=tokens)
        service.metrics.cut.inc(tokens)


async def join(
    service: Service, pending: Sequence[PendingTranslation], client: Client
) -> list[TranslatedText]:
    """The texts with their sentences translated; tokens that were cut off are counted."""
    try:
        answers = [await results(text.answers) for text in pending]
        work = partial(_joined, service, pending, answers, client)
        size = sum(len(line) for text in pending for line in text.passage.sentences)
        short = size <= SHORT and all(text.passage.plain for text in pending)
        texts = work() if short else await service.in_thread(work)
    finally:
        for text in pending:
            cancel(text.answers)
    _count_cut(service, client, sum(text.cut for text in texts))
    return texts


def _joined(
    service: Service,
    pending: Sequence[PendingTranslation],
    answers: Sequence[Sequence[TextAnswer]],
    client: Client,
) -> list[TranslatedText]:
    texts = []
    for text, sentences in zip(pending, answers, strict=True):
        if text.route.run is None:
            texts.append(TranslatedText([]))
            continue
        align = partial(service.align, text.route, client)
        count = max((len(answer.hypotheses) for answer in sentences), default=1)
        lines = (
            [a.hypotheses[min(k, len(a.hypotheses) - 1)] for a in sentences] for k in range(count)
        )
        versions = dict.fromkeys(text.passage.joined(chosen, align) for chosen in lines)
        texts.append(TranslatedText(list(versions), sentences))
    return texts
