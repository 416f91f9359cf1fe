"""Every reader of foveate under a fuzzer: what it is given is read, or refused in words of ours.

    python benchmarks/durability fuzz [--seconds 60] [--only TARGET,…] [--out FILE.json]

`atheris` (libFuzzer) mutates bytes, guided by which branches of foveate they reach; where it is not
installed (pip install atheris), random mutations of the same examples take its place. A finding is
an exception that a person would see as a traceback, an input that takes longer than 20 seconds, or
memory above 2 GiB. Findings are counted by kind and place, and one input of each is kept.

The target `engine` is C, with the address, leak and undefined-behaviour sanitizers of gcc: programs
of models are changed at random, read and searched with (``fuzz_engine.c``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import fuzz_engine
from typer import Option

import harness

Read = Callable[[bytes], object]
Targets = dict[str, tuple[Read, list[bytes]]]
GUIDED = importlib.util.find_spec("atheris") is not None
SLOW, MEMORY = 20, 2048  # seconds of one input, MiB
DOCUMENTS = {
    "text": b"One. Two?\n\n{{x}} https://a.b 3.5 %s",
    "html": b"<p>One <b>two <i>three</i></b>.<br>&amp; <a href='x'>four</a></p><!-- no -->",
    "tsv": b"one\ta\ntwo\tb\r\n\n",
    "srt": b"1\n00:00:01,000 --> 00:00:02,000\n- One\n- Two\n\n2\n0:00:03,000 --> 0:00:04,000\nA\n",
    "po": b'#, fuzzy\nmsgid "one"\nmsgstr ""\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n',
    "tmx": b'<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>one <bpt>x'
    b"</bpt>two</seg></tuv></tu></body></tmx>",
    "xliff": b'<xliff version="1.2"><file><trans-unit id="1"><source>one <g id="1">two</g> '
    b'<bx id="2"/>three<ex id="2"/></source><target state="new"/></trans-unit></file></xliff>',
    "usfm": b"\\id RUT\n\\c 1\n\\p\n\\v 1 one \\nd two\\nd*,\n\\q1 three\\f + \\ft x\\f*\n",
}
TABLES = [
    b"date,a\n" + b"".join(b"2020-01-%02d,%d\n" % (n, n) for n in range(1, 29)),
    b"when;x;y\n01/02/20 05:06 PM;1.234,5;12%\n02/02/20 05:06 PM;$1,5;3%\n",
    b"text,label\n" + b"".join(b"a house %d,%d\n" % (n, n % 2) for n in range(30)),
]
OVERRIDES = [b"train.seed=1", b"task={kind=translation, source=x}", b"model.kind=gpt"]
ENGINE = "engine"
FORM = b"application/x-www-form-urlencoded"


def targets(place: Path) -> Targets:
    """What reads, and examples of what it reads; files go into a folder."""
    import foveate.align.aer as aer
    from foveate.cli.align import read_links
    from foveate.config import assigned, read
    from foveate.data.image import decode, read_idx
    from foveate.data.report import report_files
    from foveate.data.series import SeriesData, read_table
    from foveate.data.text import TextData, rows
    from foveate.data.tokenizer import Tokenizer
    from foveate.documents.memory import Glossary, TranslationMemory
    from foveate.run import RunConfig
    from foveate.serve.keys import KeyFile
    from foveate.tasks.draft import planned
    from foveate.tasks.shortlist import FILE, Shortlist
    from foveate.train import checkpoint, journal
    from foveate.train.stored import MANIFEST, opened, size_of, verify

    def on_file(
        name: str, act: Callable[[Path], object], made: Callable[[bytes], bytes] = bytes
    ) -> Read:
        def put(data: bytes) -> object:
            (place / name).write_bytes(made(data))
            return act(place / name)

        return put

    def config(path: Path) -> object:
        if b"imports" in path.read_bytes():  # what a config names there is executed: SECURITY.md
            return None
        return read(RunConfig, path)

    def tensors(path: Path) -> object:
        with opened(path) as file:
            return [file.get_tensor(name).sum() for name in file.keys()], size_of(file)  # noqa: SIM118

    def pairs(path: Path) -> object:
        return list(rows(path, None, TextData())), report_files([path], TextData())

    result: Targets = {
        "tsv": (on_file("a.tsv", pairs), [b"a\tb\nc\td\n"]),
        "csv": (on_file("a.csv", pairs), [b'a,b\n"c\nx",d\n', b"sep=;\na;b\nc;d\n"]),
        "jsonl": (on_file("a.jsonl", pairs), [b'{"source": "a", "target": "b"}\n']),
        "json": (on_file("a.json", pairs), [b'[{"source": "a", "target": 2}, {"a": null}]']),
        "fasttext": (on_file("a.txt", pairs), [b"__label__a one two\n__label__b one\n"]),
        "po pairs": (on_file("a.po", pairs), [DOCUMENTS["po"], b'#~ msgid "a"\n#~ msgstr "b"\n']),
        "tmx pairs": (on_file("a.tmx", pairs), [DOCUMENTS["tmx"]]),
        "xliff pairs": (
            on_file("a.xliff", pairs),
            [b'<xliff><unit><segment state="x"><source>a</source></segment></unit></xliff>'],
        ),
        "new": (on_file("n.csv", lambda p: planned("auto", [p], 1.0, {})), TABLES),
        "override": (lambda data: RunConfig.parse(assigned(data.decode("latin-1"))), OVERRIDES),
        "picture": (lambda data: decode(data, "x", 3, (4, 4)), _pictures()),
        "config": (on_file("config.toml", config), [toml() for toml in _configs()]),
        "tokenizer": (on_file("t.json", Tokenizer.load), _tokenizers()),
        "tensors": (on_file("model.safetensors", tensors), [_weights()]),
        "manifest": (on_file(MANIFEST, lambda p: verify(p.parent)), [b'{"files": {}}']),
        "best.json": (
            on_file("best.json", lambda p: checkpoint.chosen(p.parent)),
            [b'{"folder": "averaged", "value": 1.0}'],
        ),
        "log": (journal.sound, [b'{"event": "train", "step": 1}\n']),
        "shortlist": (on_file(FILE, lambda p: Shortlist.load(p.parent)), [_shortlist(place)]),
        "pharaoh": (on_file("links", read_links), [b"0-0 1-2\n\n3-4\n"]),
        "gold links": (on_file("gold", aer.read_gold), [b"1-1 2p3\n"]),
        "glossary": (on_file("g.tsv", Glossary.read), [b"# x\ndog\tchien|chienne\n"]),
        "memory": (on_file("m.tmx", TranslationMemory.read), [DOCUMENTS["tmx"]]),
        "keys": (
            on_file("keys", lambda p: KeyFile(p).find("x")),
            [b'{"name": "a", "begins": "f", "sha256": "0", "made": ""}\n'],
        ),
        "series": (
            on_file("s.csv", lambda p: read_table(SeriesData(path=str(p)))),
            [b"date,a\n2000-01-01,1\n2000-01-02,2\n"],
        ),
        "pictures": (on_file("i.idx", read_idx), [b"\0\0\x08\x01\0\0\0\x02ab"]),
        "program": (fuzz_engine.search_with, fuzz_engine.examples()),
        "packed file": (
            on_file("m.safetensors", fuzz_engine.answer_with),
            fuzz_engine.packed_files(),
        ),
        "packed header": (
            on_file("h.safetensors", fuzz_engine.answer_with, fuzz_engine.changed_file),
            [b"1", b"2"],
        ),
        "request": (_request, [b"0{}", b'1{"q": "a"}', b"2q=a&source=en", b"3--x\r\n\r\n--x--"]),
    }
    for kind, example in DOCUMENTS.items():
        result[kind + " document"] = (_document(kind), [example])
    result["docx document"] = (_document("docx"), [_docx()])
    return result


# ------------------------------------------------------------------------------ readers


def _document(kind: str) -> Read:
    from foveate.documents.formats import DocumentOptions, read_document

    def act(data: bytes) -> object:
        document = read_document(kind, data, DocumentOptions(to="fr"), "it")
        return document.written(["x"] * len(document.passages))

    return act


KINDS = {
    b"0": b"application/json",
    b"1": b"text/plain",
    b"2": FORM,
    b"3": b"multipart/form-data; boundary=x",
}


def _request(data: bytes) -> object:
    """The body of a request, its first byte saying of which kind it is."""
    from starlette.requests import Request

    from foveate.serve.bodies import read_fields, validated
    from foveate.serve.translation_schemas import Limits, TranslateBody

    scope = {
        "type": "http", "method": "POST", "path": "/translate", "query_string": data[:5],
        "headers": [(b"content-type", KINDS.get(data[:1], FORM))],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data[1:], "more_body": False}

    async def computed(work: Callable[[], Any], size: int) -> Any:
        return work()

    fields = read_fields(
        Request(scope, receive), SimpleNamespace(computed=computed, limits=Limits())
    )
    try:
        fields.send(None)  # nothing is waited for, so that no event loop is needed
    except StopIteration as end:
        return validated(TranslateBody, end.value)
    raise RuntimeError("the fields of a request were not read at once")


# ------------------------------------------------------------------------------ examples


def _configs() -> list[Callable[[], bytes]]:
    folder = harness.ROOT / "configs"
    return [path.read_bytes for path in sorted(folder.rglob("*.toml"))[:8]]


def _tokenizers() -> list[bytes]:
    from foveate.data.tokenizer import Tokenizer

    made = []
    for kind in ("word", "character", "bpe", "unigram", "symbol", "byte"):
        tokenizer = Tokenizer.Config.parse({"kind": kind}).build()
        tokenizer.train(["the dog sleeps", "a dog runs"] * 3)
        made.append(tokenizer.text().encode())
    return [*made, json.dumps(json.loads(made[2])["vocabulary"]).encode()]


def _pictures() -> list[bytes]:
    import io

    from PIL import Image

    made = []
    for mode, kind in (("RGBA", "PNG"), ("P", "GIF"), ("RGB", "JPEG"), ("I;16", "TIFF")):
        file = io.BytesIO()
        Image.new(mode, (5, 4)).save(file, kind)
        made.append(file.getvalue())
    return made


def _weights() -> bytes:
    import torch
    from safetensors.torch import save

    return save({"a.weight": torch.ones(2, 3), "b": torch.zeros(1, dtype=torch.int64)})


def _shortlist(place: Path) -> bytes:
    import torch

    from foveate.tasks.shortlist import FILE, Shortlist

    Shortlist(torch.arange(4), torch.ones(3, 2, dtype=torch.int64)).save(place)
    return (place / FILE).read_bytes()


def _docx() -> bytes:
    import io

    import docx

    document = docx.Document()
    document.add_paragraph("One ").add_run("two").bold = True
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


# ------------------------------------------------------------------------------ one target


class Watch:
    """The reader, its findings by kind and place, and how often it was called."""

    def __init__(self, read: Read, kept: Path) -> None:
        self.read, self.kept, self.calls = read, kept, 0
        self.seen = set[str]()

    def __call__(self, data: bytes) -> None:
        from foveate.errors import FOR_THE_USER
        from foveate.serve.common import RequestError

        self.calls += 1
        try:
            self.read(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, (*FOR_THE_USER, RequestError)):
                return
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if "foveate" in f.filename and "benchmarks" not in f.filename]
            at = ours[-1] if ours else frames[-1]
            what = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
            if what not in self.seen:
                self.seen.add(what)
                line = {"what": what, "said": str(error)[:200], "input": data[:300].hex()}
                with self.kept.open("a", encoding="utf-8", newline="\n") as file:
                    file.write(json.dumps(line) + "\n")


def loaded(place: Path) -> Targets:
    """The readers, those of foveate with the marks by which atheris sees where they go."""
    if not GUIDED:
        return targets(place)
    import atheris

    with atheris.instrument_imports(include=["foveate"]):
        return targets(place)


def fuzz(read: Read, examples: list[bytes], seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    watch = Watch(read, folder / "findings")
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, example in enumerate(examples):
        (corpus / str(number)).write_bytes(example)
        watch(example)
    if GUIDED:
        import atheris

        limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY}", f"-timeout={SLOW}"]
        keep = [f"-artifact_prefix={folder}/", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, *keep, str(corpus)], watch)
        atheris.Fuzz()
    mutate(watch, examples, seconds)
    print(f"number_of_executed_units: {watch.calls}", file=sys.stderr, flush=True)


def mutate(watch: Watch, examples: list[bytes], seconds: int) -> None:
    """Random bytes in, out and over others, for so long."""
    chance, until = random.Random(1), time.monotonic() + seconds
    while time.monotonic() < until:
        data = bytearray(chance.choice(examples))
        for _ in range(chance.randint(1, 8)):
            place = chance.randint(0, len(data))
            piece = chance.choice([chance.randbytes(chance.randint(0, 4)), bytes(data[place:][:9])])
            data[place : place + chance.randint(0, 4)] = piece
        watch(bytes(data))


def one(name: str, target: tuple[Read, list[bytes]], seconds: int) -> dict[str, Any]:
    """Fuzz one target in a process of its own, which has everything loaded already."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        child = os.fork()
        if not child:
            handle = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            try:
                fuzz(*target, seconds, folder)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        output = (folder / "said").read_text("utf-8", "replace")
        units = re.search(r"number_of_executed_units:\s*(\d+)", output)
        saved = folder / "findings"
        lines = saved.read_text(encoding="utf-8").splitlines() if saved.exists() else []
        result = [json.loads(line) for line in lines]
        for left in sorted(folder.glob("*-*")):  # libFuzzer's: oom-…, timeout-…, crash-…
            what = left.name.partition("-")[0]
            result.append({"what": what, "said": "", "input": left.read_bytes()[:300].hex()})
    if units is None and not result:
        sys.exit(f"{name} was not fuzzed:\n{output[-2000:]}")
    row = {"executions": int(units[1]) if units else None, "findings": result}
    print(f"{name}: {json.dumps(row)[:400]}", file=sys.stderr, flush=True)
    return row


def main(
    seconds: Annotated[int, Option(help="for each target")] = 60,
    only: Annotated[str | None, Option(help="targets, between commas")] = None,
    out: Path | None = None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = loaded(Path(folder))
        names = only.split(",") if only else [*there, *[ENGINE] * bool(shutil.which("gcc"))]
        result = {
            name: fuzz_engine.fuzz(seconds, Path(folder))
            if name == ENGINE
            else one(name, there[name], seconds)
            for name in names
        }
    counts = [row["executions"] or 0 for row in result.values()]
    report = {
        "fuzzer": "atheris" if GUIDED else "random mutations",
        "seconds_each": seconds,
        "executions": sum(counts),
        "findings": sum(len(row["findings"]) for row in result.values()),
        "targets": result,
    }
    path = harness.write("fuzz", report, out)
    print(f"{report['executions']:,} executions, {report['findings']} findings ({path})")
    sys.exit(bool(report["findings"]))
