"""Data sets: the catalogue, what is fetched, verified and found."""

import gzip
import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from foveate.data.catalogue import DataError, DataSet, File, catalogue, find, get, named

TEXT = "A dog runs.\nTwo dogs run – fast.\n".encode() * 9000  # several chunks


@dataclass
class Origin:
    """A public address on the loopback: files by path, and how often each breaks off."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks: dict[str, int] = field(default_factory=dict)  # answers that break off, then whole ones
    status: dict[str, int] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)


@pytest.fixture
def origin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    local = Origin()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            local.requested.append(name)
            content = local.files.get(name, b"")
            status = local.status.get(name, 200 if name in local.files else 404)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            whole = local.breaks.get(name, 0) < local.requested.count(name)
            self.wfile.write(content if whole else content[: len(content) // 2])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    local.address = f"http://127.0.0.1:{server.server_address[1]}/"
    monkeypatch.setattr("foveate.data.catalogue.PAUSE", 0.0)
    yield local
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No mirror, a cache of the test's own, and the loopback without a proxy."""
    monkeypatch.delenv("FOVEATE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file(name: str = "text.en.gz", content: bytes = TEXT, **other: str | None) -> File:
    packed = gzip.compress(content) if name.endswith(".gz") else content
    inside = {"content_sha256": sha(content)} if name.endswith(".gz") else {}
    values = {"origin": "text.en"} | other | inside
    return File(name=name, count=1, bytes=len(packed), sha256=sha(packed), **values)


def a_set(address: str, *files: File, **other: str) -> DataSet:
    words = dict.fromkeys(("title", "task", "page", "licence", "attribution"), "-")
    words |= {"name": "dogs", "address": address} | other
    return DataSet(languages=("en",), files=files, **words)


def everything_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_set_is_fetched_verified_and_left_alone(origin: Origin, tmp_path: Path) -> None:
    origin.files["text.en"] = TEXT
    seen: list[tuple[str, int, int | None]] = []
    data = a_set(origin.address, file())
    folder = get(data, tmp_path / "sets", progress=lambda *step: seen.append(step))
    assert folder == tmp_path / "sets" / "dogs"
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT
    assert everything_below(folder) == ["text.en.gz"]
    assert len(seen) > 2
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("text.en.gz", len(TEXT), len(TEXT))
    get(data, tmp_path / "sets")
    assert origin.requested == ["text.en"]  # what is there and right is not fetched again
    (folder / "text.en.gz").write_bytes(b"damaged")
    get(data, tmp_path / "sets")
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT


def test_a_file_that_is_packed_at_its_origin_stays_as_it_is(origin: Origin, tmp_path: Path) -> None:
    origin.files["text.en.gz"] = gzip.compress(TEXT, compresslevel=1)
    folder = get(a_set(origin.address, file(origin="text.en.gz")), tmp_path)
    assert (folder / "text.en.gz").read_bytes() == origin.files["text.en.gz"]


def test_originals_are_converted_and_fetched_once(origin: Origin, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("deep/inside/a.txt", "eins\n")
        pack.writestr("deep/inside/b.txt", "zwei\n")
    origin.files = {"all.zip": archive.getvalue(), "pairs": b"one  ||| un \ntwo ||| deux\n"}
    origin.files["blanks"] = b"fine  film \t1\n"
    data = a_set(
        origin.address,
        file("a.txt.gz", b"eins\n", origin="all.zip", convert="member", argument="a.txt"),
        file("b.txt", b"zwei\n", origin="all.zip", convert="member", argument="b.txt"),
        file("fr.txt", b"un\ndeux\n", origin="pairs", convert="column", argument="2"),
        file("blanks.tsv", b"fine  film\t1\n", origin="blanks", convert="strip"),
    )
    folder = get(data, tmp_path)
    assert everything_below(folder) == ["a.txt.gz", "b.txt", "blanks.tsv", "fr.txt"]
    assert gzip.decompress((folder / "a.txt.gz").read_bytes()) == b"eins\n"
    assert origin.requested.count("all.zip") == 1


def test_content_with_another_sha256_is_refused(origin: Origin, tmp_path: Path) -> None:
    origin.files["text.en"] = TEXT.replace(b"dog", b"cat", 1)
    with pytest.raises(DataError, match=r"text\.en is not .*sha256.*Nothing was kept"):
        get(a_set(origin.address, file()), tmp_path)
    assert everything_below(tmp_path / "dogs") == []


def test_a_bad_file_does_not_replace_a_good_one(origin: Origin, tmp_path: Path) -> None:
    good, bad = file("good.txt", origin="good"), file("bad.txt", b"wanted", origin="bad")
    origin.files = {"good": TEXT, "bad": b"something else"}
    with pytest.raises(DataError, match="bad"):
        get(a_set(origin.address, good, bad), tmp_path)
    assert everything_below(tmp_path / "dogs") == ["good.txt"]


@pytest.mark.parametrize("breaks", [1, 2])
def test_an_interrupted_answer_is_requested_again(breaks, origin, tmp_path) -> None:
    origin.files["text.en"], origin.breaks["text.en"] = TEXT, breaks
    folder = get(a_set(origin.address, file()), tmp_path)
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT
    assert len(origin.requested) == breaks + 1


def test_three_broken_answers_are_enough(origin: Origin, tmp_path: Path) -> None:
    origin.files["text.en"], origin.breaks["text.en"] = TEXT, 9
    output = (
        rf"cannot fetch {origin.address}text\.en \(the connection closed after .*3 of 3.*--mirror"
    )
    with pytest.raises(DataError, match=output):
        get(a_set(origin.address, file()), tmp_path)
    assert len(origin.requested) == 3
    assert everything_below(tmp_path / "dogs") == []


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (403, 1), (503, 3), (429, 3)])
def test_only_what_may_mend_itself_is_tried_again(status, attempts, origin, tmp_path) -> None:
    origin.status["text.en"] = status
    with pytest.raises(DataError, match=f"{status} .*{attempts} of 3 attempts"):
        get(a_set(origin.address, file()), tmp_path)
    assert len(origin.requested) == attempts
    assert not (tmp_path / "dogs").exists(), "an empty folder hides how to get the set"


def test_a_file_that_cannot_be_had_takes_no_other_away(origin: Origin, tmp_path: Path) -> None:
    origin.files["text.fr"] = TEXT
    data = a_set(origin.address, file(), file(name="text.fr", origin="text.fr"))
    with pytest.raises(
        DataError, match=r"text\.en .*; missing: text\.en\.gz; the others are in .*dogs"
    ):
        get(data, tmp_path)
    assert everything_below(tmp_path / "dogs") == ["text.fr"]


def test_without_a_network_the_error_names_address_and_remedy(origin: Origin, tmp_path) -> None:
    nobody = "http://127.0.0.1:9/"  # the discard port: refused
    output = rf"{nobody}text\.en .*get dogs --mirror DIR \(or FOVEATE_DATA=DIR\)"
    with pytest.raises(DataError, match=output):
        get(a_set(nobody, file()), tmp_path)


def test_a_set_that_differs_from_its_origin_says_so(tmp_path: Path) -> None:
    data = a_set("", file(origin=None), differs="half of it was left out", page="https://dogs")
    with pytest.raises(DataError, match=r"https://dogs: half of it was left out.*--mirror"):
        get(data, tmp_path)


def test_an_original_of_another_form_is_named(origin: Origin, tmp_path: Path) -> None:
    origin.files = {"all.zip": b"no archive", "pairs": b"no bars\n"}
    wrong = [
        file(origin="all.zip", convert="member", argument="a.txt"),
        file(origin="pairs", convert="column", argument="2"),
    ]
    for item in wrong:
        with pytest.raises(
            DataError, match=rf"{item.origin} is not what text\.en\.gz was made from"
        ):
            get(a_set(origin.address, item), tmp_path)


@pytest.mark.parametrize("form", ["packed", "packed otherwise", "plain"])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_mirror_serves_without_a_network(form: str, by: str, tmp_path: Path, monkeypatch) -> None:
    mirror = tmp_path / "mirror" / "dogs"
    mirror.mkdir(parents=True)
    name, content = {
        "packed": ("text.en.gz", gzip.compress(TEXT)),
        "packed otherwise": ("text.en.gz", gzip.compress(TEXT, compresslevel=1)),
        "plain": ("text.en", TEXT),
    }[form]
    (mirror / name).write_bytes(content)
    if by == "environment":
        monkeypatch.setenv("FOVEATE_DATA", str(mirror.parent))
    argument = mirror.parent if by == "argument" else None
    folder = get(a_set("http://127.0.0.1:9/", file()), mirror=argument)
    assert folder == tmp_path / "cache" / "foveate" / "dogs"
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT


def test_a_mirror_is_verified_and_may_not_lack_a_file(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    (mirror / "dogs").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no .*dogs/text\.en\.gz; the mirror .*--mirror"):
        get(a_set("", file()), tmp_path, mirror)
    (mirror / "dogs" / "text.en.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match=r"dogs/text\.en\.gz is not the .*sha256"):
        get(a_set("", file()), tmp_path, mirror)
    (mirror / "dogs" / "text.en.gz").write_bytes(gzip.compress(TEXT)[:-20])
    with pytest.raises(DataError, match="damaged gzip"):
        get(a_set("", file()), tmp_path, mirror)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match=f"cannot write {tmp_path}"):
        get(a_set("", file()), tmp_path / "sets", tmp_path)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "sets").write_text("a file")
    with pytest.raises(DataError, match=f"cannot write {tmp_path}/sets"):
        get(a_set("", file()), tmp_path / "sets", tmp_path)


def test_every_set_comes_from_the_data_folder(data_folder: Path, tmp_path: Path) -> None:
    for name in ("multi30k", "time-series", "alignment-gold"):
        folder = get(name, tmp_path, mirror=data_folder)
        assert folder.name == name
        for path in folder.iterdir():
            assert path.read_bytes() == (data_folder / name / path.name).read_bytes()


def test_files_are_found_here_then_in_the_mirror_then_in_the_cache(tmp_path, monkeypatch) -> None:
    local, mirror, cache = tmp_path / "here", tmp_path / "mirror", tmp_path / "cache" / "foveate"
    for folder, ending in ((cache, ".gz"), (mirror, ".gz"), (local, "")):
        (folder / "dogs").mkdir(parents=True)
        (folder / "dogs" / f"train.en{ending}").write_bytes(b"")
    monkeypatch.chdir(local)
    monkeypatch.setenv("FOVEATE_DATA", str(mirror))
    assert find("dogs/train.en") == Path("dogs/train.en")
    (local / "dogs" / "train.en").unlink()
    assert find("dogs/train.en") == mirror / "dogs" / "train.en.gz"
    (mirror / "dogs" / "train.en.gz").unlink()
    assert find("dogs/train.en") == cache / "dogs" / "train.en.gz"
    assert find(str(cache / "dogs" / "train.en")) == cache / "dogs" / "train.en.gz"


def test_a_missing_data_set_names_the_places_and_the_command(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = r"multi30k/train\.en .*cache/foveate/multi30k/train\.en\. .*foveate data get multi30k"
    with pytest.raises(DataError, match=output):
        find("multi30k/train.en")
    with pytest.raises(DataError, match="foveate data list"):
        find("nothing.en")
    with pytest.raises(DataError, match=r"no file \."):
        find(".")  # a folder is no file


SETS = list(catalogue().values())


def test_the_catalogue_holds_every_set() -> None:
    assert len(SETS) == 17
    assert {"multi30k", "tatoeba-en-fr", "alignment-gold", "ptb"} <= set(catalogue())
    assert all(name == data.name for name, data in catalogue().items())


@pytest.mark.parametrize("data", SETS, ids=lambda data: data.name)
def test_a_set_says_whose_it_is_and_where_it_comes_from(data: DataSet) -> None:
    assert data.title and data.task and data.licence and data.attribution and data.files
    assert data.page.startswith("https://")
    assert any(file.origin for file in data.files) != bool(data.differs)  # one or the other
    for file in data.files:
        assert (file.content_sha256 is not None) == file.name.endswith(".gz")
        for digest in (file.sha256, file.content):
            assert len(bytes.fromhex(digest)) == 32
        if file.origin is not None:
            address = urlsplit(urljoin(data.address, file.origin))
            assert (address.scheme, address.netloc) == ("https", "raw.githubusercontent.com")
            commit = address.path.split("/")[3]
            assert len(bytes.fromhex(commit)) == 20  # a commit, never a branch that moves on


@pytest.mark.parametrize("data", SETS, ids=lambda data: data.name)
def test_a_set_is_what_the_catalogue_says(data: DataSet, data_folder: Path) -> None:
    for file in data.files:
        packed = (data_folder / data.name / file.name).read_bytes()
        content = gzip.decompress(packed) if file.name.endswith(".gz") else packed
        assert len(packed) == file.bytes
        assert hashlib.sha256(packed).hexdigest() == file.sha256
        assert hashlib.sha256(content).hexdigest() == file.content
        if file.unit == "lines":
            assert content.count(b"\n") == file.count


def test_the_catalogue_knows_every_folder(data_folder: Path) -> None:
    folders = {path.name: path for path in data_folder.iterdir() if path.is_dir()}
    unlisted = {"marian-multi30k-en-fr", "open-en-fr"}  # a model; texts that no config reads yet
    assert set(folders) - unlisted == set(catalogue())
    for name, folder in folders.items():
        if name in unlisted:
            continue
        local = {path.name for path in folder.iterdir()} - {"README.md"}
        assert local == {file.name for file in catalogue()[name].files}


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"unknown data set 'multi31k'; available: .*multi30k"):
        named("multi31k")
    assert named("ptb").bytes == sum(file.bytes for file in named("ptb").files)
