"""Runs as ONNX, as packages of Argos; the verbs."""

import copy
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.exchange.argos import MODEL, answers, unpacked
from foveate.exchange.base import POINTER, Different, ExchangeError, export, sample_of, targets
from foveate.run import Run
from small_runs import CONFIGS, invoked, made
from variants import at_scale, transformer, translator


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("others")
    result = made(folder, list(CONFIGS), 2)
    for tokenizer in ("bpe", "unigram"):
        result[tokenizer] = translator(folder, tokenizer, 20)
    return result


def exported(run: Run, out: Path, to: str, base: Run, **choices: Any) -> Any:
    return export(run, out, to, sample_of(base, 20), **choices)[1]


PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "post": {"norm_order": "post", "position": "learned", "tie": "none"},
    "rope": {"position": "rope", "feed_forward": "swiglu", "attention": {"key_heads": 1}},
    "alibi": {"position": "alibi", "norm": "rms_norm", "feed_forward": "gelu"},
    "cosine": {"attention": {"score": "cosine"}, "embedding_norm": "layer_norm"},
    "additive": {"attention": {"score": "additive"}, "feed_forward": "gelu_tanh"},
    "plain order": {"norm_order": "plain", "position": "none"},
    "ablated": {"feed_forward": "none", "norm": "batch_norm", "attention": {"value_size": 6}},
    "dense, no norm": {"stem": "dense", "norm": "none"},
}


@pytest.mark.parametrize("name", at_scale(sorted(PARTS), ("plain", "rope", "additive", "ablated")))
def test_graphs_give_the_same_tokens(runs: dict[str, Run], tmp_path: Path, name: str) -> None:
    run = transformer(runs["transformer"], **PARTS[name])
    checked = exported(run, tmp_path / "out", "onnx", run)
    assert checked.sentences == 7 and checked.tokens and not checked.ties


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_the_example_of_an_export_translates_without_foveate(runs, tmp_path, to) -> None:
    run, line = runs["bpe"], "the dog runs"
    exported(run, tmp_path / "out", to, run)
    command = [sys.executable, "example.py", line]
    done = subprocess.run(
        command, cwd=tmp_path / "out", capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert done.stdout.strip() == str(run.translate([line], beam_size=1)[0]), done.stderr
    assert "foveate" not in (tmp_path / "out" / "example.py").read_text()
    assert "tokenizer" not in json.loads((tmp_path / "out" / "foveate.json").read_text())


def test_graphs_refuse_what_they_cannot_say(runs: dict[str, Run], tmp_path: Path) -> None:
    local = transformer(runs["transformer"], attention="local")
    location = {"score": {"kind": "location", "softmax_over": "max_length"}}
    printed = transformer(runs["transformer"], attention=location)
    appended = {"kind": "appended", "features": 6}
    joined = transformer(runs["transformer"], position=appended, tie="none")
    for run, reason in (
        (runs["rnn"], "no loop over the words of a sentence, which recurrent needs"),
        (runs["vit"], "takes translations here, .* has the task image_classification"),
        (printed, r'.*score.softmax_over = "max_length"'),
        (joined, "not support joined positions; use sinusoidal"),
        (local, r"self_attention has the kind local, whose shape depends on the length"),
    ):
        with pytest.raises(ExchangeError, match=reason):
            exported(run, tmp_path / "out", "onnx", runs["rnn"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_a_package_translates_as_the_run_does(runs, tmp_path, tokenizer) -> None:
    run, out = runs[tokenizer], tmp_path / "out.argosmodel"
    checked = exported(run, out, "argos", run, languages=("en", "fr"))
    assert checked.sentences == 7 and not checked.cut_otherwise
    exported(run, tmp_path / "again.argosmodel", "argos", run, languages=("en", "fr"))
    assert out.read_bytes() == (tmp_path / "again.argosmodel").read_bytes(), "made again"
    with zipfile.ZipFile(out) as archive:
        names = set(archive.namelist())
        output = json.loads(archive.read("translate-en_fr-1_0/metadata.json"))
        assert b".tsv" not in archive.read(f"translate-en_fr-1_0/{MODEL}"), "a passing file"
    expected = {"metadata.json", MODEL, POINTER, "model/model.bin", "model/config.json"}
    assert {f"translate-en_fr-1_0/{name}" for name in expected} <= names
    assert (output["from_code"], output["to_code"], output["type"]) == ("en", "fr", "translate")
    with unpacked(out) as folder:
        assert len(answers(folder, ["the dog runs", "élan ☃  x"])) == 2


def test_argos_says_why_a_run_cannot(runs: dict[str, Run], tmp_path: Path) -> None:
    out = tmp_path / "out.argosmodel"
    word, bpe = runs["transformer"], runs["bpe"]
    for run, place, reason in (
        (word, out, "tokenizer word is not a SentencePiece model: train with bpe"),
        (bpe, tmp_path / "out", r"is a file that ends in \.argosmodel"),
        (runs["rnn"], out, r"ctranslate2 has no encoder\.kind = 'recurrent'"),
    ):
        with pytest.raises(ExchangeError, match=reason):
            exported(run, place, "argos", bpe, languages=("en", "fr"))
    assert not list(tmp_path.iterdir())


def test_every_target_takes_or_refuses_every_run(runs: dict[str, Run]) -> None:
    for target in targets().values():
        for run in runs.values():
            try:
                target(run, "float32", ("en", "fr")).refuse()
            except ExchangeError as error:
                assert len(str(error)) > 40, "a reason, and what would fit"


@pytest.mark.parametrize("to", ["argos", "ctranslate2", "huggingface", "onnx"])
def test_a_part_of_ones_own_is_refused_by_name_or_computed(runs, tmp_path: Path, to: str) -> None:
    """The task, a tokenizer, and each class of the model in turn is a derived one."""
    run = copy.deepcopy(runs["bpe"])
    parts = {type(each): each for each in (run.task, run.task.tokenizers[0], *run.model.modules())}
    traced = ("Translation", "BPE", "TransformerDecoder", "Attention", "ReLU")
    for kind, part in parts.items():
        name = f"My{kind.__name__}"
        if to == "onnx" and kind.__name__ not in traced:
            continue
        part.__class__ = type(name, (kind,), {"__module__": "mine"})
        out = tmp_path / f"{name}.argosmodel"
        try:
            checked = exported(run, out, to, runs["bpe"], languages=("en", "fr"))
        except ExchangeError as error:
            assert name in str(error) and not out.exists()
        else:
            assert to == "onnx" and name == "MyReLU" and checked.sentences
        part.__class__ = kind


def test_the_verb(runs: dict[str, Run], tmp_path: Path) -> None:
    run, out = str(runs["transformer"].path), tmp_path / "out"
    inputs = ["export", run, str(out), "--to", "ctranslate2", "--check", "3"]
    result = invoked(*inputs)
    assert "the same" in result.stdout and "3 sentences" in result.stdout
    (tmp_path / "lines").write_text("\n", "utf-8")
    spoilt = [*inputs[:2], str(tmp_path / "x"), *inputs[3:], "--sample", str(tmp_path / "lines")]
    assert "is empty: give lines to try" in str(CliRunner().invoke(app, spoilt).exception)


def test_a_tokenizer_that_cuts_otherwise_is_refused(runs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("foveate.exchange.argos.differing", lambda *_: [0, 1])
    with pytest.raises(Different, match="2 of 7 lines are cut differently by SentencePiece"):
        run, out = runs["bpe"], tmp_path / "x.argosmodel"
        exported(run, out, "argos", run, languages=("en", "fr"))
    assert not list(tmp_path.iterdir())
