"""The first five minutes, in small: everything that it promises is there at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.quickstart import main


def test_everything_is_written_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["train.max_steps=2", "train.validation.every=2", "train.schedule.warmup_steps=1"]
    small = ["task.tokenizer.vocab_size=300", "train.batch_tokens=256", "decode.max_extra=3"]
    figures = main(
        tmp_path, {"train": 60, "valid": 6, "test": 10}, [*short, *small, "decode.max_ratio=1.0"]
    )
    assert set(figures) == {"bleu", "chrf", "ter", "exact_match", "aer"}
    assert 0 <= figures["aer"] <= 1
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    said = capsys.readouterr()
    assert "</s>" in said.out  # the picture in the terminal
    assert f"foveate translate {tmp_path / 'run'}" in said.err.replace("\n", "")
