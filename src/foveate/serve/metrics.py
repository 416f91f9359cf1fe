"""Figures for Prometheus: requests, times, batches, queues, models in memory."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foveate.documents.memory import Done
from foveate.serve.fleet import Fleet

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The figures of one application, in a registry of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
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
            "foveate_batch_items", "items of a batch", ["run"], buckets=SIZES, registry=own
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
        fleet.batch_seen = self._batch

    def _batch(self, run: str, size: int, seconds: float) -> None:
        self.batch_items.labels(run).observe(size)
        self.batch_seconds.labels(run).observe(seconds)

    def _add_help(self, run: str, done: Sequence[Done]) -> None:
        """What the aids of a run have done, where it has some."""
        if not done:
            return
        self._known.labels(run, "exact").set(sum(one.exact for one in done))
        self._known.labels(run, "likeness").set(sum(one.fuzzy for one in done))
        missing = sum(one.missed for one in done)
        self._terms.labels(run, "missing").set(missing)
        self._terms.labels(run, "present").set(sum(one.wanted for one in done) - missing)

    def text(self) -> bytes:
        """All figures in the text form of Prometheus."""
        for name, place in self._fleet.places.items():
            self._queue.labels(name).set(place.batcher.held)
            self._loaded.labels(name).set(place.run is not None)
            self._loads.labels(name).set(place.loads)
            self._add_help(name, [helped.done for helped in place.helped.values()])
        return generate_latest(self.registry)
