"""The translation service: from the texts of a request to sentences in queues, and back to texts.

Lives here: the parts that all routes share (`Service`), the steps of a translation, and the figures
of the server. Does not live here: HTTP (`foveate.server.translation_api`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from pathlib import PurePath
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request

from foveate.answers import Translation
from foveate.config import ConfigError
from foveate.documents.html import html_passage
from foveate.documents.memory import AssistanceCounts
from foveate.documents.spans import Rules
from foveate.documents.translate import Passage, text_passage
from foveate.server.batching import AlignPairs, Item, Links, Operation, Pair, TranslateLines
from foveate.server.common import RequestError
from foveate.server.keys import KeyFile
from foveate.server.languages import Detected, Detector, Direction
from foveate.server.runs import RunPool, ServedRun
from foveate.server.translation_schemas import Limits, StreamBody, TranslateBody

T = TypeVar("T")
AUTO = "auto"
SHORT = 2_000  # characters that are cut and joined in the event loop itself
DOCUMENT_THREADS = 2  # each file may take hundreds of MiB while it is read or written
THREADS = 16  # for what would hold up the event loop: cutting, joining, detecting languages
LEFT = "left"  # in a request's state: a future that is done once the client has left
CLIENT_LEFT = 499  # status in logs: the client did not wait for the answer
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


# ------------------------------------------------------------------------------ figures, files


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

    def _set_aids(self, run: str, counts: Sequence[AssistanceCounts]) -> None:
        """What the aids of a run have done, where it has some."""
        if not counts:
            return
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
            self._set_aids(name, [aids.done for aids in run.aids.values()])
        return generate_latest(self.registry)


@dataclass
class RequestRecord:
    """What logs and metrics say of a request; it holds no text."""

    id: str
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    client: str = ""  # anonymous
    numbers: dict[str, int] = field(default_factory=dict)  # characters, sentences, …

    def add(self, **numbers: int) -> None:
        """Count something of the request."""
        for name, number in numbers.items():
            self.numbers[name] = self.numbers.get(name, 0) + number


class FileCache:
    """Translated files by random names, in memory, within a limit of size and of time."""

    def __init__(
        self, size: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size, self.seconds, self._clock = size, seconds, clock
        self._files = OrderedDict[str, tuple[float, bytes]]()

    def put(self, data: bytes, name: str, target: str) -> str:
        """Store a file; its random name ends in its own name and the target language."""
        own = PurePath(name.replace("\\", "/"))
        stem = re.sub(r"[^\w-]+", "_", own.stem)[:60] or "file"
        key = f"{secrets.token_urlsafe(16)}.{stem}_{target}{own.suffix.lower()}"
        self._files[key] = self._clock() + self.seconds, data
        self._drop()
        return key

    def get(self, key: str) -> bytes | None:
        """A file, as long as it is stored."""
        self._drop()
        entry = self._files.get(key)
        return None if entry is None else entry[1]

    def _drop(self) -> None:
        """Drop the oldest files: those whose time is over, or that exceed the size."""
        size = sum(len(data) for _, data in self._files.values())
        while self._files:
            until, data = next(iter(self._files.values()))
            if until > self._clock() and size <= self.size:
                return
            self._files.popitem(last=False)
            size -= len(data)


# ------------------------------------------------------------------------------ the service


class PendingAnswers:
    """Answers to come, in the order of their items; they can be given up."""

    def __init__(self, futures: Sequence[Future[Any]] = ()) -> None:
        self._futures = list(futures)

    def __len__(self) -> int:
        return len(self._futures)

    def split(self, sizes: Sequence[int]) -> list[PendingAnswers]:
        """Its parts, of so many answers each."""
        ends = list(accumulate(sizes, initial=0))
        return [PendingAnswers(self._futures[start:end]) for start, end in pairwise(ends)]

    async def all(self) -> list[Any]:
        """All answers; the first error is raised, and the rest given up."""
        try:
            return list(await asyncio.gather(*map(asyncio.wrap_future, self._futures)))
        finally:
            self.cancel()

    async def get(self, number: int) -> Any:
        """One answer."""
        return await asyncio.wrap_future(self._futures[number])

    def cancel(self) -> None:
        """Give these up: an item that has not begun is not computed."""
        for future in self._futures:
            future.cancel()


class Service:
    """The parts of an application that translates: runs, limits, keys, metrics, files, threads."""

    def __init__(
        self,
        pool: RunPool,
        limits: Limits,
        keys: KeyFile | None = None,
        rules: Rules | None = None,
    ) -> None:
        """``rules`` say which spans of all texts are protected."""
        self.pool, self.limits, self.keys, self.rules = pool, limits, keys, rules or Rules()
        self.metrics, self.detector = Metrics(pool), Detector()
        self.files = FileCache(limits.file_cache, 60 * limits.file_minutes)
        self.closing = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="serve")
        self._document_threads = ThreadPoolExecutor(
            DOCUMENT_THREADS, thread_name_prefix="documents"
        )

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of a function that would hold up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_document_thread(self, work: Callable[[], T]) -> T:
        """The same for work that takes much memory, of which little is done at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._document_threads, work)

    async def for_client(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, as long as the client waits for it and the time allows.

        Raises `RequestError` (499) when the client leaves, ``TimeoutError`` after the time.
        """
        task = asyncio.ensure_future(work)
        left: asyncio.Future[None] = getattr(request.state, LEFT, None) or asyncio.Future()

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

    def submit(
        self, run: ServedRun, client: str, operation: Operation, items: Sequence[Item]
    ) -> PendingAnswers:
        """Put items into the queue of a run."""
        return PendingAnswers(run.batcher.submit(client, operation, items))

    def aligner(
        self, run: ServedRun, client: str, to: str | None
    ) -> Callable[[Sequence[Pair]], list[Links]]:
        """A function, not for the event loop, from pairs to links; none where the run has none."""

        def align(pairs: Sequence[Pair]) -> list[Links]:
            futures = run.batcher.submit(client, AlignPairs(to), pairs)
            with suppress(ConfigError, ValueError):
                return [future.result(self.limits.seconds) for future in futures]
            return [[] for _ in pairs]

        return align

    def close(self, seconds: float) -> bool:
        """Answer what was accepted; whether that was done in the time."""
        self.closing = True
        done = self.pool.close(seconds)
        for threads in (self._threads, self._document_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        return done


# ------------------------------------------------------------------------------ translating


@dataclass(frozen=True)
class Client:
    """The name of a client in queues, and the record of its request."""

    name: str
    record: RequestRecord


@dataclass(frozen=True)
class Route:
    """How a text is translated: by a run, or not at all where ``run`` is None."""

    run: ServedRun | None
    direction: Direction
    detected: Detected | None = None


@dataclass(frozen=True)
class PendingTranslation:
    """A text whose sentences are in a queue; none of them where it is not translated."""

    route: Route
    passage: Passage
    answers: PendingAnswers


@dataclass(frozen=True)
class TranslatedText:
    """The translations of a text, best first, and the number of tokens that were cut off."""

    versions: list[str]
    cut: int = 0


async def translate(service: Service, body: TranslateBody, client: Client) -> dict[str, Any]:
    """The response to /translate: as many translations as texts, in their order."""
    texts = [body.q] if isinstance(body.q, str) else body.q
    if body.alternatives > service.limits.alternatives:
        raise RequestError(400, f"alternatives: at most {service.limits.alternatives}")
    check_size(service, texts, client)
    routes = await find_routes(service, body.source, body.target, texts)
    passages = [await cut(service, text, body.format) for text in texts]
    pending = submit(service, passages, routes, client, 1 + body.alternatives)
    translations = await join(service, pending, client)
    versions = [
        [text] if route.run is None else translation.versions
        for text, route, translation in zip(texts, routes, translations, strict=True)
    ]
    response: dict[str, Any] = {"translatedText": [best for best, *_ in versions]}
    if body.alternatives:
        response["alternatives"] = [others for _, *others in versions]
    if body.source == AUTO:
        response["detectedLanguage"] = [r.detected.json() for r in routes if r.detected]
    if isinstance(body.q, str):
        response = {name: values[0] for name, values in response.items()}
    if tokens_cut := sum(translation.cut for translation in translations):
        response["cut"] = tokens_cut
    return response


async def start_stream(service: Service, body: StreamBody, client: Client) -> PendingTranslation:
    """A text in the queue; its errors are raised before anything is sent."""
    check_size(service, [body.q], client)
    routes = await find_routes(service, body.source, body.target, [body.q])
    return submit(service, [await cut(service, body.q, body.format)], routes, client)[0]


async def stream_sentences(
    pending: PendingTranslation, until: float
) -> AsyncIterator[dict[str, Any]]:
    """Each sentence and its translation in their order, as soon as it is there.

    Raises ``TimeoutError`` where one is not there ``until`` a time of the loop.
    """
    count = len(pending.answers)
    for number in range(count):
        async with asyncio.timeout_at(until):
            answer: Translation = await pending.answers.get(number)
        sentence = {"index": number, "count": count, "source": answer.source}
        yield sentence | {"translatedText": answer.hypotheses[0]}


def check_size(
    service: Service,
    texts: Sequence[str],
    client: Client,
    characters: int | None = None,
    items: int | None = None,
) -> None:
    """Count texts and characters; the server's own limits hold where no others are given.

    Raises `RequestError`: 413 for more of them than are allowed, 400 for a lone surrogate.
    """
    size = sum(map(len, texts))
    most = service.limits.characters if characters is None else characters
    count = service.limits.items if items is None else items
    if len(texts) > count:
        raise RequestError(413, f"{len(texts):,} texts at once; at most {count:,}")
    if size > most:
        raise RequestError(413, f"{size:,} characters at once; at most {most:,}")
    for text in texts:
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise RequestError(400, "a text holds half a character: a lone surrogate")
    client.record.add(texts=len(texts), characters=size)
    service.metrics.characters.inc(size)


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
        found = await service.in_thread(lambda: [best(text) for text in texts])
        return [route(detected.language, detected) for detected in found]
    if source not in table and source != target:
        known = ", ".join(table)
        raise RequestError(400, f"source: {source} is not supported; there are: {known}")
    if source not in sources and source != target:
        known = ", ".join(table[source])
        message = f"target: {target} is not available from {source}; there are: {known}"
        raise RequestError(400, message)
    return [route(source)] * len(texts)


async def cut(service: Service, text: str, form: str) -> Passage:
    """A text as sentences."""
    work = partial(html_passage if form == "html" else text_passage, text, service.rules)
    return work() if len(text) <= SHORT else await service.in_thread(work)


def submit(
    service: Service,
    passages: Sequence[Passage],
    routes: Sequence[Route],
    client: Client,
    versions: int = 1,
) -> list[PendingTranslation]:
    """Put the sentences of all passages, or of none, into the queues of their runs."""
    groups: dict[tuple[str, TranslateLines], list[int]] = {}
    for number, route in enumerate(routes):
        if route.run is not None:
            aids = route.run.aids.get(route.direction)
            key = route.run.name, TranslateLines(route.direction.to, versions, aids)
            groups.setdefault(key, []).append(number)
    answers = [PendingAnswers() for _ in passages]
    try:
        for (name, operation), numbers in groups.items():
            lines = [passages[number].sentences for number in numbers]
            client.record.add(sentences=sum(map(len, lines)))
            flat = [line for part in lines for line in part]
            pending = service.submit(service.pool.runs[name], client.name, operation, flat)
            for number, part in zip(numbers, pending.split(list(map(len, lines))), strict=True):
                answers[number] = part
    except RequestError:
        for part in answers:
            part.cancel()
        raise
    return list(map(PendingTranslation, routes, passages, answers))


async def join(
    service: Service, pending: Sequence[PendingTranslation], client: Client
) -> list[TranslatedText]:
    """The texts with their sentences translated; tokens that were cut off are counted."""
    try:
        answers: list[list[Translation]] = [await text.answers.all() for text in pending]
        work = partial(_joined, service, pending, answers, client)
        size = sum(len(line) for text in pending for line in text.passage.sentences)
        short = size <= SHORT and all(text.passage.plain for text in pending)
        texts = work() if short else await service.in_thread(work)
    finally:
        for text in pending:
            text.answers.cancel()
    if tokens_cut := sum(text.cut for text in texts):
        client.record.add(cut=tokens_cut)
        service.metrics.cut.inc(tokens_cut)
    return texts


def _joined(
    service: Service,
    pending: Sequence[PendingTranslation],
    answers: Sequence[Sequence[Translation]],
    client: Client,
) -> list[TranslatedText]:
    texts = []
    for text, sentences in zip(pending, answers, strict=True):
        if text.route.run is None:
            texts.append(TranslatedText([]))
            continue
        align = service.aligner(text.route.run, client.name, text.route.direction.to)
        count = max((len(answer.hypotheses) for answer in sentences), default=1)
        lines = (
            [a.hypotheses[min(k, len(a.hypotheses) - 1)] for a in sentences] for k in range(count)
        )
        versions = dict.fromkeys(text.passage.joined(chosen, align) for chosen in lines)
        texts.append(TranslatedText(list(versions), sum(answer.cut for answer in sentences)))
    return texts
