"""What cannot be published is named before anything is written."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from safetensors.numpy import load_file, save_file

import foveate.studio.publish as published
from foveate.config import PACKAGED, ConfigError
from foveate.data.text import TextData, read_pairs
from foveate.engine.packed import KEY, header_of, load
from foveate.studio.publish import PublishedFile, publish

FILE = Path(__file__).parent / "packed" / "v1" / "transformer_pre.safetensors"


def changed(folder: Path, **fields: Any) -> Path:
    """The stored file with other fields of its header."""
    tree = header_of(FILE).tree() | fields
    save_file(load_file(FILE), out := folder / FILE.name, {KEY: json.dumps(tree)})
    return out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FILE,), "name one: --single PAGE.html, or --out FOLDER"),
        ((FILE, "--single", "a.html", "--out", "b"), "name one:"),
        ((FILE, FILE, "--single", "a.html"), "two models are called transformer_pre"),
        ((PACKAGED / "passengers", "--single", "a.html"), "does not know the task forecasting"),
        ((PACKAGED / "lm.safetensors", "--single", "a.html"), "lm.safetensors"),
    ],
)
def test_what_cannot_be_published_is_one_sentence(arguments, message, call, tmp_path) -> None:
    done = call("publish", *arguments)
    assert done.code == 2 and message in done.err


def test_progress_is_told_from_the_first_second_to_the_last_byte(tmp_path, monkeypatch) -> None:
    engine, told = tmp_path / "e.wasm", list[tuple[str, int, int | None]]()
    engine.write_bytes(bytes(3_000_000))

    def compiled(name: str) -> Path:
        assert told[-1] == (f"compiling {name}", 0, None), "said before it begins"
        return engine

    monkeypatch.setattr(published, "web_engine", compiled)
    monkeypatch.setattr(published, "assemble", lambda page, texts, **how: "")
    publish([PublishedFile(FILE, "x")], tmp_path / "a.html", progress=lambda *a: told.append(a))
    total = 2 * 3_000_000 + FILE.stat().st_size
    sizes = [done for what, done, most in told if what == "compressing" and most == total]
    assert sizes == sorted(sizes) and sizes[-1] == total and len(sizes) > 6


def test_parts_that_a_page_lacks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PublishedFile(changed(tmp_path, format={"kind": "cmudict"}), "x")
    with pytest.raises(ConfigError, match=r"a page does not support data\.format"):
        publish([file], tmp_path / "a.html")
    monkeypatch.setattr(published, "TOKENIZERS", ("byte",))
    with pytest.raises(ConfigError, match="a page does not support the tokenizer"):
        publish([PublishedFile(FILE, "x")], tmp_path / "a.html")
    monkeypatch.setattr(published, "MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="a page can run at most 1,000"):
        publish([PublishedFile(FILE, "x")], tmp_path / "a.html")
    with pytest.raises(ConfigError, match=r"nothing\.js of the page is not built: .*`make page`"):
        published.asset("nothing.js")
    assert not (tmp_path / "a.html").exists()


def test_the_examples_of_a_page_are_translated_well_by_its_model_which_is_loaded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = PACKAGED / "en-fr"
    monkeypatch.setattr(published, "load", loads := Mock(wraps=load))
    pairs = read_pairs("packaged/data/test.en", "packaged/data/test.fr", TextData())
    right = dict(zip(pairs.sources, pairs.targets, strict=True))
    chosen: Any = PublishedFile(run / "packed.safetensors", "x", run).described(0)["examples"]
    assert loads.call_count == 1
    answers = load(run / "packed.safetensors").translate(chosen)
    assert [str(answer) for answer in answers] == [right[source] for source in chosen]
    assert chosen != [text for text in pairs.sources if len(text) in published.LENGTHS][:4]


def test_a_run_with_its_packed_file_needs_no_pytorch(call, tmp_path, monkeypatch) -> None:
    run = shutil.copytree(PACKAGED / "kinds-of-sentences", tmp_path / "run")
    assert call("pack", run).code == 0
    monkeypatch.setitem(sys.modules, "foveate.run.pack", None)
    published.packed_run(run, own := tmp_path / "own.safetensors", "int8", "ours")
    assert load(own).precision == "int8" and header_of(own).licence == "ours"
    packed = load(run / "packed.safetensors", int8=True)
    assert load(own).classify(["Is it old"]) == packed.classify(["Is it old"])
    assert len(published.examples_of(run, load(own))) == 4
    done = call("publish", PACKAGED / "lm", "--single", tmp_path / "a.html")
    assert done.code == 2
    assert "it has no packed.safetensors (foveate pack" in done.err and "[train]" in done.err
