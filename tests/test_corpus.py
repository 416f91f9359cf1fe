"""Folders: cut into parts, translated by one or many, stopped and gone on with, put together."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import ConfigError
from foveate.documents import folders
from foveate.documents.folders import FolderJob, cut, files_in, packed, unpacked
from foveate.documents.spans import DocumentError
from foveate.run import Run
from small_runs import invoked

SOURCE = Path(__file__).parent.parent / "src"


@given(st.binary(max_size=60) | st.text(st.sampled_from("ab\r\n\t")).map(str.encode), st.data())
def test_parts_are_the_file(data: bytes, draw: st.DataObject) -> None:
    size = draw.draw(st.integers(1, 5))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "a.txt")
        path.write_bytes(data)
        source = cut(path, "a.txt", "text", size)
        assert b"".join(part.read() for part in source.parts) == data
        assert all(part.read().count(b"\n") <= size for part in source.parts)
        assert [p.first for p in source.parts] == [
            1 + sum(q.lines for q in source.parts[:n]) for n in range(len(source.parts))
        ]
        whole = cut(path, "a.txt", "html", size)
        assert [part.read() for part in whole.parts] == [data]
        if data:
            path.write_bytes(data + b"x")
            assert cut(path, "a.txt", "text", size).digest != source.digest


TEXTS = st.lists(st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=8), max_size=4)


@settings(max_examples=15)
@given(TEXTS, st.data())
def test_a_stopped_job_goes_on(texts: list[list[str]], draw: st.DataObject) -> None:
    """What was kept is not asked for again, and all files come out whole."""
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name, "in"), Path(name, "out")
        folder.mkdir()
        for n, text in enumerate(texts):
            (folder / f"{n}.txt").write_text("".join(text))
        sources = [cut(p, p.name, "text", 2) for p in sorted(folder.iterdir())]
        requested: list[str] = []
        stops = draw.draw(st.lists(st.integers(0, 3), max_size=4))
        for most in [*stops, 99]:
            job = FolderJob(out, {"beam_size": (5,)}, [source.name for source in sources])
            open_ = [source for source in sources if job.finished(source) is None]
            for part in job.missing(open_)[:most]:
                requested.append(part.digest)
                job.store(part, packed(part.read().upper(), {"noticed": [1]}))
            for source in open_:
                if not job.missing([source]):
                    noted = job.join(source)
                    assert len(noted.get("noticed", [])) == len(source.parts)
            with (out / ".foveate" / "done.jsonl").open("ab") as log:
                log.write(b'\n{"file": "0.t')  # torn
        assert len(requested) == len(set(requested))
        for n, text in enumerate(texts):
            assert (out / f"{n}.txt").read_text() == "".join(text).upper()


def test_links_lead_neither_out_of_the_folder_nor_out_of_its_output(tmp_path: Path) -> None:
    folder, other = tmp_path / "in", tmp_path / "in-other"  # a name that begins like the folder's
    for each in (folder / "sub", other):
        each.mkdir(parents=True)
        (each / "a.txt").write_text("a\n", "utf-8")
    (folder / "sub" / "own.txt").symlink_to(folder / "sub" / "a.txt")
    (folder / "out.txt").symlink_to(other / "a.txt")
    (folder / "sub" / "up.txt").symlink_to("../../in-other/a.txt")
    (folder / "gone.txt").symlink_to(other / "none.txt")
    (folder / "folder").symlink_to(other)
    chosen, skipped = files_in(folder, None)
    assert [path.name for path in chosen] == ["a.txt", "own.txt"]
    assert {why: [path.name for path in paths] for why, paths in skipped.items()} == {
        "links to folders": ["folder"],
        "links that lead out of the folder": ["gone.txt", "out.txt", "up.txt"],
    }
    source = cut(folder / "sub" / "a.txt", "sub/a.txt", "text", 10)
    for name, leads in {"sub": other, "sub/a.txt": other / "b", ".foveate": other}.items():
        out = tmp_path / name.replace("/", "")
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(leads)
        with pytest.raises(ConfigError, match=r"leads out of .* by a link; remove the link"):
            FolderJob(out, {}, ["sub/a.txt"])
    job = FolderJob(tmp_path / "out", {}, ["sub/a.txt"])
    job.store(source.parts[0], packed(b"b\n", {}))
    (job.out / "sub").symlink_to(other)  # while it was translated
    with pytest.raises(ConfigError, match="leads out of"):
        job.join(source)
    assert [path.name for path in other.iterdir()] == ["a.txt"]


def test_a_job_is_not_mixed_with_others_and_its_files_do_not_change(tmp_path: Path) -> None:
    FolderJob(tmp_path, {"beam_size": 5}, ["a.txt"])
    with pytest.raises(ConfigError, match="started with beam_size = 5, now it is 4"):
        FolderJob(tmp_path, {"beam_size": 4}, ["a.txt"])
    file = tmp_path / "other" / "a.txt"
    file.parent.mkdir()
    file.write_text("mine")
    with pytest.raises(ConfigError, match=r"a\.txt already exists"):
        FolderJob(file.parent, {"beam_size": 5}, ["a.txt"])
    assert unpacked(packed(b"x\ny", {"cut": [3], "nothing": []})) == (b"x\ny", {"cut": [3]})
    (part,) = cut(file, "a.txt", "text", 9).parts
    file.write_text("a\nc\n")
    with pytest.raises(ConfigError, match=r"a\.txt changed while"):
        part.read()
    with pytest.raises(ConfigError, match="holds no file that ends in"):
        files_in(tmp_path / "nowhere", None)


@pytest.fixture(scope="module")
def run(longer_run: Run) -> Path:
    return longer_run.path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    long = b"a b c d " * 120
    (folder / "a.txt").write_bytes(b"the dog runs\n\na cat \xff\n" + long + b"\nthe man")
    (folder / "b.tsv").write_text("the dog runs\t1\na cat sleeps\t2\n")
    (folder / "sub" / "c.txt").write_text("a girl sings\nthe man eats\na cat reads\n")
    (folder / "sub" / "d.txt").write_bytes(b"")
    (folder / "README.md").write_text("# no document\n")
    return folder


def outputs(out: Path) -> dict[str, bytes]:
    files = [p for p in out.rglob("*") if p.is_file() and ".foveate" not in p.parts]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in files}


def arguments(run: Path, corpus: Path, out: Path, *more: object) -> list[str]:
    return ["translate", str(run), "--in", str(corpus), "--out", str(out), *map(str, more)]


def test_a_folder(run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LINES", 2)
    out = tmp_path / "out"
    said = invoked(*arguments(run, corpus, out, "--processes", 1)).stderr.splitlines()
    result = outputs(out)
    lines = {name: content.count(b"\n") for name, content in result.items()}
    assert lines == {"a.txt": 4, "b.tsv": 2, "sub/c.txt": 3, "sub/d.txt": 0}
    assert result["a.txt"].startswith(b"le chien court\n\n")
    assert result["b.tsv"].splitlines()[1] == b"a cat sleeps\t2\tun chat dort"
    assert "1 line not UTF-8, the bytes read as U+FFFD: a.txt:3" in said
    assert "1 line longer than the model allows, cut: a.txt:4" in said
    assert "4 files, 10 lines: 4 translated" in said
    assert "left out, of unknown format: 1: README.md" in said
    invoked(*arguments(run, corpus / "b.tsv", tmp_path / "b.tsv"))
    assert (tmp_path / "b.tsv").read_bytes() == result["b.tsv"]
    (corpus / "b.tsv").write_text("a girl sings\t1\n")
    said = invoked(*arguments(run, corpus, out)).stderr.splitlines()
    assert "4 files, 9 lines: 1 translated, 3 were done before" in said
    assert outputs(out)["b.tsv"] == b"a girl sings\t1\tune fille chante\n"
    monkeypatch.chdir(tmp_path)
    invoked(*arguments(Path("packaged/en-fr"), corpus / "sub", Path("shipped")))
    assert outputs(tmp_path / "shipped")["c.txt"].strip()


def test_a_broken_file_stops_no_other(run: Path, corpus: Path, tmp_path: Path) -> None:
    for name in ("a.docx", "b.docx"):  # the same bytes are the same part
        (corpus / name).write_bytes(b"PK\x03\x04")
    for state in ("4 translated", "0 translated, 4 were done before"):
        done = CliRunner().invoke(app, arguments(run, corpus, tmp_path / "out", "--processes", 1))
        assert isinstance(done.exception, DocumentError), done.output
        message = str(done.exception)
        assert message.startswith("2 not translated: a.docx is not a DOCX file: it is an archive")
        assert "; b.docx is not a DOCX file" in message
        assert f"6 files, 12 lines: {state}" in done.stderr
        names = outputs(tmp_path / "out").keys()
        assert names == {"a.txt", "b.tsv", "sub/c.txt", "sub/d.txt"}
    for name in ("a.docx", "b.docx"):
        (corpus / name).unlink()
    done = invoked(*arguments(run, corpus, tmp_path / "out"))
    assert not (tmp_path / "out" / ".foveate" / "parts").exists()


def test_what_a_folder_is_refused_for(run: Path, corpus: Path, tmp_path: Path) -> None:
    def refused(*more: object, out: Path | None = None) -> str:
        done = CliRunner().invoke(app, arguments(run, corpus, out or tmp_path / "out", *more))
        assert isinstance(done.exception, ConfigError), done.output
        return str(done.exception)

    assert "not in" in refused(out=corpus / "fr")
    assert "work in one process" in refused("--ban", "chien")
    assert "no n-best" in refused("--num-hypotheses", 2)
    stream = CliRunner().invoke(app, ["translate", str(run), "--engine", "ray"], input="a\n")
    assert "--engine ray only translates folders" in str(stream.exception)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_gives_the_bytes_of_one_process(run: Path, corpus: Path, tmp_path: Path) -> None:
    alone = arguments(run, corpus, tmp_path / "one", "--processes", 1)
    invoked(*alone)
    outside = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    command = arguments(run, corpus, tmp_path / "ray", "--engine", "ray", "--processes", 2)
    done = subprocess.run(
        [sys.executable, "-m", "foveate", *command],
        env=outside | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert outputs(tmp_path / "ray") == outputs(tmp_path / "one")
    output = done.stderr.splitlines()
    assert "RAY_ADDRESS names no cluster: a local one is started" in output
    assert "2 workers of one thread each" in output
    assert "1 line longer than the model allows, cut: a.txt:4" in output
    again = CliRunner().invoke(app, command)  # nothing is left to do: no cluster is started
    assert again.stderr.splitlines()[-2].endswith("0 translated, 4 were done before")
