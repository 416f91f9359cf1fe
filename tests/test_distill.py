"""A teacher's outputs as data: a line for a line, whole or not at all, on from where it stopped."""

import json
from pathlib import Path

import pytest

import foveate
from foveate import cli
from foveate.config import ConfigError, parse_tree
from foveate.data.text import TextData
from foveate.run import Run, RunConfig
from foveate.run.training import train, write_distilled
from task_tools import read_split

SOURCES = [f"{a} {b}" for a in ("dog", "cat", "tab\there", "") for b in ("runs", "sleeps", "")]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("teacher")
    for split, sources in (("train", SOURCES), ("valid", SOURCES[:2])):
        rows = (json.dumps({"source": s, "target": s.upper()}) + "\n" for s in sources)
        (folder / f"{split}.jsonl").write_text("".join(rows), encoding="utf-8")
    small = {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8}
    tree = {
        "task": {
            "kind": "translation",
            "source": str(folder / "{split}.jsonl"),
            "tokenizer": {"kind": "character"},
        },
        "model": {"kind": "encoder_decoder", "encoder": small, "decoder": small},
        "train": {"max_steps": 1, "precision": "fp32"},
    }
    return train(parse_tree(RunConfig, tree), folder=folder / "run")


def test_output_has_a_line_for_each_source_and_true_pairs(teacher: Run, tmp_path: Path) -> None:
    output = write_distilled(teacher, tmp_path, {"beam_size": 2})
    sources, _ = teacher.pairs("train")
    written = read_split(tmp_path / "{split}.jsonl", None, "train", TextData())
    answers = [str(answer) for answer in teacher.translate(sources, beam_size=2)]
    assert (written.sources, written.targets) == (sources, answers)
    true = read_split(tmp_path / "{split}.jsonl", None, "valid", TextData())
    assert true.targets == [source.upper() for source in SOURCES[:2]]
    assert output[0].startswith("12 lines") and "no test data" in output[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train.jsonl", "valid.jsonl"]
    with pytest.raises(ConfigError, match="already exists"):
        write_distilled(teacher, tmp_path, {})


def test_distillation_resumes_where_it_stopped(teacher: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("foveate.run.training.CHUNK", 5)
    write_distilled(teacher, tmp_path / "whole", {"beam_size": 2})

    def stop(done: int, of: int) -> None:
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_distilled(teacher, tmp_path / "parts", {"beam_size": 2}, stop)
    part = tmp_path / "parts" / "train.jsonl.part"
    assert not (tmp_path / "parts" / "train.jsonl").exists()
    with part.open("a", encoding="utf-8") as file:
        file.write('{"source": "half a li')
    with pytest.raises(ConfigError, match="started with another teacher"):
        write_distilled(teacher, tmp_path / "parts", {"beam_size": 1})
    output = write_distilled(teacher, tmp_path / "parts", {"beam_size": 2})
    assert "resumed from line 11" in output
    item, other = (tmp_path / n / "train.jsonl" for n in ("whole", "parts"))
    assert item.read_bytes() == other.read_bytes()


def test_the_command(teacher: Run, tmp_path: Path, monkeypatch, capsys) -> None:
    words = ["foveate", "distill", str(teacher.path), "--out", str(tmp_path), "--beam-size", "1"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code in (0, None)
    assert "12 lines" in capsys.readouterr().out
    assert foveate.load(teacher.path).pairs("valid")[0] == SOURCES[:2]


def test_several_teachers_search_together(teacher: Run, tmp_path: Path, monkeypatch) -> None:
    other = train(teacher.config.model_copy(update={"seed": 7}), folder=tmp_path / "other")
    words = ["distill", teacher.path, "--ensemble", other.path, "--out", tmp_path / "out"]
    monkeypatch.setattr("sys.argv", ["foveate", *map(str, words), "--beam-size", "1"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code in (0, None)
    written = read_split(tmp_path / "out" / "{split}.jsonl", None, "train", TextData())
    both = foveate.load(teacher.path, ensemble=[other.path])
    answers = [str(answer) for answer in both.translate(SOURCES, beam_size=1)]
    alone = [str(answer) for answer in teacher.translate(SOURCES, beam_size=1)]
    assert written.targets == answers != alone
