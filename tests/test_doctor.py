"""The doctor looks, measures a little, and says what to do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from foveate.cli import doctor


@pytest.fixture(scope="module")
def report() -> doctor.MachineReport:
    return doctor.examine(Path(__file__).parent, seconds=0.02)


def test_it_says_all_that_was_asked(report: doctor.MachineReport) -> None:
    text = report.text()
    for word in ("Python", "torch", "threads", "bf16", "GFLOP/s", "memory free", "disk free",
                 "allocator", "AMX", "browser", "tensorboard"):  # fmt: skip
        assert word in text, word
    assert all(value > 0 for value in report.gflops.values())
    assert json.loads(json.dumps(dataclasses.asdict(report)))["gflops"] == report.gflops


def test_one_thread_on_many_cores_is_noticed() -> None:
    quick = {"fp32": 100.0, "bf16": 400.0}
    [sentence] = doctor._processor_advice(quick, threads=1, usable=4, busy=False)
    assert "1 of 4 cores" in sentence and "OMP_NUM_THREADS" in sentence


def test_more_threads_than_cores_are_noticed() -> None:
    [sentence] = doctor._processor_advice(
        {"fp32": 1.0, "bf16": 4.0}, threads=8, usable=2, busy=False
    )
    assert "OMP_NUM_THREADS=2" in sentence


def test_slow_bf16_and_a_busy_machine_are_noticed() -> None:
    slow, busy = doctor._processor_advice({"fp32": 100.0, "bf16": 70.0}, 2, 2, busy=True)
    assert "70 against 100" in slow
    assert "Other programs" in busy


def test_nothing_is_said_where_all_is_well() -> None:
    assert doctor._processor_advice({"fp32": 100.0, "bf16": 400.0}, 2, 2, busy=False) == []


def test_a_quota_of_the_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_read", lambda path: "50000 100000")
    assert doctor.usable_cores() == 0.5


def test_a_limit_of_the_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4096 kB\n",
        "/sys/fs/cgroup/memory.max": "2000000\n",
        "/sys/fs/cgroup/memory.current": "500000\n",
    }
    monkeypatch.setattr(doctor, "_read", lambda path: files.get(path, ""))
    assert doctor.free_memory() == 1_500_000


def test_a_browser_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEATE_BROWSER", "/opt/mine")
    assert doctor.find_browser() == "/opt/mine"
    monkeypatch.delenv("FOVEATE_BROWSER")
    monkeypatch.setenv("PATH", "")
    assert doctor.find_browser() is None
