"""Data sets: the catalogue, what is fetched, verified and found."""

import gzip
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from foveate.data.catalogue import DataError, DataSet, File, catalogue, find, get

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
            self.send_response(local.status.get(name, 200 if name in local.files else 404))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            whole = local.breaks.get(name, 0) < local.requested.count(name)
            self.wfile.write(content if whole else content[: len(content) // 2])

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr("foveate.data.catalogue.PAUSE", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        local.address = f"http://127.0.0.1:{server.server_address[1]}/"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield local
        server.shutdown()


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
    assert folder == tmp_path / "sets" / "dogs" and everything_below(folder) == ["text.en.gz"]
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT
    done = [step for _, step, _ in seen]
    assert len(seen) > 2 and done == sorted(done) and seen[-1] == ("text.en.gz", *[len(TEXT)] * 2)
    get(data, tmp_path / "sets")
    assert origin.requested == ["text.en"]  # what is there and right is not fetched again
    (folder / "text.en.gz").write_bytes(b"damaged")
    get(data, tmp_path / "sets")
    assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT


def test_originals_are_converted_and_fetched_once(origin: Origin, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("deep/inside/a.txt", "eins\n")
        pack.writestr("deep/inside/b.txt", "zwei\n")
    origin.files = {"all.zip": archive.getvalue(), "pairs": b"one  ||| un \ntwo ||| deux\n"}
    origin.files |= {"blanks": b"fine  film \t1\n", "c.gz": gzip.compress(TEXT, compresslevel=1)}
    data = a_set(
        origin.address,
        file("a.txt.gz", b"eins\n", origin="all.zip", convert="member", argument="a.txt"),
        file("b.txt", b"zwei\n", origin="all.zip", convert="member", argument="b.txt"),
        file("fr.txt", b"un\ndeux\n", origin="pairs", convert="column", argument="2"),
        file("blanks.tsv", b"fine  film\t1\n", origin="blanks", convert="strip"),
        file("c.gz", origin="c.gz"),
    )
    folder = get(data, tmp_path)
    assert everything_below(folder) == ["a.txt.gz", "b.txt", "blanks.tsv", "c.gz", "fr.txt"]
    assert (folder / "c.gz").read_bytes() == origin.files["c.gz"]  # packed there: as it is
    assert gzip.decompress((folder / "a.txt.gz").read_bytes()) == b"eins\n"
    assert origin.requested.count("all.zip") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"something else", r"bad is not .*sha256.*Nothing was kept"),
        (None, r"bad .*; missing: bad\.txt; the others are in .*dogs"),
    ],
)
def test_a_file_that_cannot_be_had_takes_no_other_away(content, message, origin, tmp_path) -> None:
    bad, good = file("bad.txt", b"wanted", origin="bad"), file("good.txt", origin="good")
    origin.files = {"good": TEXT} | ({} if content is None else {"bad": content})
    with pytest.raises(DataError, match=message):
        get(a_set(origin.address, bad, good), tmp_path)
    assert everything_below(tmp_path / "dogs") == ["good.txt"]


@pytest.mark.parametrize("breaks", [1, 2, 9])
def test_an_answer_that_breaks_off_is_requested_again_twice(breaks, origin, tmp_path) -> None:
    origin.files["text.en"], origin.breaks["text.en"] = TEXT, breaks
    if breaks < 3:
        folder = get(a_set(origin.address, file()), tmp_path)
        assert gzip.decompress((folder / "text.en.gz").read_bytes()) == TEXT
    else:
        said = r"text\.en \(the connection closed after .*3 of 3.*--mirror"
        with pytest.raises(DataError, match=f"cannot fetch {origin.address}{said}"):
            get(a_set(origin.address, file()), tmp_path)
        assert everything_below(tmp_path / "dogs") == []
    assert len(origin.requested) == min(breaks + 1, 3)


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (403, 1), (503, 3), (429, 3)])
def test_only_what_may_mend_itself_is_tried_again(status, attempts, origin, tmp_path) -> None:
    origin.status["text.en"] = status
    with pytest.raises(DataError, match=f"{status} .*{attempts} of 3 attempts"):
        get(a_set(origin.address, file()), tmp_path)
    assert len(origin.requested) == attempts
    assert not (tmp_path / "dogs").exists(), "an empty folder hides how to get the set"


def test_what_cannot_be_fetched_or_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9/"  # the discard port: refused
    output = rf"{nobody}text\.en .*get dogs --mirror DIR \(or FOVEATE_DATA=DIR\)"
    with pytest.raises(DataError, match=output):
        get(a_set(nobody, file()), tmp_path)
    data = a_set("", file(origin=None), differs="half of it was left out", page="https://dogs")
    with pytest.raises(DataError, match=r"https://dogs: half of it was left out.*--mirror"):
        get(data, tmp_path)
    (tmp_path / "sets").write_text("a file")
    with pytest.raises(DataError, match=f"cannot write {tmp_path}/sets"):
        get(a_set("", file()), tmp_path / "sets", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "convert", "argument"),
    [("all.zip", b"no archive", "member", "a.txt"), ("pairs", b"no bars\n", "column", "2")],
)
def test_an_original_of_another_form_is_named(name, content, convert, argument, origin) -> None:
    origin.files = {name: content}
    with pytest.raises(DataError, match=rf"{name} is not what text\.en\.gz was made from"):
        get(a_set(origin.address, file(origin=name, convert=convert, argument=argument)))


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


@pytest.mark.parametrize("data", catalogue().values(), ids=lambda data: data.name)
def test_a_set_says_whose_it_is_and_where_it_comes_from(data: DataSet) -> None:
    assert catalogue()[data.name] is data
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


@pytest.mark.parametrize("data", catalogue().values(), ids=lambda data: data.name)
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
    unlisted = {"marian-multi30k-en-fr", "open-en-fr"}  # a model; texts that no config reads yet
    folders = {f.name: f for f in data_folder.iterdir() if f.is_dir() and f.name not in unlisted}
    files = {n: {f.name for f in folders[n].iterdir()} - {"README.md"} for n in folders}
    assert files == {n: {file.name for file in data.files} for n, data in catalogue().items()}
