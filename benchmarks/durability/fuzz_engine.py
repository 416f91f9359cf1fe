"""What the fuzzer gives to the engine: programs of models of every family, and packed files.

`fuzz` compiles ``fuzz_engine.c``, which changes programs at random, with sanitizers.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import harness

if TYPE_CHECKING:
    from torch import nn

SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
FLAGS = ("-O1", "-g", "-march=native", "-ffp-contract=off", "-fno-omit-frame-pointer")
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=2048",
    "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
}
REPORT = re.compile(r"ERROR: .*|runtime error: .*")
AT = re.compile(r"\w+\.h:\d+")  # a line of the engine
MOST = 10  # findings, after which a fuzzer ends
TOKENS, LETTERS = 12, 260  # of each model, and of those that read bytes
SIZES: dict[str, dict[str, object]] = {
    "transformer": {"hidden_size": 8, "num_heads": 2, "num_layers": 1, "ffn_size": 9},
    "recurrent": {"embedding_size": 7, "hidden_size": 8, "num_layers": 2},
    "mamba": {"hidden_size": 8, "num_layers": 1},
}
SIZES["ssru"] = SIZES["transformer"]
LOCATION = {"kind": "location", "max_length": 9}
LEARNED = {"kind": "learned", "max_length": 6}
T5 = {"num_buckets": 8, "max_distance": 6}
PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"position": LEARNED}, {"position": LEARNED, "attention": {"score": LOCATION}}),
    ({"position": "sinusoidal"}, {"attention": {"score": "additive", "normalizer": "sparsemax"}}),
    ({"position": "rope"}, {"position": "rope", "attention": {"key_heads": 1}}),
    ({"position": "alibi", "norm": "batch_norm"}, {"kind": "ssru", "norm_order": "post"}),
    ({"position": {"kind": "appended", "features": 4}}, {"feed_forward": "swiglu"}),
    ({"position": {"kind": "concatenated", "size": 4}}, {"attention": {"score": "general"}}),
    ({"position": T5 | {"kind": "t5"}},
     {"position": T5 | {"kind": "t5_causal"}, "attention": {"normalizer": "entmax15"}}),
    ({"stem": "dense"}, {"norm": "rms_norm", "attention": {"score": "cosine"}}),
    ({"kind": "recurrent"}, {"kind": "recurrent", "attention": {"query": "previous"}}),
    ({"kind": "recurrent", "cell": "lstm", "bidirectional": True},
     {"kind": "recurrent", "cell": "lstm", "attention": {"query": "current", "score": LOCATION}}),
    ({"kind": "recurrent"}, {"kind": "recurrent", "cell": "gru", "bridge": "states"}),
    ({"kind": "recurrent"}, {"kind": "recurrent", "cell": "gru_cho", "bridge": "summary"}),
    ({"kind": "recurrent", "bidirectional": True},
     {"kind": "recurrent", "attention": {"query": "current", "score": "general", "project": []}}),
    ({"kind": "mamba"}, {"kind": "mamba"}),
    ({"kind": "mamba"}, {"kind": "recurrent"}),
]  # fmt: skip
LANGUAGE: list[dict[str, Any]] = [{"position": "rope"}, {"kind": "recurrent"}, {"kind": "mamba"}]
POOLINGS = ("mean", "max", "attention")

Tensors = dict[str, NDArray[np.float32]]


class Marked(NamedTuple):
    """A program, and where its parts begin and end: blocks of layers, norms, cells, …"""

    numbers: list[float]
    tensors: Tensors
    maps: frozenset[str]
    spans: list[tuple[str, int, int]]


def marked(model: nn.Module) -> Marked:
    """The program of a model."""
    import torch

    from foveate.engine.program import Program
    from foveate.nn.attention import Attention
    from foveate.nn.recurrent import Cell
    from foveate.nn.ssm import SelectiveStateSpace

    labels = {"linear": torch.nn.Linear, "attention": Attention, "cell": Cell}
    labels["state_space"] = SelectiveStateSpace
    spans, blocks = list[tuple[str, int, int]](), list[int]()

    class Spans(Program):
        def block(self, *arguments: Any) -> None:
            blocks.append(len(self.numbers))
            super().block(*arguments)

        def part(self, part: nn.Module, name: str) -> None:
            begin = len(self.numbers)
            if name in ("encoder.norm", "decoder.norm"):  # after the blocks of a stack
                spans.extend(("block", *both) for both in pairwise([*blocks, begin]))
                blocks.clear()
            super().part(part, name)
            label = next((n for n, kind in labels.items() if isinstance(part, kind)), None)
            spans.append((label or name.rpartition(".")[2], begin, len(self.numbers)))

    program = Spans(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    return Marked(program.numbers, tensors, frozenset(program.maps), spans)


def stack(tree: dict[str, Any]) -> dict[str, Any]:
    """The config of an encoder or a decoder."""
    kind = tree.get("kind", "transformer")
    own = SIZES[kind] | {"kind": kind} | tree
    if kind in ("transformer", "ssru") and "attention" in own:
        own["attention"] = {"kind": "full", **own["attention"]}
    return own


@cache
def programs(size: int = TOKENS) -> list[Marked]:
    """Those of small models of every family, which know so many tokens."""
    import torch

    from foveate.kinds import load_kinds
    from foveate.models.encoder_decoder import Model
    from foveate.nn.spec import Labels, Tokens

    load_kinds()
    torch.manual_seed(1)
    tokens, labels = Tokens(size), Labels(("a", "b", "c"))
    made = [
        *(({"kind": "encoder_decoder", "tie": "none", "encoder": stack(e), "decoder": stack(d)},
           (tokens, tokens)) for e, d in PAIRS),
        *(({"kind": "language_model", "tie": "none", "decoder": stack(d)}, (tokens,))
          for d in LANGUAGE),
        *(({"kind": "classifier", "encoder": stack({}), "pooling": pooling}, (tokens, labels))
          for pooling in POOLINGS),
    ]  # fmt: skip
    return [marked(Model.Config.parse(tree).build(*inputs).eval()) for tree, inputs in made]


def examples() -> list[bytes]:
    """The numbers of each program behind a byte that names it, for `search_with`."""
    return [bytes([n]) + np.array(numbers).tobytes() for n, (numbers, *_) in enumerate(programs())]


def search_with(data: bytes) -> object:
    """Outputs of a model of other numbers and the tensors of a program, in int8 past 127."""
    from foveate.engine.compiled import CompiledModel, CompiledSearch, Settings

    which = data[0] if data else 0
    _, tensors, maps, _ = programs()[which % 128 % len(programs())]
    numbers = np.frombuffer(data[1 : len(data) - (len(data) - 1) % 8]).tolist()
    model = CompiledModel(numbers, tensors, maps if which > 127 else frozenset())
    return CompiledSearch(model, Settings(2, 3, width=2)).outputs([[4, 5]], [3])


@cache
def packed_files() -> list[bytes]:
    """Files of a translator, a language model and a classifier of bytes."""
    from safetensors.numpy import save

    from foveate.data.tokenizer import Tokenizer
    from foveate.engine.compiled import quantized
    from foveate.engine.packed import KEY, VERSION

    files = []
    tokenizer = json.loads(Tokenizer.Config.parse({"kind": "byte"}).build().text())
    for which, task in ((1, "translation"), (-5, "language"), (-1, "classification")):
        numbers, tensors, maps, _ = programs(LETTERS)[which]
        arrays: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if name in maps and task == "translation":
                arrays[name], arrays[f"{name}.scale"] = quantized(tensor)
            else:
                arrays[name] = tensor
        header = {
            "version": VERSION, "task": task, "program": numbers, "maps": sorted(maps),
            "tokenizers": dict.fromkeys(("source", "target", "text"), tokenizer),
            "max_length": 6, "labels": ["a", "b", "c"], "search": {"max_extra": 4, "beam_size": 2},
        }  # fmt: skip
        files.append(save(arrays, {KEY: json.dumps(header)}))
    return files


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    3,
    2**31,
    2**64,
    1e308,
    -0.5,
    "",
    "x",
    [],
    {},
    [1],
    "\ud800",
]
TYPES = ("float16", "float64", "int8", "uint8", "int32", "int64", "bool", "complex64")


def changed_file(data: bytes) -> bytes:
    """A packed file in which some values of its header and some tensors are others, by chance."""
    from safetensors.numpy import load, save

    from foveate.engine.packed import KEY

    chance = random.Random(data)
    file = chance.choice(packed_files())
    size = int.from_bytes(file[:8], "little")
    header = json.loads(json.loads(file[8 : 8 + size])["__metadata__"][KEY])
    tensors = load(file)
    for _ in range(chance.randint(0, 3)):
        change(header, chance)
    for _ in range(chance.randint(0, 2)):
        name = chance.choice(list(tensors))
        with np.errstate(all="ignore"):
            tensors[name] = np.array(tensors.pop(name)).astype(chance.choice(TYPES))
        if chance.random() < 0.3:
            tensors[name] = tensors[name].reshape(-1)[: chance.randint(0, 9)]
        if chance.random() < 0.3:
            tensors[chance.choice([*tensors, "shortlist.often", "shortlist.likely"])] = tensors[
                name
            ]
    return save(tensors, {KEY: json.dumps(header)})


def change(tree: Any, chance: random.Random) -> None:
    """Another value somewhere in a tree of JSON, one less, or one more."""
    while True:
        if not tree:
            return
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = chance.choice(keys)
        if not isinstance(tree[key], dict | list) or chance.random() < 0.1:
            break
        tree = tree[key]
    what = chance.random()
    if what < 0.1:
        del tree[key]
    elif what < 0.2 and isinstance(tree, dict):
        tree["reach" if what < 0.15 else "format"] = chance.choice(ODD)
    else:
        tree[key] = chance.choice(ODD)


def answer_with(path: Path) -> object:
    """Answers of a packed file, unless it asks for searches that take long."""
    from foveate.engine.packed import load

    model = load(path, threads=1)
    search, task = model.header.search, model.header.task
    if task == "classification":
        return model.classify(["ab"])
    if task == "language":
        return model.generate(["ab"], max_length=3)
    if max(search.max_extra, search.max_ratio, search.beam_size, model.header.max_length) > 99:
        return None
    return model.translate(["ab"]), model.score([("ab", "a")])


def write_programs(path: Path) -> None:
    """All programs, in floats and in int8, as ``fuzz_engine.c`` reads them."""
    from foveate.engine.compiled import quantized

    parts = [np.int32(2 * len(programs())).tobytes()]
    for numbers, tensors, maps, spans in programs():
        for int8 in (False, True):
            parts += [np.int32(len(numbers)).tobytes(), np.array(numbers).tobytes()]
            kinds = sorted({kind for kind, *_ in spans})
            places = [(kinds.index(kind), *place) for kind, *place in spans]
            parts += [np.array(each, dtype=np.int32).tobytes() for each in (len(places), places)]
            parts.append(np.int32(len(tensors)).tobytes())
            for name, tensor in tensors.items():
                rows = len(tensor) if tensor.ndim > 1 else 1
                arrays = quantized(tensor) if int8 and name in maps else (tensor,)
                shape = len(arrays) > 1, rows, tensor.size // rows
                parts.append(np.array(shape, dtype=np.int32).tobytes())
                parts += [array.tobytes() for array in arrays]
    path.write_bytes(b"".join(parts))


def compiled(folder: Path, compiler: str = "gcc") -> Path:
    """The driver with the engine, both with sanitizers."""
    program, source = folder / "fuzz_engine", Path(__file__).with_suffix(".c")
    engine = f"-I{harness.ROOT / 'src' / 'foveate' / 'engine'}"
    words = [compiler, *FLAGS, *SANITIZERS, engine, str(source), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    return program


def fuzz(seconds: int, folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """How many inputs were tried and read, and what the sanitizers found, once for each place."""
    program, file, until = compiled(folder), folder / "programs", time.monotonic() + seconds
    write_programs(file)
    first = tried = read = 0
    findings: dict[str, dict[str, Any]] = {}
    while (left := int(until - time.monotonic())) > 0 and len(findings) < MOST:
        words = [str(program), str(file), str(first), str(left)]
        ended = subprocess.run(
            words, capture_output=True, text=True, env=os.environ | OPTIONS, encoding="utf-8"
        )
        if counts := re.search(r"^(\d+) (\d+)$", ended.stdout, re.M):
            tried, read = tried + int(counts[1]), read + int(counts[2])
        if ended.returncode == 0:
            break
        at = re.search(r"^input (\d+)$", ended.stderr, re.M)
        message = REPORT.search(ended.stderr)
        said = re.sub(r"0x\w+", "…", message[0])[:120] if message else f"exit {ended.returncode}"
        what = f"{said} at {' '.join(AT.findall(ended.stderr)[:1])}"
        findings.setdefault(
            what, {"what": what, "said": ended.stderr[-3000:], "input": at and at[1]}
        )
        say(what)
        if at is None:
            break
        tried, first = tried + int(at[1]) + 1 - first, int(at[1]) + 1
    return {"executions": tried, "read": read, "findings": list(findings.values())}
