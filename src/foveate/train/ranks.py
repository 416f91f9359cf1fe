"""The processes that train one model together, and what they say to each other beside gradients.

Lives here: who leads, agreeing on a time and on a stop, sums over all ranks, waiting for what the
leader does alone. Does not live here: gradients and weights (`foveate.train.parallel`), and what
is done about a rank that hangs (`foveate.train.watchdog`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from foveate.config import ConfigError
from foveate.train.config import TrainConfig
from foveate.train.files import TrainError
from foveate.train.watchdog import Watchdog

T = TypeVar("T")
Signal = signal.Signals | None
STOPS = (signal.SIGINT, signal.SIGTERM)


class Ranks:
    """One process alone: the leader of all, which is itself."""

    rank, world = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes files and speaks to people."""
        return self.rank == 0

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        """Σ over the ranks of each value; all ranks have the same names."""
        return values

    def agree(self, now: float, received: Signal) -> tuple[float, Signal]:
        """The leader's clock, and the signal that any rank has received: the same for all."""
        return now, received

    def lead(self, what: str, do: Callable[[], T]) -> T:
        """The leader does something, which takes as long as it takes; all get its JSON result.

        Where it raises, the other ranks end too.
        """
        return do()

    @contextlib.contextmanager
    def leader_first(self, what: str) -> Iterator[None]:
        """All ranks do what is inside, the leader alone at first, the others after it."""
        yield

    def doing(self, what: str) -> None:
        """Say what begins now, for the report if it hangs."""

    def same(self, what: str, value: str) -> None:
        """Raise `TrainError` where a rank has another value than the leader."""


class Group(Ranks):
    """Ranks that `torchrun` has started; collectives of PyTorch, and its store for words.

    What the leader does alone (reading data, validating, saving) has no time limit: the others do
    not wait in a collective, which would time out, but look into the store, where the leader's
    pulse tells them that it lives and can be reached.
    """

    def __init__(self, hang_minutes: float) -> None:
        """Meet the others, by the environment variables that torchrun sets."""
        seconds = 60 * hang_minutes
        network: Any = dist  # PyTorch declares not all that it says to be public
        store, self.rank, self.world = next(network.rendezvous("env://"))
        session = _met(store, self.rank, self.world, seconds)
        self._store = network.PrefixStore(f"foveate/{session}", store)
        self._words = 0
        self._now, self._limited = "starting", False  # the building of a model has no bound
        self.watchdog = Watchdog(self.rank, self.world, seconds, self._store)
        gpu = torch.cuda.is_available()
        if gpu:
            torch.cuda.set_device(_own_gpu())
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            store=network.PrefixStore("collectives", self._store),
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=seconds + 60),  # the watchdog, who can say more, comes first
        )

    def close(self) -> None:
        """Part from the others."""
        self.watchdog.close()
        dist.destroy_process_group()

    # ---- collectives

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        total = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def agree(self, now: float, received: Signal) -> tuple[float, Signal]:
        said = {"now": now if self.leads else 0.0}
        said |= {stop.name: float(received is stop) for stop in STOPS}
        agreed = self.sums(said)
        return agreed["now"], next((stop for stop in STOPS if agreed[stop.name]), None)

    # ---- words

    def doing(self, what: str) -> None:
        self._go_on(what, limited=True)

    def _go_on(self, what: str, limited: bool) -> None:
        self._now, self._limited = what, limited
        self.watchdog.doing(what, limited)

    def lead(self, what: str, do: Callable[[], T]) -> T:
        result: list[T] = []
        with self.leader_first(what) as told:
            if self.leads:
                result.append(do())
                told.append(result[0])
        return result[0] if self.leads else told[0]

    @contextlib.contextmanager
    def leader_first(self, what: str) -> Iterator[Any]:
        self._words += 1
        key, told = f"word/{self._words}", list[Any]()
        before = self._now, self._limited
        if not self.leads:
            told.append(self._heard(key, what))
            self._go_on(*before)
            yield told
            return
        self.watchdog.doing(what, limited=False)
        try:
            yield told
        except BaseException:
            self._store.set(key, json.dumps({"failed": True}))
            raise
        self._store.set(key, json.dumps({"said": told[0] if told else None}))
        self._go_on(*before)

    def _heard(self, key: str, what: str) -> Any:
        """What the leader says under a key, for which there is time as long as it lives."""
        self.doing(f"{self._now}, waiting for rank 0: {what}")
        pulse, pause = self.watchdog.pulse_of(0), 0.005
        while not self._store.check([key]):
            time.sleep(pause)
            pause = min(0.5, 1.5 * pause)
            if (now := self.watchdog.pulse_of(0)) != pulse:
                pulse = now
                self.doing(self._now)
        word = json.loads(self._store.get(key))
        if "failed" in word:
            raise SystemExit(2)  # rank 0 has said why
        return word["said"]

    def same(self, what: str, value: str) -> None:
        told = self.lead(what, lambda: value)
        if told != value:
            raise TrainError(
                f"rank {self.rank} on {socket.gethostname()} has another {what} than rank 0: all "
                "hosts must read the same files with the same versions"
            )

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """Within, an error of the network becomes one that says who misses whom, and where."""
        try:
            yield
        except RuntimeError as error:
            if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            reason = str(error).strip().splitlines()[0]
            raise TrainError(
                f"rank {self.rank} lost the others in {self._now} ({reason}); the run goes on "
                "from its last checkpoint by the same command, or by itself with torchrun "
                "--max-restarts"
            ) from error


def _met(store: Any, rank: int, world: int, seconds: float) -> str:
    """A name for this meeting of the ranks, once all are there.

    After a restart the store may still hold what processes that are gone have said. So rank 0
    draws a name, the others sign it, each with a word of its own, and go when rank 0 has read it.
    """
    own, until = uuid.uuid4().hex, time.monotonic() + seconds
    if rank == 0:
        store.set("session", own)
        signed = [f"{own}/{other}" for other in range(1, world)]
        _until(lambda: not signed or store.check(signed), until, "the other ranks have not come")
        store.set(f"{own}/all", " ".join(store.get(key).decode() for key in signed))
        return own

    def go() -> bool:
        session = store.get("session").decode() if store.check(["session"]) else "none"
        store.set(f"{session}/{rank}", own)
        key = f"{session}/all"
        return bool(store.check([key])) and own in store.get(key).decode().split()

    _until(go, until, "rank 0 has not come")
    return str(store.get("session").decode())


def _until(holds: Callable[[], bool], end: float, what: str) -> None:
    while not holds():
        if time.monotonic() > end:
            raise TrainError(f"{what} within train.hang_minutes: has their host started?")
        time.sleep(0.02)


def _own_gpu() -> int:
    local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= there:
        raise TrainError(
            f"rank {local} of this host has no GPU of its own: {there} are there; start fewer "
            "ranks a host (torchrun --nproc-per-node), or hide them (CUDA_VISIBLE_DEVICES=)"
        )
    return local


@contextlib.contextmanager
def ranks_of(config: TrainConfig) -> Iterator[Ranks]:
    """The ranks that ``torchrun`` has started this process as one of, or one process alone.

    Raises ``ConfigError`` where there are several and ``train.parallel`` is "none".
    """
    started = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    world = int(os.environ["WORLD_SIZE"]) if started else 1
    if config.parallel == "none" and world > 1:
        raise ConfigError(
            f'train.parallel = "none", but torchrun has started {world} ranks; write "auto", or '
            "start one",
            ("train", "parallel"),
        )
    if not started or (world == 1 and config.parallel in ("auto", "none")):
        yield Ranks()
        return
    group = Group(config.hang_minutes)
    try:
        with group.lost():
            yield group
    except BaseException:
        group.watchdog.close()  # and no more: parting would wait for those who are lost
        raise
    group.close()
