"""The log: a line an event, no line twice after resuming, torn lines gone, TensorBoard asked."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from foveate.train.checkpoint import TrainError
from foveate.train.journal import Journal, read


def written(run: Path, steps: range) -> None:
    journal = Journal(run, 0)
    for step in steps:
        journal.write("train", step, loss=1 / step)
    journal.close()


def test_lines_stand_in_the_file_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.write("valid", 3, bleu=31.5, samples=[{"source": "é"}], loss=float("nan"))
    line = json.loads((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert line["event"] == "valid" and line["step"] == 3 and line["bleu"] == 31.5
    assert line["loss"] is None and line["samples"] == [{"source": "é"}]
    journal.close()


def test_resuming_cuts_the_lines_that_come_again(tmp_path: Path) -> None:
    written(tmp_path, range(1, 8))
    journal = Journal(tmp_path, 4)
    assert journal.cut == 3
    for step in range(5, 8):
        journal.write("train", step, loss=0.0)
    journal.close()
    assert [line["step"] for line in read(tmp_path)] == list(range(1, 8))


@pytest.mark.parametrize("torn", ['{"event": "tr', '{"event": "train", "step": 3}'])
def test_a_torn_last_line_spoils_nothing(tmp_path: Path, torn: str) -> None:
    written(tmp_path, range(1, 3))
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write(torn)
    journal = Journal(tmp_path, 9)
    journal.write("train", 4, loss=0.0)
    journal.close()
    kept = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in kept] == ([1, 2, 3, 4] if torn.endswith("}") else [1, 2, 4])


def test_any_text_can_be_a_sample(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.write("valid", 1, samples=["a\ud800\u2028\r\nb"])
    journal.close()
    assert read(tmp_path)[0]["samples"] == ["a\ud800\u2028\r\nb"]


def test_tensorboard_is_written_or_its_extra_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(TrainError, match=r"foveate\[track\]"):
            Journal(tmp_path, 0, tensorboard=True)
        return
    journal = Journal(tmp_path, 0, tensorboard=True)
    journal.write("train", 1, loss=0.5)
    journal.close()
    assert list((tmp_path / "tensorboard").iterdir())
