"""Runs of strangers: damaged, swapped, or made to do harm. Each ends in an error of ours.

The error names the file, nothing of it is executed, and memory stays within bounds that are
measured in a process of its own.
"""

import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from foveate.config import read
from foveate.data.tokenizer import BPE, Tokenizer
from foveate.errors import FOR_THE_USER, message_of
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import from_huggingface
from foveate.run import Run, RunConfig, load
from foveate.tasks.shortlist import Shortlist
from foveate.train import checkpoint
from foveate.train.stored import WEIGHTS, DamagedError, opened
from small_runs import python

ROOT = Path(__file__).parent.parent
SHARED = [HealthCheck.function_scoped_fixture]
MANY = settings(max_examples=25, deadline=None, suppress_health_check=SHARED)


@pytest.fixture
def run(runs: dict[str, Run], tmp_path: Path) -> Path:
    return shutil.copytree(runs["transformer"].path, tmp_path / "run")


def weights(run: Path) -> Path:
    return checkpoint.chosen(run) / WEIGHTS


def refused(act: Callable[[], object], *names: str) -> str:
    """What is said; it must be an error for the user, and hold the names."""
    with pytest.raises(Exception) as caught:
        act()
    output = message_of(caught.value)
    assert isinstance(caught.value, FOR_THE_USER), f"a bare {caught.value!r}"
    assert all(name in output for name in names), output
    return output


def tensors(header: bytes, size: int | None = None, rest: bytes = b"") -> bytes:
    """A safetensors file, whatever its header says its length is."""
    return struct.pack("<Q", len(header) if size is None else size) + header + rest


@MANY
@given(st.data())
def test_a_bit_flipped_anywhere_in_the_weights_is_found(run: Path, data: st.DataObject) -> None:
    file = weights(run)
    content = bytearray(file.read_bytes())
    flipped = content[:]
    flipped[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(flipped)
    try:
        refused(lambda: load(run), WEIGHTS, "--checkpoint")
    finally:
        file.write_bytes(content)


@MANY
@given(cut=st.integers(0, 5000))
def test_weights_cut_off_anywhere_are_named_with_a_manifest_or_without(run: Path, cut: int) -> None:
    content = weights(run).read_bytes()
    alone = run / "alone"
    alone.mkdir(exist_ok=True)
    (alone / WEIGHTS).write_bytes(content[: min(cut, len(content) - 1)])
    refused(lambda: load(alone), WEIGHTS)


@MANY
@given(content=st.binary(max_size=300), declared=st.integers(0, 2**64 - 1))
def test_any_file_of_tensors_is_read_or_refused_by_name(tmp_path, content, declared) -> None:
    file = tmp_path / "model.safetensors"
    for whole in (content, tensors(content, declared), tensors(content)):
        file.write_bytes(whole)
        try:
            with opened(file) as result:
                list(result.keys())
        except DamagedError as error:
            assert "model.safetensors" in str(error)


OFFSETS = {
    "overlapping": [("a", [0, 8]), ("b", [4, 12])],
    "beyond the end": [("a", [0, 8]), ("b", [8, 2**40])],
    "backwards": [("a", [8, 0]), ("b", [8, 12])],
    "with a hole": [("a", [0, 4]), ("b", [8, 12])],
}


@pytest.mark.parametrize("kind", OFFSETS)
def test_offsets_that_are(kind: str, tmp_path: Path) -> None:
    named = ((name, {"data_offsets": place}) for name, place in OFFSETS[kind])
    entries = {name: {"dtype": "F32", "shape": [2]} | offsets for name, offsets in named}
    file = tmp_path / "model.safetensors"
    file.write_bytes(tensors(json.dumps(entries).encode(), rest=bytes(12)))
    with pytest.raises(DamagedError, match=r"model\.safetensors"), opened(file) as result:
        result.get_tensor("a")


class Harm:
    """What is executed where it is unpickled."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
        return open, (str(self.sign), "w")


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_not_opened_whatever_its_name_is(run: Path, protocol: int, tmp_path) -> None:
    sign = tmp_path / "executed"
    bare = pickle.dumps(Harm(sign), protocol)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:  # as torch.save writes it
        packed.writestr("archive/data.pkl", bare)
    (run / "alone").mkdir()
    for content in (bare, archive.getvalue()):
        (run / "alone" / WEIGHTS).write_bytes(content)
        refused(lambda: load(run / "alone"), WEIGHTS)
        for name in ("shortlist.npz", "aligned_head.json", "source.tokenizer.json"):
            saved = (run / name).read_bytes() if (run / name).exists() else None
            (run / name).write_bytes(content)
            refused(lambda: read_all(run), name)
            (run / name).unlink() if saved is None else (run / name).write_bytes(saved)
    assert not sign.exists()


def read_all(run: Path) -> None:
    load(run).links([("the dog", "le chien")])
    if (run / "shortlist.npz").exists():
        Shortlist.load(run)


def test_weights_of_another_run_are_refused_by_what_was_sealed(runs, run: Path) -> None:
    other = weights(runs["rnn"].path)
    shutil.copyfile(other, weights(run))
    refused(lambda: load(run), WEIGHTS)
    folder = weights(run).parent
    shutil.rmtree(folder)
    shutil.copytree(other.parent, folder)  # the whole checkpoint, manifest and all
    refused(lambda: load(run), "config.toml", "another")


def test_weights_under_a_config_of_the_same_shapes_are_refused(run: Path) -> None:
    config = run / "config.toml"
    text = config.read_text("utf-8")
    assert "num_heads = 2" in text
    config.write_text(text.replace("num_heads = 2", "num_heads = 4"), "utf-8")
    refused(lambda: load(run), "config.toml", "another")


OUTSIDE = ["../other", "/etc", "checkpoints/../../other", "..", "/"]


@pytest.mark.parametrize("place", OUTSIDE)
def test_the_best_weights_lie_in_the_run(place: str, runs: dict[str, Run], run: Path) -> None:
    shutil.copytree(weights(runs["transformer"].path).parent, run.parent / "other")
    (run / "best.json").write_text(json.dumps({"folder": place}), "utf-8")
    refused(lambda: load(run), "best.json", place)


@pytest.mark.parametrize("content", ["", "nonsense", "[]", "{}", '"averaged"', "{", "\ufffd"])
def test_what_the_best_weights_are_is_not_guessed(content: str, run: Path) -> None:
    (run / "best.json").write_text(content, "utf-8")
    refused(lambda: load(run), "best.json", "--checkpoint last")
    assert load(run, "last").checkpoint
    (run / "best.json").unlink()
    assert load(run).checkpoint == load(run, "last").checkpoint


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/b", "..", ""])
def test_a_manifest_names_files_beside_it(name: str, run: Path) -> None:
    manifest = weights(run).parent / "manifest.json"
    tree = json.loads(manifest.read_text("utf-8"))
    tree["files"][name] = {"bytes": 1, "sha256": "0"}
    manifest.write_text(json.dumps(tree), "utf-8")
    refused(lambda: load(run), "manifest.json", repr(name))


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/hostname", "a/b.safetensors"])
def test_an_index_of_weights_names_files_beside_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', "utf-8")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}), "utf-8")
    with pytest.raises(ExchangeError, match="not a file beside it"):
        from_huggingface(tmp_path)


# ------------------------------------------------------------------------------ what a run is not
def test_a_run_has_no_base_no_imports_and_no_pipe(run: Path, tmp_path: Path, monkeypatch) -> None:
    config, sign = run / "config.toml", tmp_path / "executed"
    text = config.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    code = f"import pathlib\npathlib.Path({str(sign)!r}).touch()\n"
    (tmp_path / "strange_module.py").write_text(code, "utf-8")
    config.write_text(text.replace("imports = []", 'imports = ["strange_module"]'), "utf-8")
    refused(lambda: load(run), "config.toml", "strange_module", "--trust")
    assert not sign.exists()
    load(run, trust=True)
    assert sign.exists()
    config.write_text(f'base = "/etc/passwd"\n{text}', "utf-8")
    refused(lambda: load(run), "config.toml", "base")
    config.write_text(text, "utf-8")
    for name in ("config.toml", "best.json", "source.tokenizer.json"):
        saved = (run / name).read_bytes()
        (run / name).unlink()
        os.mkfifo(run / name)
        refused(lambda: load(run), name)
        (run / name).unlink()
        (run / name).symlink_to("/dev/zero")
        refused(lambda: load(run), name)
        (run / name).unlink()
        (run / name).write_bytes(saved)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda tensor: tensor.fill_(float("nan")), "holds NaN or infinite"),
        (lambda tensor: tensor.clone().fill_(float("-inf")), "holds NaN or infinite"),
        (lambda tensor: tensor.to(torch.int32), "int32"),
        (lambda tensor: tensor.double(), "float64"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_refused(run, harm, message) -> None:
    tensors = load_file(weights(run))
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    alone = run / "alone"
    alone.mkdir()
    save_file(tensors | {name: harm(tensors[name])}, alone / WEIGHTS)
    refused(lambda: load(alone), WEIGHTS, name, message)


def test_a_missing_best_checkpoint_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "best.json").write_text('{"folder": "checkpoints/step-00000999"}', "utf-8")
    load(run)
    assert "step-00000999, the best, is missing: step-" in capsys.readouterr().err


@pytest.mark.parametrize("ids", [{"a": 2_000_000_000}, {"a": -1}])
def test_ids_of_pieces_are_their_places(ids: dict[str, int], tmp_path: Path) -> None:
    tokenizer: Tokenizer = BPE.Config(vocab_size=270).build()
    tokenizer.train(["a dog"])
    tree = json.loads(tokenizer.text())
    tree["vocabulary"]["model"]["vocab"] |= ids
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree), "utf-8")
    refused(lambda: Tokenizer.load(tmp_path / "tokenizer.json"), "tokenizer.json")


# ------------------------------------------------------------------------------ what is JSON, TOML
WORDS = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(WORDS, each, max_size=3),
    max_leaves=8,
)
FILES = ["best.json", "source.tokenizer.json", "aligned_head.json", "config.toml"]


@MANY
@given(data=st.data())
def test_any_content_of_run_files_loads_or_is_refused_by_name(run, data) -> None:
    file = run / data.draw(st.sampled_from(FILES))
    saved = file.read_bytes() if file.exists() else None
    if saved is not None and data.draw(st.booleans()):
        content = bytearray(saved)
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
            content[place] = data.draw(st.integers(0, 255))
    else:
        content = bytearray(json.dumps(data.draw(JSON)).encode())
    file.write_bytes(content)
    try:
        read_all(run)
    except Exception as error:
        assert isinstance(error, FOR_THE_USER), (
            f"{file.name} of {bytes(content)!r}: a bare {error!r}"
        )
    finally:
        file.unlink()
        if saved is not None:
            file.write_bytes(saved)


DEEP = 100_000
TOML = {
    "not UTF-8": b"seed = 1\n\xff",
    "nested": b"a = " + b"[" * DEEP + b"]" * DEEP,
    "leading back": b'base = "config.toml"\n',
    "huge": b"#" * 2_000_000,
    "no list of imports": b"imports = 5\n",
    "relative imports": b'imports = ["..os"]\n',
    "empty": b"",
    "of zeros": bytes(100),
}


@pytest.mark.parametrize("kind", TOML)
def test_a_config_that_is(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(TOML[kind])
    refused(lambda: read(RunConfig, tmp_path / "config.toml"))


BOUND = 500  # MiB by which all of these together may make the process grow
MEASURE = """
import resource, sys
from pathlib import Path
from foveate.data.tokenizer import Tokenizer
from foveate.errors import FOR_THE_USER
from foveate.exchange.importing import import_from
from foveate.documents.formats import DocumentOptions, read_document
from foveate.run import load
from foveate.tasks.shortlist import Shortlist

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

place = Path(sys.argv[1])
acts = {
    "header": lambda: load(place / "sound" / "alone"),
    "width": lambda: load(place / "width"),
    "depth": lambda: load(place / "depth"),
    "size": lambda: load(place / "size"),
    "shortlist": lambda: Shortlist.load(place),
    "merges": lambda: Tokenizer.load(place / "merges.json"),
    "vocabulary": lambda: import_from(place / "merges.json", place / "out"),
    "docx": lambda: read_document("docx", (place / "bomb.docx").read_bytes(), DocumentOptions()),
}
load(place / "sound")
before = peak()
for name, act in acts.items():
    try:
        act()
        print(name, "TAKEN", peak() - before)
    except Exception as error:
        said = "refused" if isinstance(error, FOR_THE_USER) else "BARE"
        print(name, said, peak() - before, repr(error)[:200])
print("grown", peak() - before)
"""


def sized(run: Path, key: str, value: int) -> None:
    """Another size in the config of a run, and in that beside its weights."""
    for config in (run / "config.toml", weights(run).parent / "config.toml"):
        lines = config.read_text("utf-8").splitlines()
        changed = [f"{key} = {value}" if line.startswith(f"{key} =") else line for line in lines]
        assert changed != lines
        config.write_text("\n".join(changed) + "\n", "utf-8")


def swelling(path: Path, *names: str) -> None:
    """An archive whose members say that they are a terabyte each."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(1000))
            archive.getinfo(name).file_size = 2**40


def test_memory_stays_bounded_whatever_a_file_would_become(runs, tmp_path: Path) -> None:
    for name in ("sound", "width", "depth", "size"):
        shutil.copytree(runs["transformer"].path, tmp_path / name)
    sized(tmp_path / "width", "hidden_size", 960_000)
    sized(tmp_path / "depth", "num_layers", 960_000)
    sized(tmp_path / "size", "hidden_size", 10**12)
    long = tmp_path / "sound" / "alone" / WEIGHTS
    long.parent.mkdir()
    for file, begin in ((long, struct.pack("<Q", 2**33)), (tmp_path / "merges.json", b"[[")):
        with file.open("wb") as stream:
            stream.write(begin)
            stream.truncate(2**33 + 100)  # nothing of it is on the disk
    swelling(tmp_path / "shortlist.npz", "often.npy", "likely.npy")
    swelling(tmp_path / "bomb.docx", "word/document.xml", "[Content_Types].xml")
    messages = python("-c", MEASURE, tmp_path, check=True).stdout
    assert not [line for line in messages.splitlines() if "BARE" in line or "TAKEN" in line]
    assert int(messages.split()[-1]) < BOUND, messages
