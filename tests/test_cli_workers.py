"""A run with processes behind it: the same answers, another process for one that is killed."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foveate.cli.workers import ProcessEngine, load_with_processes
from foveate.data.corpus import WorkerError
from foveate.run import Run

LINES = ["the dog runs", "", "a girl sings", "the dog runs and a girl sings"]


@pytest.fixture(scope="module")
def processes(run: Run) -> Iterator[Run]:
    loaded = load_with_processes(run.path, 2, precision="fp32")
    assert isinstance(loaded.engine, ProcessEngine)
    yield loaded
    loaded.engine.workers.__exit__()


def test_answers_are_those_of_one_process(run: Run, processes: Run) -> None:
    counted: list[int] = []
    assert processes.translate(LINES, progress=counted.append) == run.translate(LINES)
    assert counted == [3]
    many = processes.translate(LINES, beam_size=3, num_hypotheses=3)
    assert many == run.translate(LINES, beam_size=3, num_hypotheses=3)
    assert many[0].alignment() == run.translate(LINES[:1], beam_size=3)[0].alignment()
    pairs = [("the dog runs", "le chien court"), ("a girl sings", "une fille chante")]
    assert processes.links(pairs) == run.links(pairs) and any(processes.links(pairs))
    assert processes.score(pairs) == run.score(pairs)
    wanted = [[["chien"]], [], [["fille"]], []]
    assert processes.translate(LINES, required=wanted, banned=["chat"]) == run.translate(
        LINES, required=wanted, banned=["chat"]
    )
    begun = processes.translate(LINES[:1], prefix="une")
    assert begun == run.translate(LINES[:1], prefix="une")
    for wrong in (LINES[0], LINES):
        with pytest.raises((TypeError, ValueError)):
            processes.translate(wrong, to="fr")


def test_another_process_stands_in_for_one_that_was_killed(run: Run, processes: Run) -> None:
    workers = processes.engine.workers.all
    for worker in list(workers):
        worker.kill()
        time.sleep(0.1)
    for _ in range(2):
        with pytest.raises(WorkerError, match="was it killed"):
            processes.translate(LINES)
    assert processes.translate(LINES) == run.translate(LINES)
    killed, others = workers[:2], workers[2:]
    assert not any(worker.alive for worker in killed) and any(worker.alive for worker in others)


def test_processes_end_with_the_run(run: Run) -> None:
    loaded = load_with_processes(run.path, 1, precision="int8")
    assert isinstance(loaded.engine, ProcessEngine)
    assert len(loaded.translate(LINES)) == len(LINES)
    workers = loaded.engine.workers.all
    del loaded
    gc.collect()
    assert not any(worker.alive for worker in workers)


def test_without_processes_it_is_a_run_in_the_precision_that_is_asked_for(run: Run) -> None:
    loaded = load_with_processes(Path(run.path), 0, precision="int8")
    assert type(loaded) is Run
    assert any(type(module).__name__ == "Int8Linear" for module in loaded.model.modules())
