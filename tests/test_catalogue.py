from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from foveate.data.catalogue import DataError, DataSet, catalogue, named

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
    assert set(folders) == set(catalogue())
    for name, folder in folders.items():
        local = {path.name for path in folder.iterdir()} - {"README.md"}
        assert local == {file.name for file in catalogue()[name].files}


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"no data set 'multi31k'; there are .*multi30k"):
        named("multi31k")
    assert named("ptb").bytes == sum(file.bytes for file in named("ptb").files)
