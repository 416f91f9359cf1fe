"""How OpenMP's threads wait for each other: awake where cores are free, else asleep.

A thread that is first at a barrier spins, since waking one that sleeps takes longer than most
barriers last. Beside another program it spins on the core that a later thread needs, and a training
takes many times its share of time. libgomp, the OpenMP of PyTorch on Linux, spins for milliseconds,
and for a microsecond while the process has more OpenMP threads than cores (GOMP_SPINCOUNT in its
manual). `watch` keeps such threads, which sleep, as long as those of the process wait for cores.
The number of threads that compute stays, and so does every bit of the results. What the user set by
``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT`` stays too; without libgomp or Linux's times of waiting
nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

CHECK = 0.5  # seconds from one look at the waiting times to the next
BUSY_MACHINE = (
    "other programs use this machine: threads sleep while they wait for each other, so that this "
    "one keeps its share of the processor"
)
BUSY = 0.1  # seconds of waiting for a core in one second, of all threads, that make a machine busy
CALM = 10.0  # seconds without that after which it is calm again

_watch: _Watch | None = None


class _SleepingTeam(threading.Thread):
    """OpenMP threads beyond the cores, asleep until `stop`."""

    def __init__(self, openmp: ctypes.CDLL) -> None:
        super().__init__(name="sleeping team", daemon=True)
        self._openmp, self._stopped = openmp, threading.Event()

    def run(self) -> None:
        nothing = ctypes.cast(self._openmp.free, ctypes.c_void_p)  # free(NULL)
        threads = max(2, self._openmp.omp_get_num_procs() - torch.get_num_threads() + 2)
        self._openmp.GOMP_parallel(nothing, None, threads, 0)
        self._stopped.wait()  # OpenMP ends the team with the thread that began it

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class _Watch(threading.Thread):
    def __init__(self, openmp: ctypes.CDLL) -> None:
        super().__init__(name="barriers", daemon=True)
        self._openmp = openmp
        self.busy = False

    def run(self) -> None:
        team: _SleepingTeam | None = None
        last_busy = -CALM
        for waited in waiting_times():
            time.sleep(CHECK)
            now = time.monotonic()
            last_busy = now if waited > BUSY else last_busy
            self.busy = now - last_busy < CALM
            if self.busy and team is None:
                team = _SleepingTeam(self._openmp)
                team.start()
            elif team is not None and not self.busy:
                team.stop()
                team = None


def watch() -> None:
    """Let the threads of this process sleep at barriers whenever others need the cores."""
    global _watch
    own = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    if own or sys.platform != "linux" or (_watch is not None and _watch.is_alive()):
        return
    openmp = ctypes.CDLL(None)
    if hasattr(openmp, "GOMP_parallel") and not hasattr(openmp, "__kmpc_global_thread_num"):
        _watch = _Watch(openmp)
        _watch.start()


def busy() -> bool:
    """Whether the threads of this process have lately waited for cores; False where unwatched."""
    return _watch is not None and _watch.busy


def busy_now(work: Callable[[], object], seconds: float = CHECK) -> bool:
    """Whether the threads of some work wait for cores that other programs use."""
    times, until = waiting_times(), time.monotonic() + seconds
    next(times)
    while time.monotonic() < until:
        work()
    return next(times) > BUSY


def waiting_times() -> Iterator[float]:
    """Seconds a second that all threads of this process were ready and had no core, since last."""
    before, then = _waited(), time.monotonic()
    yield 0.0
    while True:
        waited, now = _waited(), time.monotonic()
        yield sum(s - before.get(t, 0) for t, s in waited.items()) / 1e9 / (now - then)
        before, then = waited, now


def _waited() -> dict[str, int]:
    """Nanoseconds that each thread has waited so far."""
    waited = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread ended meanwhile
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii")
            waited[thread] = int(text.split()[1])
    return waited


@contextlib.contextmanager
def single_thread() -> Iterator[Callable[[], float]]:
    """Compute in this thread alone; gives a clock that other programs do not move."""
    threads, fine = torch.get_num_threads(), time.get_clock_info("thread_time").resolution < 1e-4
    torch.set_num_threads(1)
    try:
        yield time.thread_time if fine else time.perf_counter
    finally:
        torch.set_num_threads(threads)
