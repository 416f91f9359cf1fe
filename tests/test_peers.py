"""The comparison with peers: its tables come from results, its order is A B A B, failures stay."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

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


def test_the_order_is_a_b_a_b(peers: dict[str, ModuleType]) -> None:
    compare, group = peers["compare"], peers["rows"].GROUPS[0]
    work = compare.Comparison(1.0, 2, 1, 0, ["torch"], [group])
    order = [(row.mode, number) for _, row, number in work.due()]
    modes = [row.mode for row in work.rows(group)]
    assert order == [(mode, number) for number in range(2) for mode in modes]


def test_medians_and_reasons(peers: dict[str, ModuleType]) -> None:
    together = peers["compare"].together
    records = [
        {"figure": f, "peak_rss_mib": 10.0, "products_gflops": [9.0, 9.0], "disturbed": f > 5}
        for f in (3.0, 9.0, 4.0)
    ]
    row = together([*records, {"error": "ran out of memory"}])
    assert row["median"] == 4.0 and row["all"] == [3.0, 9.0, 4.0] and row["disturbed"] == 1
    assert together([{"error": "no such wheel"}]) == {"error": "no such wheel"}
    assert peers["compare"].median([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0}


def test_a_table_of_training(peers: dict[str, ModuleType], tmp_path: Path) -> None:
    row = {"padding_share": 0.5, "peak_rss_mib": 100.0}
    result = {
        "what": "train", "rounds": 3, "seconds": 30, "data": "Multi30k en-fr",
        "ceilings_gflops": {"fp32": 296.0, "bf16": 160.0},
        "machine": {"threads": 2, "cpu": "C", "torch": "T", "date": "D", "commit": "abc"},
        "rows": [
            {"peer": "foveate", "said": "foveate", "median": 400.0, "all": [4e2] * 3, **row},
            {"peer": "joeynmt", "said": "JoeyNMT", "median": 100.0, "all": [1e2], **row,
             "disturbed": 1},
            {"peer": "eole", "said": "Eole", "error": "not installed"},
        ],
    }  # fmt: skip
    (tmp_path / "peers-train-small.json").write_text(json.dumps(result), encoding="utf-8")
    text = peers["table"].tables(tmp_path)
    assert "| foveate | 400 | 4.0 | 50% | 100 |" in text
    assert "Medians of 1 to 3 windows of 30 s" in text
    assert text.index("| JoeyNMT |") < text.index("| foveate |")
    assert "Eole did not run: not installed." in text and "else ran: JoeyNMT" in text


def test_the_window_counts_whole_steps_after_the_warm_up(peers: dict[str, ModuleType]) -> None:
    common = peers["common"]
    window = common.Window(0.0)
    with pytest.raises(common.Done):
        for _ in range(100):
            window.begin(10, 15, 20)
    report = window.report()
    assert report["steps"] == common.LEAST and report["padding_share"] == 0.25
    assert report["target_tokens_per_second"] == pytest.approx(
        10 * common.LEAST / window.spent, rel=0.01
    )


def test_rows_of_a_batch_hold_the_budget_in_the_mean(peers: dict[str, ModuleType]) -> None:
    common = peers["common"]
    job = common.Job("small", "fp32", 1.0, Path(), Path(), 1)
    alike = [[1] * 15] * 100
    assert common.random_rows(job, alike, alike) == common.BATCH_TOKENS // 16
    assert common.sorted_rows(job, alike, alike) == common.BATCH_TOKENS // 16
    mixed = [[1] * n for n in range(1, 31)]
    assert common.random_rows(job, mixed, mixed) < common.sorted_rows(job, mixed, mixed)


STUB = """
import sys
print("a peer says much")
if "slow" in sys.argv:
    sys.exit("ValueError: it cannot")
print('{"target_tokens_per_second": 7.0}')
"""


def test_a_report_is_the_last_line_and_a_failure_leaves_its_reason(
    peers: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, rows = peers["compare"], peers["rows"]
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "peer_stub.py").write_text(STUB, encoding="utf-8")
    monkeypatch.setattr(peers["starting"], "HERE", tmp_path)
    monkeypatch.setattr(compare, "BUILD", tmp_path)
    group = rows.Group("train", "small", ())
    work = compare.Comparison(1.0, 1, 1, 0, [], [group])
    python = Path(sys.executable)
    good = compare.run(work, group, rows.Row("stub", "fast", "stub"), python)
    assert good["figure"] == 7.0
    bad = compare.run(work, group, rows.Row("stub", "slow", "stub"), python)
    assert bad == {"error": "ValueError: it cannot"}


def test_our_own_adapter_runs_on_the_data(
    peers: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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


class Pieces:
    """A task of three sentences, whose pieces are words."""

    target_tokenizer = SimpleNamespace(pieces=["un", "chien", "noir", "court"])
    references = ("un chien noir court", "un chien court", "chien noir un court")

    def __init__(self) -> None:
        pieces = self.target_tokenizer.pieces
        self.target_tokenizer.decode = lambda ids: " ".join(pieces[i] for i in ids)

    def corpus(self, split: str) -> SimpleNamespace:
        assert split == "valid"
        return SimpleNamespace(targets=self.references)


def test_a_training_is_watched_until_it_is_good_enough(
    peers: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A look has a BLEU or outputs; what else a peer prints is passed over; the goal ends it."""
    good = [line.split(" ") for line in Pieces.references]
    output = [{"step": 10, "bleu": 3.5}, {"step": 20, "outputs": good}, {"step": 30, "bleu": 1.0}]
    lines = "\n".join(["hello", *map(json.dumps, output)])
    script = f"print({lines!r}, flush=True); import time; time.sleep(60)"
    quality = peers["quality"]
    monkeypatch.setattr(quality, "command", lambda *_, **__: [sys.executable, "-c", script])
    monkeypatch.setattr(quality, "python_of", lambda peer: Path(sys.executable))
    monkeypatch.setattr(quality, "BUILD", tmp_path)
    inputs = SimpleNamespace(shape="tiny", threads=1, every=10, goal=50.0)
    looks = list(quality.learn("joeynmt", inputs, Pieces(), range(1)))
    assert [(item["step"], item["bleu"]) for item in looks] == [(10, 3.5), (20, 100.0)]
    assert 0 <= looks[0]["minutes"] <= looks[1]["minutes"] < 1
    assert looks[0].keys() == {"step", "bleu", *quality.UNITS}


def test_trainings_are_compared_at_equal_bleu(peers: dict[str, ModuleType]) -> None:
    def look(bleu: float, minutes: float) -> dict[str, float]:
        return {"bleu": bleu, "minutes": minutes, "processor_minutes": 2 * minutes}

    ours, theirs = [look(10, 1), look(20, 2), look(40, 3)], [look(5, 2), look(15, 6), look(30, 20)]
    result = peers["quality"].equal(ours, theirs)
    assert result == [
        look(15, 4) | {"processor_minutes": 4},
        look(30, 8) | {"processor_minutes": 8},
    ]


def test_an_adapter_finds_the_threads_and_sources_it_is_meant_to(
    peers: dict[str, ModuleType],
) -> None:
    own, other = (peers["starting"].environment(peer, 3) for peer in ("foveate", "joeynmt"))
    assert own["OMP_NUM_THREADS"] == other["MKL_NUM_THREADS"] == "3"
    assert own["PYTHONPATH"].endswith("src") and other["PYTHONPATH"] == ""
    line = peers["starting"].command("torch", Path("python"), "train", shape="small", threads=2)
    assert line[:3] == ["python", str(PEERS / "adapters" / "peer_torch.py"), "train"]
    assert line[3:] == ["--data", str(ROOT / "build" / "peers" / "data"), "--shape", "small",
                        "--threads", "2"]  # fmt: skip
