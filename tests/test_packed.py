"""A packed file answers as its run does, without PyTorch, and refuses what it cannot read or do."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

import foveate.engine.packed
from foveate.align.shortlist import learn
from foveate.cli.serve import ServerEngine
from foveate.config import PACKAGED
from foveate.decode.engine import SearchStopped
from foveate.engine import compiled
from foveate.engine.compiled import SETS
from foveate.engine.links import Head
from foveate.engine.packed import KEY, NAME, PackedError, PackedModel, packed_file
from foveate.engine.program import CannotPack
from foveate.errors import UserError
from foveate.nn.native.kernels import without_kernels
from foveate.run import Run
from foveate.run.pack import pack
from foveate.run.training import train
from small_runs import LANGUAGE, made, python, running, trained, write_data

LINES = ["a b c", "", "c a a b", "b", "a unknown b"]


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Runs are answered by PyTorch's modules, with which packed files are compared."""
    with without_kernels():
        yield


def no_torch(folder: Path, *others: str) -> dict[str, str]:
    """The environment of a process that cannot import PyTorch, matplotlib and the like."""
    names = ("torch", "matplotlib", "jaxtyping", "sacrebleu", *others)
    code = f"import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"
    (folder / "sitecustomize.py").write_text(code)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def without_torch(folder: Path, *words: object, text: str = "", lacking: Sequence[str] = ()) -> Any:
    """What ``foveate`` returns in a process that cannot import PyTorch."""
    own = no_torch(folder, *lacking)
    return python("-m", "foveate", *words, input=text, cwd=folder, env=own)


def packed(run: Run, folder: Path, precision: str = "fp32") -> PackedModel:
    return foveate.engine.packed.load(pack(run, folder / "m.safetensors", precision))


each_translator = pytest.mark.parametrize("name", ["transformer", "rnn"])


def same_answers(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    for own, other in zip(ours, theirs, strict=True):
        assert (own.hypotheses, own.cut, own.source) == (other.hypotheses, other.cut, other.source)
        np.testing.assert_allclose(own.scores, other.scores, rtol=0, atol=1e-4)


@each_translator
def test_translations_and_scores_are_those_of_the_run(runs, tmp_path, name) -> None:
    run, model = runs[name], packed(runs[name], tmp_path)
    sources = [*run.pairs("valid")[0], *LINES]
    for how in ({}, {"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 3},
                {"beam_size": 3, "length_penalty": 0.0}):  # fmt: skip
        same_answers(model.translate(sources, **how), run.translate(sources, **how))
    begun = [str(a).split(" ")[0] for a in run.translate(sources)[::-1]]
    same_answers(*(r.translate(sources, beam_size=2, prefix=begun) for r in (model, run)))
    pairs = list(zip(*run.pairs("valid"), strict=True))
    for own, other in zip(model.score(pairs), run.score(pairs), strict=True):
        assert own.tokens == other.tokens
        assert own.log_probability == pytest.approx(other.log_probability, abs=1e-4)


@each_translator
def test_word_links_and_banned_phrases_are_those_of_the_run(runs, tmp_path, name) -> None:
    run, model = runs[name], packed(runs[name], tmp_path)
    pairs = list(zip(*run.pairs("valid"), strict=True))
    for head in (None, Head(rows="read"), Head(layer=0, head=0)):
        assert model.links(pairs, head) == run.links(pairs, head)
    ours, theirs = model.translate(LINES, beam_size=2), run.translate(LINES, beam_size=2)
    assert [a.alignment() for a in ours] == [a.alignment() for a in theirs]
    words = sorted({word for answer in theirs for word in str(answer).split()})[:2]
    ours, theirs = (r.translate(LINES, beam_size=2, banned=words) for r in (model, run))
    same_answers(ours, theirs)
    assert not any(word in str(answer).split() for answer in ours for word in words)


@pytest.mark.filterwarnings("ignore:not in the target vocabulary")
@each_translator
def test_required_terms_are_those_of_the_run(runs, tmp_path, name) -> None:
    """A term that no token spells is left out; a source may have none."""
    run, model = runs[name], packed(runs[name], tmp_path)
    lines = ["the dog runs", "a cat sleeps", "", "a girl eats"]
    terms = [[["mange", "dort"], ["le chien"]], [], [["chat"]], [["zzz"], ["homme"]]]
    how = {"beam_size": 4, "num_hypotheses": 2}
    for more in ({}, {"banned": ["court"]}, {"prefix": ["un", "une", "", "le"]}):
        ours, theirs = (r.translate(lines, required=terms, **how, **more) for r in (model, run))
        same_answers(ours, theirs)
        assert "le chien" in str(ours[0]).lower() and "homme" in str(ours[3]).lower()


def test_a_glossary_works_without_pytorch(runs: dict[str, Run], tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tchat|cheval\n", "utf-8")
    file = pack(runs["transformer"], tmp_path / "m.safetensors")
    options = ("--beam-size", 4, "--glossary", "terms.tsv", "--force", "dort", "-v")
    done = without_torch(tmp_path, "translate", file, *options, text="the dog runs\na cat\n")
    assert not done.returncode, done.stderr
    first, second = done.stdout.splitlines()
    assert "chat" in first and "dort" in first and "dort" in second
    assert "3 of 3 terms present" in done.stderr and "engine: packed" in done.stderr


def test_a_shortlist_is_in_the_file(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["transformer"].path, folder)
    run = foveate.load(folder)
    learn(run.task, 3, 3).save(folder)
    run = run.decoding(shortlist=True)
    model = packed(run, tmp_path)
    for line in run.pairs("valid")[0]:  # alone, since PyTorch joins the shortlists of a batch
        same_answers(*(r.translate([line], beam_size=2) for r in (model, run)))


def test_texts_longer_than_a_model_reads_at_once(tmp_path: Path) -> None:
    write_data(tmp_path)
    decoder = 'kind = "transformer"\nhidden_size = 16\nnum_heads = 2\nnum_layers = 1\n'
    text = LANGUAGE.partition('kind = "recurrent"')[0] + decoder
    run = trained(tmp_path, text, steps=20)
    model, how = packed(run, tmp_path), {"beam_size": 1, "max_length": 80}
    own, other = (r.generate(["ab", "é"], **how) for r in (model, run))
    assert [c.text for c in own] == [c.text for c in other]
    texts: list[str] = []
    (answer,) = model.generate(["ab"], max_length=10, beam_size=1, listen=texts.append)
    assert texts and all(answer.text.startswith(text.rstrip("\ufffd")) for text in texts)


def test_labels_are_those_of_the_run(runs, tmp_path) -> None:
    run = runs["classifier"]
    for own, other in zip(packed(run, tmp_path).classify(LINES), run.classify(LINES), strict=True):
        assert (own.label, own.cut) == (other.label, other.cut)
        assert own.probabilities == pytest.approx(other.probabilities, abs=1e-5)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_rounded_weights_make_a_smaller_file_that_answers(runs, tmp_path, precision) -> None:
    run = runs["transformer"]
    whole = pack(run, tmp_path / "whole.safetensors").stat().st_size
    model = packed(run, tmp_path, precision)
    assert model.path.stat().st_size < whole
    ours, theirs = model.score([("a b", "b a")]), run.score([("a b", "b a")])
    assert ours[0].log_probability == pytest.approx(theirs[0].log_probability, abs=0.1)
    if precision == "int8":  # rounded as it is read, they are the same
        again = foveate.engine.packed.load(tmp_path / "whole.safetensors", int8=True)
        assert again.score([("a b", "b a")]) == ours


def test_threads_change_no_bit(runs: dict[str, Run], tmp_path: Path) -> None:
    file = pack(runs["transformer"], tmp_path / "m.safetensors")
    lines = list(runs["transformer"].pairs("train")[0]) * 20
    one, three = (foveate.engine.packed.load(file, threads).translate(lines) for threads in (1, 3))
    assert [a.scores for a in one] == [a.scores for a in three]


@pytest.mark.parametrize("engine", ["packed", "torch"])
def test_a_search_stops_when_it_is_no_longer_wanted(runs, tmp_path, engine, monkeypatch) -> None:
    """It asks every few positions; being asked changes no bit."""
    monkeypatch.setattr(compiled, "POSITIONS", 1)
    model: Any = packed(runs["rnn"], tmp_path) if engine == "packed" else runs["rnn"]
    right, asked = model.translate(LINES, num_hypotheses=2), list[int]()
    assert model.translate(LINES, num_hypotheses=2, stop=lambda: asked.append(1)) == right
    assert len(asked) > 2
    left = iter([False, False])
    with pytest.raises(SearchStopped):
        model.translate(LINES, stop=lambda: next(left, True))


def test_ctrl_c_ends_a_long_search(runs: dict[str, Run], tmp_path: Path) -> None:
    """In all threads: a search of a million tokens would take hours."""
    file = pack(runs["language"], tmp_path / "m.safetensors")
    program = "import signal, sys, foveate.engine.packed as p; m = p.load(sys.argv[1], 2);"
    # tests that run in the background of a shell inherit that SIGINT is ignored
    program += "signal.signal(signal.SIGINT, signal.default_int_handler); print(flush=1);"
    program += "m.generate(['a', 'b', 'c'], max_length=10**6, beam_size=2)"
    command = [sys.executable, "-c", program, str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(command, text=True, env=no_torch(tmp_path), **pipes) as process:
        assert process.stdout.readline() == "\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) and "KeyboardInterrupt" in process.communicate()[1]


def test_runs_that_ship_and_folders_need_no_pytorch(tmp_path: Path) -> None:
    """A run with its packed file, and a folder of documents by a run or a packed file; lines need
    neither matplotlib and the like nor other verbs.
    """
    others = ("filelock", "tomlkit", "rich", "huggingface_hub", "foveate.cli.train")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("A dog runs.\n", "utf-8")
    right = str(foveate.load(PACKAGED / "en-fr").translate(["A dog runs."])[0])
    for n, model in enumerate(("packaged/en-fr", PACKAGED / "en-fr" / NAME)):
        for folders in ((), ("--in", tmp_path / "in", "--out", tmp_path / f"out{n}")):
            words = ("translate", model, *folders)
            lacking = () if folders else others
            done = without_torch(tmp_path, *words, text="A dog runs.\n", lacking=lacking)
            assert not done.returncode, done.stderr
            assert folders or done.stdout == f"{right}\n"
        assert (tmp_path / f"out{n}" / "a.txt").read_text("utf-8") == f"{right}\n"


@pytest.mark.parametrize("verb", ["train a.toml", "evaluate run", "answer run 1"])
def test_a_verb_that_needs_pytorch_says_how_to_install_it(tmp_path: Path, verb: str) -> None:
    (tmp_path / "run").mkdir()
    for file in ("a.toml", "run/config.toml"):  # what is there is found before PyTorch is needed
        (tmp_path / file).write_text("seed = 1\n", "utf-8")
    done = without_torch(tmp_path, *verb.split())
    assert done.returncode == 2 and "pip install" in done.stderr and "[train]" in done.stderr
    assert done.stderr.startswith("error: this needs the package") and "Trace" not in done.stderr


def test_the_verbs_take_a_file_and_that_of_a_run(runs, tmp_path, call) -> None:
    """Which engine translates is in tests/test_cli_run.py."""
    folder = tmp_path / "run"
    shutil.copytree(runs["transformer"].path, folder)
    by_file = call("translate", folder / NAME, "-v", text=b"a b\n")
    assert by_file.out == call("translate", folder, text=b"a b\n").out
    assert "engine: packed" in by_file.err
    scored = call("score", folder / NAME, text=b"a b\tb a\n")
    by_torch = call("score", folder, "--engine", "torch", text=b"a b\tb a\n")
    assert float(scored.out) == pytest.approx(float(by_torch.out), abs=1e-4)
    (folder / NAME).unlink()
    missing = call("translate", folder, "--engine", "packed", text=b"a b\n")
    assert missing.code == 2 and "foveate pack" in missing.err
    first, again = call("pack", folder), call("pack", folder)
    assert not (first.code or again.code)
    assert "in place of" not in first.out and "in place of what was there" in again.out
    assert packed_file(folder)[0] == folder / NAME


def test_a_training_that_had_ended_says_nothing_of_its_file_again(tmp_path, capsys) -> None:
    run = made(tmp_path, ["rnn"], steps=4)["rnn"]
    said = f"{run.path / NAME}: "
    assert said in capsys.readouterr().err
    written = (run.path / NAME).stat().st_mtime_ns
    train(tmp_path / "rnn.toml", folder=run.path)
    assert said not in capsys.readouterr().err
    assert (run.path / NAME).stat().st_mtime_ns == written
    (run.path / NAME).unlink()
    train(tmp_path / "rnn.toml", folder=run.path)
    assert said in capsys.readouterr().err


def test_a_file_of_another_checkpoint_is_left_aside(runs, tmp_path, call) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["transformer"].path, folder)
    pack(foveate.load(folder, "10"), folder / NAME)
    assert packed_file(folder)[0] is None
    answer = call("translate", folder, "-v", text=b"a\n")
    assert "was not made from the best checkpoint" in answer.err


def test_what_the_engine_lacks_is_named(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(CannotPack, match="task image_classification"):
        pack(runs["vit"], tmp_path / "m.safetensors")
    with pytest.raises(PackedError, match="lacks the search diverse_beam"):
        pack(runs["rnn"].decoding("diverse_beam"), tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()
    with pytest.raises(UserError, match="cannot generate"):
        packed(runs["rnn"], tmp_path).generate(["a"])
    with pytest.raises(UserError, match="greedy search cannot force terms"):
        packed(runs["rnn"], tmp_path).translate(["a"], 1, required=[[["b"]]])


def test_the_doctor_examines_the_engine_without_pytorch(tmp_path: Path) -> None:
    done = without_torch(tmp_path, "doctor")
    assert not done.returncode
    lines = {line[:24].strip(): line[25:] for line in done.stdout.splitlines()}
    assert lines["torch"].startswith("absent (training and most views use it; ")
    assert lines["engine"].split(":")[0] in SETS
    assert "GFLOP/s" not in done.stdout and not done.stderr


def test_a_server_chooses_its_engine_without_loading_a_model(runs, monkeypatch) -> None:
    monkeypatch.setattr(foveate.engine.packed, "load", None)
    folder = runs["transformer"].path
    assert ServerEngine().threads([folder, folder / NAME], 3) == 3


def test_damaged_files_are_refused_in_a_sentence(runs: dict[str, Run], tmp_path: Path) -> None:
    good = pack(runs["transformer"], tmp_path / "good.safetensors")
    name = next(iter(load_file(good)))

    header, tensors = foveate.engine.packed.read(good)[0].tree(), load_file(good)
    zeros = np.zeros((3, 3), dtype=np.float32)
    for match, fields, more in (
        ("layout 2", {"version": 2}, {}),
        ("header is damaged", {"task": "painting"}, {}),
        ("header is damaged", {"program": None, "unknown": 1}, {}),
        ("no tokenizer", {"tokenizers": {}}, {}),
        ("the tokenizer cannot be read", {"tokenizers": {"source": {}, "target": {}}}, {}),
        ("does not fit", {"program": [1.0, 1.0]}, {}),
        ("not finite", {}, {name: np.full_like(zeros, np.nan)}),
        ("does not fit", {}, {name: zeros}),
        ("no scale", {}, {name: zeros.astype(np.int8)}),
    ):
        own = {key: value for key, value in (header | fields).items() if value is not None}
        good.write_bytes(save(tensors | more, {KEY: json.dumps(own)}))
        with pytest.raises(UserError, match=match):
            foveate.engine.packed.load(good)
    for content, match in (
        (b"not a model", "is not a packed file"),
        (save({"a": np.zeros(3)}), "does not hold a foveate model"),
    ):
        good.write_bytes(content)
        with pytest.raises(PackedError, match=match):
            foveate.engine.packed.load(good)


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_file_with_any_byte_changed_or_cut_anywhere_never_crashes(runs, share, byte, cut) -> None:
    file = runs["transformer"].path.parent / "fuzzed.safetensors"
    content = bytearray(pack(runs["transformer"], file).read_bytes())
    place = int(share * (len(content) - 1))
    content[place] = byte
    file.write_bytes(content[:place] if cut else content)
    with contextlib.suppress(UserError):
        foveate.engine.packed.load(file).translate(["a b"])
