"""A training corpus in files: read once, encoded once, mapped into memory.

Lives here: the texts of a corpus and their token ids as columns in the cache, made span by span.
Does not live here: columns (`columns`), the cache (`store`), processes (`workers`).

What is read depends on the files and on the choices of `foveate.data.text.TextData`; the ids depend
on that and on the tokenizers. Each is kept under a hash of all that it depends on, code included,
so that a run that goes on, or another one with the same data, finds them. Limits of length are no
part of it: they choose among the rows when the corpus is opened.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tokenizers as rust
from numpy.typing import NDArray

from foveate.data.columns import Texts, TokenIds, Writer, mapped, smallest
from foveate.data.lines import BadLine
from foveate.data.progress import Meter
from foveate.data.store import digest_of, origin, stored
from foveate.data.text import Corpus, Reading
from foveate.data.tokenizer import Tokenizer
from foveate.data.vocabulary import valid
from foveate.data.workers import ROWS, Arrays, Work, in_order, spans_of

FACTS = "corpus.json"
TOKENIZER, DIGEST = "tokenizer.json", "tokenizer.blake2b"  # of a tokenizer in the cache
NUMBERS = "numbers"  # of the lines
Item = TypeVar("Item")


@dataclass
class PreparedCorpus(Corpus):
    """All pairs of a corpus, in the files of a ``folder``; a row is read when it is asked for."""

    folder: Path = Path()


def prepare_texts(readings: Sequence[Reading]) -> PreparedCorpus:
    """The pairs of all readings, one after the other, read if they were not kept from before.

    Raises `DataError` as reading does; then nothing is kept.
    """
    parts = [
        {"kind": origin(type(reading)), "content": [digest_of(f) for f in reading.files]}
        | reading.key()
        for reading in readings
    ]
    return _opened(stored({"texts": parts}, lambda folder: _write_texts(folder, readings)))


def _write_texts(folder: Path, readings: Sequence[Reading]) -> None:
    files = [file for reading in readings for file in dict.fromkeys(reading.files)]
    packed = any(file.suffix == ".gz" for file in files)
    total = None if packed else sum(file.stat().st_size for file in files) / 1e6
    sizes = []
    with ExitStack() as stack:
        meter = stack.enter_context(Meter("reading text", total, "MB"))
        sides = [stack.enter_context(text_writer(folder, side)) for side in ("source", "target")]
        lines = stack.enter_context((folder / NUMBERS).open("wb"))
        for reading in readings:
            sizes.append(0)
            for pairs in portions(reading, ROWS):
                numbers, *texts = zip(*pairs, strict=True)
                lines.write(np.array(numbers, dtype=np.int64).tobytes())
                size = sum(side.add_texts(rows) for side, rows in zip(sides, texts, strict=True))
                meter.add((size + 2 * len(pairs)) / 1e6)
                sizes[-1] += len(pairs)
    dropped = Counter[str]()
    for reading in readings:
        dropped.update(reading.dropped)
    skipped = [(bad.file, bad.line, bad.reason) for reading in readings for bad in reading.skipped]
    facts = {"sizes": sizes, "dropped": dict(dropped), "skipped": skipped}
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _opened(folder: Path) -> PreparedCorpus:
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    sizes = facts["sizes"]
    numbers = np.arange(len(sizes), dtype=smallest(len(sizes)))
    return PreparedCorpus(
        sources=Texts.open(folder, "source"),
        targets=Texts.open(folder, "target"),
        lines=mapped(folder / NUMBERS, np.dtype(np.int64)),
        skipped=[BadLine(*bad) for bad in facts["skipped"]],
        dropped=facts["dropped"],
        parts=np.repeat(numbers, sizes) if len(sizes) > 1 else None,
        folder=folder,
    )


def prepare_ids(
    folder: Path,
    tokenizers: Mapping[str, Tokenizer],
    end: Sequence[int] = (),
    processes: int | None = None,
) -> list[TokenIds]:
    """The ids of columns of texts, each by its tokenizer; encoded if not kept from before.

    ``end`` are ids that are put after those of every row. Gives the same for any ``processes``.
    """
    saved = {side: tokenizer.text() for side, tokenizer in tokenizers.items()}
    key = {
        "ids": folder.name,
        "end": list(end),
        "library": rust.__version__,
        "code": {side: origin(type(tokenizer)) for side, tokenizer in tokenizers.items()},
        "tokenizers": {s: hashlib.sha256(text.encode()).hexdigest() for s, text in saved.items()},
    }

    def make(new: Path) -> None:
        for side, text in saved.items():
            (new / f"{side}.json").write_text(text, encoding="utf-8")
        modules = sorted({type(tokenizer).__module__ for tokenizer in tokenizers.values()})
        values = {
            "texts": str(folder),
            "tokenizers": {side: str(new / f"{side}.json") for side in saved},
            "modules": modules,
            "end": list(end),
        }
        sizes = {side: tokenizer.vocab_size for side, tokenizer in tokenizers.items()}
        _write_ids(new, values, sizes, 1 if "__main__" in modules else processes)

    kept = stored(key, make)
    return [TokenIds.open(kept, f"{side}.ids") for side in tokenizers]


def learn_tokenizer(
    config: Tokenizer.Config, lines: Callable[[], Iterable[str]], label: str = "tokenizer"
) -> Tokenizer:
    """The tokenizer of a config, trained on lines, or from the cache if it was trained on them.

    ``lines`` gives them each time that it is called. The name in the cache is a hash of the lines,
    the config, the code and the version of the library; a damaged entry is trained again.
    """
    empty: Tokenizer = config.build()
    if empty.pieces:  # nothing to learn
        return empty
    text = hashlib.sha256()
    count = 0
    for line in valid(lines()):
        text.update(line.encode() + b"\xff")  # a byte that UTF-8 never has
        count += 1
    key = {
        "tokenizer": config.tree(),
        "lines": text.hexdigest(),
        "library": rust.__version__,
        "code": origin(type(empty)),
    }
    seconds: list[float] = []

    def make(new: Path) -> None:
        began = time.monotonic()
        with Meter(f"training the {config.kind} {label}", count, "lines") as meter:
            empty.train(_counted(lines(), meter))
        seconds.append(time.monotonic() - began)
        empty.save(new / TOKENIZER)
        (new / DIGEST).write_text(digest_of(new / TOKENIZER), encoding="utf-8")

    folder = stored(key, make, _undamaged)
    if not seconds:
        print(f"{config.kind} {label} from the cache: {folder}", file=sys.stderr)
    elif seconds[0] > 1:
        print(f"{config.kind} {label} trained in {seconds[0]:,.0f} s", file=sys.stderr)
    return Tokenizer.load(folder / TOKENIZER)


def _undamaged(folder: Path) -> bool:
    return (folder / DIGEST).read_text(encoding="utf-8") == digest_of(folder / TOKENIZER)


def _counted(lines: Iterable[str], meter: Meter) -> Iterator[str]:
    """The lines, counted by the meter; after the last one it shows that the work goes on."""
    done = 0
    for done, line in enumerate(lines, start=1):
        yield line
        if done % 1000 == 0:
            meter.add(1000)
    meter.add(done % 1000)
    meter.busy()


def _write_ids(
    new: Path, values: Mapping[str, Any], sizes: Mapping[str, int], processes: int | None
) -> None:
    rows = len(Texts.open(Path(values["texts"]), next(iter(sizes))))
    spans = spans_of(rows)
    with ExitStack() as stack:
        meter = stack.enter_context(Meter("making tokens", rows, "lines"))
        writers = {
            side: stack.enter_context(Writer(new, f"{side}.ids", smallest(size - 1)))
            for side, size in sizes.items()
        }
        found = in_order(encoder, values, spans, processes)
        for (first, stop), arrays in zip(spans, found, strict=True):
            for side, writer in writers.items():
                writer.add(arrays[side], arrays[f"{side} lengths"])
            meter.add(stop - first)


def encoder(values: Mapping[str, Any]) -> Work:
    """Work on spans: the ids of texts, flat, and how many each has."""
    for module in values["modules"]:  # those of the user's own register their kinds
        importlib.import_module(module)
    folder, end = Path(values["texts"]), values["end"]
    sides = {
        side: (Tokenizer.load(file), Texts.open(folder, side))
        for side, file in values["tokenizers"].items()
    }

    def encode(first: int, stop: int) -> Arrays:
        arrays = {}
        for side, (tokenizer, texts) in sides.items():
            ids = tokenizer.encode_ids(texts[first:stop])
            ids = [one + end for one in ids] if end else ids
            lengths = np.fromiter(map(len, ids), np.int64, len(ids))
            dtype = smallest(tokenizer.vocab_size - 1)
            arrays[side] = np.fromiter(chain.from_iterable(ids), dtype, lengths.sum())
            arrays[f"{side} lengths"] = lengths
        return arrays

    return encode


def sample(count: int, most: int, seed: int) -> Sequence[int] | NDArray[np.int64]:
    """At most so many of ``count`` rows, in their order: all, or some by the seed."""
    if count <= most:
        return range(count)
    drawn = np.random.default_rng(seed).choice(count, most, replace=False, shuffle=False)
    return np.sort(drawn)


def text_writer(folder: Path, name: str) -> Writer:
    """A writer of a column that `Texts` opens."""
    return Writer(folder, name, np.dtype(np.uint8))


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of so many items, the last one shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
