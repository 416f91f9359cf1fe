"""A corpus in files is the corpus in memory, whoever encodes it and whatever happens meanwhile."""

import errno
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from foveate.data import corpus as corpus_module
from foveate.data.catalogue import DataError
from foveate.data.corpus import Meter, learn_tokenizer, prepare_ids, prepare_texts, sample, spans_of
from foveate.data.report import traits_of
from foveate.data.synthetic import write
from foveate.data.text import Reading, TextData
from foveate.data.tokenizer import BPE, Byte, Tokenizer, Unigram, WordTokenizer
from small_runs import running
from task_tools import read_split

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)
WHOLE = (TextData(), TextData(drop_duplicates=True, drop_identical=True), TextData(holdout=0.3))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOVEATE_PREPARED", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path, {"train": 60})
    return tmp_path


def reading(folder: Path, config: TextData | None = None) -> Reading:
    sides = (str(folder / "{split}.en"), str(folder / "{split}.fr"))
    return Reading(*sides, "train", config or TextData())


def learnt(folder: Path) -> Tokenizer:
    tokenizer: Tokenizer = BPE.Config(vocab_size=300).build()
    tokenizer.train((folder / "train.en").read_text("utf-8").splitlines())
    return tokenizer


@given(st.lists(st.tuples(LINE, LINE), max_size=30), st.sampled_from(WHOLE))
@settings(max_examples=30)
def test_mapped_is_plain_for_any_text(tmp_path_factory, pairs, config) -> None:
    folder = tmp_path_factory.mktemp("texts")
    pairs = [*pairs, ("", ""), ("😀" * 300, "é"), ("a", "a"), *pairs[:2]]
    lines = [{"source": source, "target": target} for source, target in pairs]
    file = folder / "all.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plain = read_split(file, None, "train", config)
    mapped = prepare_texts([Reading(file, None, "train", config)])
    assert list(mapped.sources) == plain.sources and list(mapped.targets) == plain.targets
    assert mapped.lines.tolist() == list(plain.lines)
    assert mapped.dropped == plain.dropped
    ids = prepare_ids(mapped.folder, {"source": Byte.Config().build()})[0]
    assert list(ids) == Byte.Config().build().encode_ids(plain.sources)
    saved, counted = len(mapped), sum(mapped.dropped.values())
    assert saved + counted == len(pairs) or config.holdout


@pytest.mark.parametrize("rows", [7, 1000])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_and_spans_change_nothing(cache, files, processes, rows, monkeypatch) -> None:
    tokenizer = learnt(files)
    corpus = prepare_texts([reading(files)])
    monkeypatch.setattr(corpus_module, "spans_of", lambda count: spans_of(count, rows))
    sides = {"source": tokenizer, "target": tokenizer}
    result = prepare_ids(corpus.folder, sides, processes=processes)
    for texts, ids in zip((corpus.sources, corpus.targets), result, strict=True):
        assert list(ids) == tokenizer.encode_ids(texts)
    (ended,) = prepare_ids(corpus.folder, {"source": tokenizer}, [3], processes)
    assert list(ended) == [[*ids, 3] for ids in result[0]]


def test_the_report_sees_the_same_through_processes(cache: Path, files: Path, monkeypatch) -> None:
    corpus = prepare_texts([reading(files)])
    alone = traits_of(corpus.take(range(len(corpus))))
    monkeypatch.setattr(corpus_module, "ENOUGH", 1)
    monkeypatch.setattr(corpus_module, "processors", lambda: 2)
    monkeypatch.setattr("foveate.data.report.spans_of", lambda n: [(0, 30), (30, n)])
    for name, values in vars(traits_of(corpus)).items():
        assert (values == vars(alone)[name]).all(), name


def test_what_is_there_is_not_made_again_and_a_changed_file_is(cache, files, monkeypatch) -> None:
    first = prepare_texts([reading(files)])
    tokenizer = learnt(files)
    prepare_ids(first.folder, {"source": tokenizer})
    with monkeypatch.context() as patch:
        patch.setattr(corpus_module, "_write_texts", None)
        patch.setattr(corpus_module, "_write_ids", None)
        prepare_ids(first.folder, {"source": tokenizer})
        for config in (None, TextData(max_length=3)):  # which chooses among what is there
            assert prepare_texts([reading(files, config)]).folder == first.folder
    other = prepare_texts([reading(files, TextData(drop_duplicates=True))])
    assert other.folder != first.folder
    file = files / "train.fr"
    stat, text = file.stat(), file.read_text("utf-8")
    file.write_text(text.replace("e", "i"), "utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # neither size nor time tells
    changed = prepare_texts([reading(files)])
    assert list(changed.targets) == file.read_text("utf-8").splitlines()
    source = changed.folder / "source.uint8"
    os.truncate(source, source.stat().st_size - 1)  # what is damaged is made again
    assert list(prepare_texts([reading(files)]).sources) == list(first.sources)


def test_a_file_divided_in_two_is_not_taken_for_one_divided_in_three(cache, files) -> None:
    """The first has a file of test pairs of its own, and trains on what the second tests."""
    config, one = TextData(holdout=0.2), files / "train.tsv"
    one.write_text("".join(f"source {i}\ttarget {i}\n" for i in range(300)))
    two = prepare_texts([Reading(files / "{split}.tsv", None, "train", config)])
    three = prepare_texts([Reading(one, None, "train", config)])
    test = set(read_split(one, None, "test", config).sources)
    assert test and test <= set(two.sources) and not test & set(three.sources)


def test_stored_bytes_belong_to_their_format(cache: Path, files: Path) -> None:
    """Where this fails, raise ``FORMAT`` in foveate.data.corpus, and put the new hash here."""
    stored = hashlib.sha256()
    for config in WHOLE[:2]:
        corpus = prepare_texts([reading(files, config)])
        stored.update(corpus_module.content_of(corpus.folder).encode())
    texts = (files / "train.en").read_text("utf-8").splitlines()
    for kind in (Byte.Config(), WordTokenizer.Config(), BPE.Config(vocab_size=300)):
        tokenizer = learn_tokenizer(kind, lambda: texts)
        for ids in prepare_ids(corpus.folder, {"source": tokenizer}, [3]):
            stored.update(ids.flat.tobytes() + ids.offsets.tobytes())
    found = (corpus_module.FORMAT, stored.hexdigest()[:16])
    assert found == (2, "ca13c289567b5f87")


def test_an_error_leaves_nothing(cache: Path, files: Path, monkeypatch) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="too little free space for prepared data: free some"):
        corpus_module.stored({"a": 1}, full)
    (files / "train.en").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="not UTF-8"):
        prepare_texts([reading(files)])
    assert {file.suffix for file in cache.iterdir()} == {".lock"}
    monkeypatch.setenv("FOVEATE_PREPARED", str(files / "train.en" / "cache"))  # cannot be written
    write(files, {"train": 60})
    assert len(prepare_texts([reading(files)])) == 60


KILLED = """
import sys, time
from foveate.data import corpus
from foveate.data.text import Reading, TextData
whole = corpus.portions
def slowly(items, size):
    for some in whole(items, 5):
        yield some
        print("some", flush=True)
        time.sleep(60)
corpus.portions = slowly
corpus.prepare_texts([Reading(*sys.argv[1:], "train", TextData())])
"""


def test_killed_it_leaves_nothing_half(cache: Path, files: Path) -> None:
    sides = [str(files / f"{{split}}.{side}") for side in ("en", "fr")]
    command = [sys.executable, "-c", KILLED, *sides]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with running(command, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout.readline() == b"some\n"
        assert list(cache.glob("*.new"))
        process.send_signal(signal.SIGKILL)
    corpus = prepare_texts([reading(files)])
    assert list(corpus.sources) == (files / "train.en").read_text("utf-8").splitlines()
    assert not list(cache.glob("*.new"))


def test_a_worker_leaves_when_left_alone_and_its_errors_are_raised_here(cache, files) -> None:
    folder = str(prepare_texts([reading(files)]).folder)
    values = {"texts": folder, "tokenizers": {}, "modules": [], "end": []}
    with closing(corpus_module.Worker(corpus_module.encoder, values)) as worker:
        assert worker((0, 1)) == {}
        process = worker._process
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdin = None
    values |= {"tokenizers": {"source": "none.json"}}
    match = r"another process: FileNotFoundError: .*none\.json"
    with pytest.raises(corpus_module.WorkerError, match=match):
        list(corpus_module.in_order(corpus_module.encoder, values, [(0, 1), (1, 2)], processes=2))


def test_what_nobody_used_for_long_goes(cache: Path, files: Path) -> None:
    old = prepare_texts([reading(files)]).folder
    then = time.time() - (corpus_module.DAYS + 1) * 86_400
    os.utime(old / corpus_module.MANIFEST, (then, then))
    begun = cache / "other.new"
    begun.mkdir()
    os.utime(begun, (then, then))
    saved = prepare_texts([reading(files, TextData(drop_duplicates=True))]).folder
    assert saved.exists() and not old.exists() and not begun.exists()


def test_a_sample_is_by_the_seed_and_in_order() -> None:
    some = sample(1000, 10, 1)
    assert list(sample(5, 9, 1)) == [0, 1, 2, 3, 4] and len(some) == 10
    assert list(some) == sorted(set(some)) == list(sample(1000, 10, 1)) != list(sample(1000, 10, 2))


def test_progress_has_rate_and_time_left_on_a_terminal_only(cache: Path, monkeypatch) -> None:
    for terminal in (True, False):
        text = io.StringIO()
        console = Console(file=text, force_terminal=terminal, width=100)
        with Meter("reading", 10, "MB", console) as meter:
            meter.add(5)
            meter.refresh()
        monkeypatch.setattr(corpus_module, "Meter", lambda *given, to=console: Meter(*given, to))
        size = 300 + terminal  # another tokenizer, which is not in the cache
        words = [f"word {n}" for n in range(1500)]
        learn_tokenizer(Unigram.Config(vocab_size=size), lambda words=words: words)
        for shown in ("reading", "MB/s", "training the unigram tokenizer"):
            assert (shown in text.getvalue()) == terminal


@pytest.mark.parametrize("kind", [BPE, Unigram])
def test_a_tokenizer_is_trained_once(cache, files, kind, capsys) -> None:
    lines = (files / "train.en").read_text("utf-8").splitlines()
    config = kind.Config(vocab_size=300)
    plain = config.build()
    plain.train(lines)
    assert learn_tokenizer(config, lambda: lines).text() == plain.text()
    assert capsys.readouterr().err == ""
    assert learn_tokenizer(config, lambda: iter(lines)).text() == plain.text()
    assert f"{config.kind} tokenizer from the cache: {cache}" in capsys.readouterr().err
    for other in (lines[:-1], [*lines, "x"], [" ".join(lines)]):
        learn_tokenizer(config, lambda other=other: other)
    learn_tokenizer(kind.Config(vocab_size=301), lambda: lines)
    assert capsys.readouterr().err == "", "other lines and other settings are trained anew"


def test_a_damaged_tokenizer_is_trained_again(cache: Path, files: Path, capsys) -> None:
    lines, config = (files / "train.en").read_text("utf-8").splitlines(), BPE.Config(vocab_size=300)
    expected = learn_tokenizer(config, lambda: lines).text()
    (file,) = cache.glob("*/tokenizer.json")
    content = file.read_bytes()
    for damaged in (content[:-9], content.replace(b"Split", b"Spilt")):
        file.write_bytes(damaged)  # the second has its size
        assert learn_tokenizer(config, lambda: lines).text() == expected
        assert file.read_bytes() == content
    assert capsys.readouterr().err == ""
    assert learn_tokenizer(Byte.Config(), lambda: lines).vocab_size == 260
    assert len([*cache.glob("*/tokenizer.json")]) == 1, "nothing is kept of what is not learnt"
