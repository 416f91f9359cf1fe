"""Installed models: found by names, listed, refused where absent; how their package is made."""

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import models
from foveate.engine import packed
from foveate.run import Run
from foveate.run.pack import pack
from small_runs import Call

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def package(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's sources with the packed file of a small run for each direction."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / "models" / name, folder)
    files = folder / "src" / "foveate_models" / "files"
    files.mkdir(parents=True)
    shutil.copy(ROOT / "models/src/foveate_models/__init__.py", files.parent)
    file = pack(run, files / "en-fr.safetensors", "int8", "sentences of ours")
    shutil.copy(file, files / "fr-en.safetensors")
    return folder


@pytest.fixture
def installed(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package can be imported, and the working folder is empty."""
    monkeypatch.syspath_prepend(str(package / "src"))
    monkeypatch.chdir(tmp_path)
    return package / "src" / "foveate_models" / "files"


def test_a_model_answers_by_its_name(installed: Path, call: Call) -> None:
    by_name = call("translate", "en-fr", text=b"the dog runs .\n")
    by_file = call("translate", installed / "en-fr.safetensors", text=b"the dog runs .\n")
    assert by_name.code == 0 and by_name.out == by_file.out != ""
    assert call("look", "attention", "en-fr", "--text", "the dog").code == 0


def test_what_is_in_the_working_folder_wins_and_is_said(installed, run, call, tmp_path) -> None:
    shutil.copytree(run.path, tmp_path / "en-fr")
    answer = call("translate", "en-fr", "-v", text=b"the dog runs .\n")
    assert answer.code == 0
    assert "en-fr is the one in this folder, not the installed model" in answer.err
    assert "en-fr/packed.safetensors" in answer.err


def test_an_unknown_name_lists_what_is_installed(installed: Path, call: Call) -> None:
    answer = call("translate", "en-de", text=b"a\n")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "en-de: no run or file" in answer.err and "en-fr, fr-en" in answer.err
    assert "foveate_models-*.whl" in answer.err or "foveate[models]" in answer.err
    assert "folder/en-de: no such folder" in call("translate", "folder/en-de", text=b"a\n").err


def test_models_lists_them_or_says_how_to_install_them(installed, call, monkeypatch) -> None:
    text = call("models").out
    assert "en-fr      en → fr, 0." in text and "trained on sentences of ours" in text
    tree = json.loads(call("models", "--json").out)
    assert list(tree) == ["en-fr", "fr-en"]
    assert tree["en-fr"]["file"] == str(installed / "en-fr.safetensors")
    assert tree["en-fr"]["scores"] == {}
    monkeypatch.setattr("foveate.cli.options.find_spec", lambda _: None)
    assert "no models are installed; in a checkout" in call("models").out


def test_the_wheel_of_models_is_reproducible_and_complete(package, tmp_path) -> None:
    made = [Path(next(WheelBuilder(str(package)).build(directory=str(tmp_path / n)))) for n in "ab"]
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == "foveate_models-1.0.0-py3-none-any.whl"
    names = zipfile.ZipFile(made[0]).namelist()
    assert {f"foveate_models/files/{name}.safetensors" for name in models.PAIRS} <= set(names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    (package / "src/foveate_models/files/fr-en.safetensors").rename(package / "away")
    try:
        with pytest.raises(RuntimeError, match=r"fr-en\.safetensors is not there: make models"):
            list(WheelBuilder(str(package)).build(directory=str(tmp_path)))
    finally:
        (package / "away").rename(package / "src/foveate_models/files/fr-en.safetensors")


def test_scores_are_written_into_the_file(package, tmp_path, monkeypatch) -> None:
    files = tmp_path / "files"
    files.mkdir()
    shutil.copy(package / "src/foveate_models/files/en-fr.safetensors", files)
    monkeypatch.setattr(models, "FILES", files)
    tests = {"ours": (["the dog .", "a"], ["le chien .", "un"])}
    monkeypatch.setattr(models, "tests", lambda *_: tests)
    before, weights = packed.read(files / "en-fr.safetensors")
    result = models.score(tmp_path, "en-fr")
    after, same = packed.read(files / "en-fr.safetensors")
    assert after.scores["tests"].keys() == {"ours"} and "tok:13a" in str(result["tests"])
    assert after.program == before.program
    assert all((weights[name] == same[name]).all() for name in weights)


def test_no_sentence_of_a_test_set_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    number = [f"Sentence {n} is here.\tLa phrase {n} est là." for n in range(400)]
    sides = {
        "tatoeba-en-fr/pairs.tsv": [*number, "News!\tAutre chose.", "Other thing.\tNouvelles !"],
        "newstest2014-en-fr/newstest2014.en": ["news"],
        "newstest2014-en-fr/newstest2014.fr": ["« Nouvelles »"],
    }

    def lines(name: str) -> list[str]:
        return sides.get(name, [f"text of {name}" + "\tits French" * name.endswith(".gz")])

    for module in (models, sys.modules["everyday"]):
        monkeypatch.setattr(module, "lines", lines)
    splits = models.texts()
    assert splits["valid"] and splits["test"] and len(splits["train"]) > 300
    for side in (0, 1):
        trained = {models.folded(pair[side]) for pair in splits["train"]}
        assert not trained & {"news", "nouvelles"}
        for split in ("valid", "test"):
            assert not trained & {models.folded(pair[side]) for pair in splits[split]}
