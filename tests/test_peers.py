"""The comparison with peers: its tables come from results, its order is A B A B, failures stay."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "benchmarks" / "peers"
NAMES = ("compare", "data", "environments", "rows", "table", "starting", "quality")
NAMES += ("common", "peer_foveate")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of benchmarks/peers, which are programs and no package."""
    monkeypatch.syspath_prepend(str(PEERS))
    monkeypatch.syspath_prepend(str(PEERS / "adapters"))
    before = set(sys.modules)
    result = {name: __import__(name) for name in NAMES}
    for name in set(sys.modules) - before:
        if name in NAMES:
            monkeypatch.delitem(sys.modules, name)
    return result


def test_the_page_is_made_of_the_results(peers: dict[str, ModuleType]) -> None:
    table = peers["table"]
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.page(text, ROOT / "docs" / "results") == text, "run benchmarks/peers/table.py"


def test_every_row_has_an_adapter_that_does_it(peers: dict[str, ModuleType]) -> None:
    for group in peers["rows"].GROUPS:
        assert f"{group.what}-{group.shape}" in peers["table"].TITLES
        for row in group.rows:
            adapter = PEERS / "adapters" / f"peer_{row.peer}.py"
            assert f'"{group.what}": {group.what}' in adapter.read_text(encoding="utf-8"), row
            own = row.peer == peers["environments"].OWN
            assert own or (PEERS / "requirements" / f"{row.peer}.txt").is_file()


def test_our_own_adapter_runs_on_the_data(peers, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))  # nothing there: the embedded corpus
    monkeypatch.setattr("foveate.bench.training.SYNTHETIC", {"train": 800, "valid": 8, "test": 8})
    peers["data"].write(tmp_path)
    job = peers["common"].Job("tiny", "int8", 0.01, tmp_path, tmp_path, torch.get_num_threads())
    report = peers["peer_foveate"].decode(job)
    assert set(report["sentences_per_second"]) == set(peers["common"].CASES)
    for name, number in {"MOST_STEPS": 4, "WARM_UP": 1}.items():
        monkeypatch.setattr(peers["common"], name, number)
    job = dataclasses.replace(job, mode="fp32", every=2)
    peers["peer_foveate"].quality(job)
    looks = [json.loads(s) for s in capsys.readouterr().out.splitlines() if s.startswith("{")]
    assert [look["step"] for look in looks] == [2, 4] and all(look["bleu"] >= 0 for look in looks)


def test_an_adapter_finds_the_threads_and_sources_it_is_meant_to(peers) -> None:
    own, other = (peers["starting"].environment(peer, 3) for peer in ("foveate", "joeynmt"))
    assert own["OMP_NUM_THREADS"] == other["MKL_NUM_THREADS"] == "3"
    assert own["PYTHONPATH"].endswith("src") and other["PYTHONPATH"] == ""
    line = peers["starting"].command("torch", Path("python"), "train", shape="small", threads=2)
    assert line[:3] == ["python", str(PEERS / "adapters" / "peer_torch.py"), "train"]
    assert line[3:] == ["--data", str(ROOT / "build" / "peers" / "data"), "--shape", "small",
                        "--threads", "2"]  # fmt: skip
