"""``foveate bench``: thin verbs over `foveate.bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bench_tiny
from foveate.bench import decoding, training
from foveate.cli import app


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for module in (training, decoding):
        monkeypatch.setattr(module, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    return str(bench_tiny.write(tmp_path))


def test_train_as_json(tiny: str) -> None:
    done = CliRunner().invoke(
        app, ["bench", "train", tiny, "--seconds", "0.1", "--quick", "--json"]
    )
    result = json.loads(done.stdout)
    assert result["shape"] == "tiny" and result["target_tokens_per_second"] > 0


def test_decode_for_people(tiny: str) -> None:
    arguments = ["bench", "decode", tiny, "--seconds", "0.1", "--sentences", "3"]
    done = CliRunner().invoke(app, [*arguments, "--precision", "fp32"])
    assert done.exit_code == 0, done.output
    assert "greedy, one by one" in done.stdout and "machine: " in done.stdout
    assert "its data and tokenizers" in done.stderr
    assert "greedy, one by one: 3 sentences" in done.stderr


def test_help_names_the_four() -> None:
    done = CliRunner().invoke(app, ["bench", "--help"])
    for verb in ("train", "decode", "memory", "length"):
        assert f" {verb} " in done.stdout
