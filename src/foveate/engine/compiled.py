"""The compiled engine (``engine.c``): its library, models of a program and tensors, and searches.

There is a library for each instruction set, ``engine.c`` compiled with its flags; ``probe.c`` lists
the sets of this processor, and the best one is used. A wheel brings the libraries; elsewhere one is
built at first use. Nothing in this module needs PyTorch. Every call releases the interpreter's
lock, so that several threads may each run their own search; a model is only read.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.decode.engine import Hypothesis, Outputs, Stop, check_finite, check_stop
from foveate.decode.phrases import Phrase, WordPieces
from foveate.engine.building import FOLDER, SETS, SIGNATURES, command, web_command
from foveate.errors import DIVERGED, NoOutputError, UserError
from foveate.system import LibraryError as LibraryError
from foveate.system import c_compiler, compiled

SUFFIX = ".dll" if os.name == "nt" else ".so"
FORCED = "FOVEATE_ISA"
ZIG = [sys.executable, "-m", "ziglang", "cc"]
SOURCES = sorted(FOLDER.glob("*.[ch]"))


class Library(NamedTuple):
    """The functions of a library, its instruction set, and why this one was chosen."""

    functions: ctypes.CDLL
    instruction_set: str
    why: str


def library() -> ctypes.CDLL:
    """Return the functions of the engine. Raises `LibraryError` like `loaded`."""
    return loaded().functions


@functools.cache
def loaded() -> Library:
    """Return the engine for this processor's best instruction set, or for FOVEATE_ISA.

    Raises `LibraryError` if the processor lacks that one, or if no library can be built.
    """
    own, forced = instruction_sets(), os.environ.get(FORCED)
    among = f"of {', '.join(own)}, which this processor has"
    if forced:
        if forced not in own:
            fault = "this processor lacks it" if forced in SETS else "no such instruction set"
            raise LibraryError(f"{FORCED}={forced}: {fault}; name one {among}, or unset {FORCED}")
        return Library(_engine(forced), forced, f"{FORCED} names it, {among}")
    failures = list[str]()
    for name in reversed(own):
        try:
            return Library(_engine(name), name, "; ".join([*failures, f"the best {among}"]))
        except LibraryError as error:  # a compiler may be older than the processor
            failures.append(str(error))
    raise LibraryError(failures[-1])


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """Return this processor's instruction sets that the engine supports, the best one last."""
    probe = _load("probe").instruction_sets
    probe.restype = ctypes.c_char_p
    return tuple(probe().decode().split())


def _engine(name: str) -> ctypes.CDLL:
    functions = _load(f"engine-{name}")
    for function, (result, *arguments) in SIGNATURES.items():
        getattr(functions, function).restype = result
        getattr(functions, function).argtypes = arguments
    if (own := functions.instruction_set().decode()) != name:
        raise LibraryError(
            f"the engine for {name} was compiled for {own}; name another compiler: CC"
        )
    return functions


def _load(name: str) -> ctypes.CDLL:
    path = FOLDER / "libraries" / f"{name}{SUFFIX}"
    try:
        return ctypes.CDLL(str(path if path.is_file() else _compiled(name)))
    except OSError as error:
        raise LibraryError(f"{name} cannot be loaded or compiled: {error}") from error


def web_engine(name: str) -> Path:
    """Return the engine as WebAssembly: ``engine-wasm``, or ``engine-scalar`` without SIMD.

    Raises `LibraryError` if no wheel includes it and zig cannot compile it.
    """
    path = FOLDER / "libraries" / f"{name}.wasm"
    if path.is_file():
        return path
    if find_spec("ziglang") is None:
        raise LibraryError(
            "the engine for browsers is not compiled: pip install ziglang, or install foveate from "
            "a wheel for your platform, which brings it"
        )
    return compiled(f"{name}.wasm", SOURCES, lambda file: [web_command(ZIG, name, file)])


def _compiled(name: str) -> Path:
    """Return the path of a library in the cache, building it if it is missing."""
    compiler = c_compiler() or (ZIG if find_spec("ziglang") else [])
    if not compiler:
        raise LibraryError(
            "the engine is not compiled, and no C compiler was found: install gcc or clang, or "
            "`pip install ziglang`, or install foveate from a wheel, which brings the engine"
        )
    return compiled(f"{name}{SUFFIX}", SOURCES, lambda file: [command(compiler, name, file)])


Floats = NDArray[np.float32]
Ids = Sequence[int]

POSITIONS = 64  # positions per call, after which a search may be stopped


class EngineFailure(UserError):
    """A model that the engine cannot read, a source that it rejects, or too little memory."""


Forbids = Callable[[Ids], Iterable[int]]
Stage = Literal["query", "rotated query", "key", "rotated key", "value", "score", "bias", "weights",
                "context", "output"]  # fmt: skip
STAGES: tuple[Stage, ...] = get_args(Stage)
REFUSALS = {  # by the engine's return code
    0: "an id that the model does not know",
    -1: "no room: there is too little memory",
    -3: "more tokens than the model has positions",
    -4: "a model of another kind, or with other labels",
    -5: "a term without tokens, or a search that holds none",
}


def _check(answer: int, begin: str) -> None:
    if answer == -2:
        raise NoOutputError(f"{begin}no finite scores: {DIVERGED}")
    if answer <= 0:
        raise EngineFailure(begin + REFUSALS[answer])


class _Tensor(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("int8", "rows", "columns", "kept")),
        *((name, ctypes.c_void_p) for name in ("data", "scale")),
    )


class _Settings(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in (
            "sampling", "stop", "width", "start", "end", "best", "room", "reach", "ruled",
            "min_length", "no_repeat", "top_k")),
        *((name, ctypes.c_float) for name in (
            "length_penalty", "length_offset", "temperature", "top_p", "min_p",
            "repetition_penalty")),
        ("seed", ctypes.c_uint64),
        ("never", ctypes.c_void_p),
        ("nevers", ctypes.c_int32),
        ("after", ctypes.c_void_p),
        ("pieces", ctypes.c_void_p),
        ("certain", ctypes.c_int32),
        ("forced_end", ctypes.c_int32),
    )  # fmt: skip


class _Tap(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("attention", "stage")),
        ("to", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("size", "used")),
    )


@dataclass(frozen=True)
class Settings:
    """The settings of a search; a beam of one without a length penalty is greedy search.

    With ``sampling`` outputs are drawn (`foveate.decode.sample`), ``width`` for each source; the
    fields from ``temperature`` on are for that. ``reach`` is the number of
    tokens that a language model reads at once (`foveate.models.language_model.LanguageSteps`).
    ``characters`` are the states of UTF-8 after each token (8, V) if tokens may be parts of
    characters (`foveate.decode.constraints.ByteTable.states`). ``pieces`` are needed if outputs
    must contain phrases.
    """

    start: int
    end: int
    width: int = 1  # hypotheses of a source
    best: int = 1  # outputs returned for each source
    length_penalty: float = 0.0
    room: int = 16  # hypotheses computed together, so that their caches stay close
    min_length: int = 0
    no_repeat: int = 0  # no n-gram of this many tokens occurs twice
    reach: int = 0  # 0: any number of tokens
    length_offset: float = 5.0
    stop: int = 0  # when a beam ends: place in `foveate.decode.beam.STOPS`
    never: tuple[int, ...] = ()  # ids that no output contains
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    characters: NDArray[np.uint8] | None = None
    pieces: WordPieces | None = None
    certain: int = 0  # given ids from this one on have p = 1; 0: none
    forced_end: bool = False  # whether an output that is cut off counts as ended, with p = 1


def quantized(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return W_q and s of W ≈ s ⊙ W_q with s = max |W| / 127 of each row."""
    scale = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-12)) / np.float32(127)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


class ModelSizes(NamedTuple):
    """The sizes that a model reports: 0 tokens if it has no such side."""

    source: int  # tokens of the vocabulary that an encoder reads
    output: int  # tokens of the vocabulary that a decoder reads and writes
    labels: int
    attentions: int
    encoder_positions: int  # most tokens of a text for an encoder, the end included
    decoder_positions: int


class CompiledModel:
    """A model of the engine: the numbers of its program, and its tensors by name, in order.

    A tensor of int8 comes with the scales of its rows; those listed in ``maps`` are rounded to
    int8. Raises `EngineFailure` if they do not fit.
    """

    def __init__(
        self,
        numbers: Sequence[float],
        tensors: Mapping[str, Floats | tuple[NDArray[np.int8], Floats]],
        maps: frozenset[str] = frozenset(),
    ) -> None:
        self._library, arrays, structs = library(), list[tuple[NDArray[np.generic], ...]](), []
        for name, tensor in tensors.items():
            if isinstance(tensor, tuple) or name in maps:
                whole, scale = tensor if isinstance(tensor, tuple) else quantized(tensor)
                arrays.append((whole, scale))
                structs.append(_Tensor(1, *whole.shape, 0, whole.ctypes.data, scale.ctypes.data))
            else:
                array = np.ascontiguousarray(tensor, dtype=np.float32)
                rows = max(1, len(array)) if array.ndim > 1 else 1
                arrays.append((array,))
                structs.append(_Tensor(0, rows, array.size // rows, 0, array.ctypes.data, None))
        program = np.array(numbers, dtype=np.float64)
        read = (_Tensor * len(structs))(*structs)
        self.bytes = sum(part.nbytes for array in arrays for part in array)
        self.address = self._library.read_model(
            program.ctypes.data, len(program), ctypes.addressof(read), len(structs)
        )
        named = zip(read, arrays, strict=True)
        self._arrays = [array for struct, array in named if struct.kept]  # the others are copied
        if not self.address:
            raise EngineFailure("the engine cannot read this model: its program does not fit")
        sizes = np.empty(len(ModelSizes._fields), dtype=np.int32)
        self._library.model_sizes(self.address, sizes.ctypes.data)
        self.sizes = ModelSizes(*sizes.tolist())

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._library.free_model(self.address)


class CompiledSearch:
    """A search with a model, by one thread at a time.

    ``forbids`` returns the ids that may not follow those of a partial output, such as the last ones
    of banned phrases.
    """

    def __init__(
        self, model: CompiledModel, settings: Settings, forbids: Forbids | None = None
    ) -> None:
        self.model, self._library = model, library()  # the model lives as long as the search
        self._forbids = forbids
        self._never = np.array(settings.never, dtype=np.int32)
        flags = None if settings.pieces is None else np.array(settings.pieces).T @ (1, 2)
        self._tables = [
            None if table is None else np.ascontiguousarray(table, dtype=np.uint8)
            for table in (settings.characters, flags)
        ]
        if any(
            table is not None and table.shape[-1] != model.sizes.output for table in self._tables
        ):
            raise EngineFailure("the tokenizer and the model have different numbers of tokens")
        ruled = bool(settings.min_length or settings.no_repeat or forbids)
        numbers = {each[0] for each in _Settings._fields_ if each[1] is not ctypes.c_void_p}
        struct = _Settings(**{n: v for n, v in vars(settings).items() if n in numbers})
        struct.ruled, struct.nevers = ruled, len(self._never)
        struct.never = self._never.ctypes.data
        struct.after, struct.pieces = (None if t is None else t.ctypes.data for t in self._tables)
        self._address = self._library.new_search(model.address, ctypes.byref(struct))
        if not self._address:
            raise EngineFailure("the engine cannot run this search: a setting is out of bounds")

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._library.free_search(self._address)

    def outputs(
        self,
        sources: Sequence[Ids],
        limits: Sequence[int],
        prefixes: Sequence[Ids] = (),
        vocabularies: Sequence[Ids] = (),
        numbers: Sequence[int] | None = None,
        required: Sequence[Sequence[Phrase]] = (),
        stop: Stop | None = None,
    ) -> Outputs:
        """Return the outputs of each source, best first.

        ``limits`` are the maximum tokens of each, ``prefixes`` those with which its outputs begin,
        or ``vocabularies`` the ids that they may contain. Samples go by the ``numbers`` of the
        sources (0, 1, … if None). Outputs contain the ``required`` phrases of their source. Raises
        `SearchStopped` as soon as ``stop``, called every `POSITIONS` positions, returns True.
        """
        self._library.clear(self._address)  # remains of a search that failed
        outputs: Outputs = [[] for _ in sources]
        places = {number: n for n, number in enumerate(numbers or range(len(sources)))}
        none = [()] * len(sources)
        own = prefixes or none, vocabularies or none, limits, required or none
        for number, *ids, limit, phrases in zip(places, sources, *own, strict=True):
            read, prefix, allowed = (np.array(part, dtype=np.int32) for part in ids)
            arrays = read.ctypes.data, len(read), prefix.ctypes.data, len(prefix), limit
            added = self._library.add_source(
                self._address, number, *arrays, allowed.ctypes.data, len(allowed)
            )
            _check(added, f"source {number + 1} has ")
            self._forbid(number, [[]])
            self._require(number, phrases)
        left = 1
        while left:
            check_stop(stop)
            left = self._library.advance(self._address, 1 if self._forbids else POSITIONS)
            _check(left or 1, "the search has ")
            self._read_results(outputs, places)
            for number, partial in self.partial() if self._forbids else ():
                self._forbid(number, partial)
        return outputs

    def _require(self, number: int, phrases: Sequence[Phrase]) -> None:
        spellings = [(n, each) for n, phrase in enumerate(phrases) for each in phrase]
        terms = [
            (n, each.bare + 2 * each.initial, len(each.ids), *each.ids) for n, each in spellings
        ]
        spelt = np.array(list(chain(*terms)), dtype=np.int32)
        if phrases:
            answer = self._library.require(self._address, spelt.ctypes.data, len(spelt))
            _check(answer, f"source {number + 1} must hold ")

    def _forbid(self, number: int, partial: Sequence[Ids]) -> None:
        if self._forbids is not None:
            ids = [(n, i) for n, each in enumerate(partial) for i in self._forbids(each)]
            pairs = np.array(ids, dtype=np.int32)
            _check(
                self._library.forbid(self._address, number, pairs.ctypes.data, len(ids)),
                "a rule has ",
            )

    def _taken(self, function: Callable[..., int]) -> NDArray[np.int32]:
        taken = np.empty(function(self._address, None, 0), dtype=np.int32)
        function(self._address, taken.ctypes.data, len(taken))
        return taken

    def partial(self) -> list[tuple[int, list[list[int]]]]:
        """Return the number of each source being decoded, and the ids of its partial outputs."""
        taken, at, partial = self._taken(self._library.hypotheses), 0, []
        while at < len(taken):
            number, count, length = taken[at : at + 3].tolist()
            ids = taken[at + 3 : at + 3 + count * (length + 1)].reshape(count, length + 1)
            partial.append((number, ids[:, 1:].tolist()))  # preceded by log p
            at += 3 + ids.size
        return partial

    def _read_results(self, outputs: Outputs, places: Mapping[int, int]) -> None:
        taken, at = self._taken(self._library.results), 0
        while at < len(taken):
            number, count = taken[at : at + 2].tolist()
            at += 2
            for _ in range(count):
                length, ended = taken[at : at + 2].tolist()
                log_p, score = taken[at + 2 : at + 4].view(np.float32).tolist()
                ids = taken[at + 4 : at + 4 + length].tolist()
                outputs[places[number]].append(Hypothesis(ids, log_p, score, bool(ended)))
                at += 4 + length

    def log_probabilities(self, source: Ids, target: Ids) -> Floats:
        """Return log p of each token of a given output, its end included."""
        read, written = (np.array(ids, dtype=np.int32) for ids in (source, target))
        log_p = np.empty(len(written), dtype=np.float32)
        arrays = read.ctypes.data, len(read), written.ctypes.data, len(written), log_p.ctypes.data
        _check(self._library.force(self._address, *arrays), "the pair has ")
        return log_p

    def label_scores(self, text: Ids, labels: int) -> Floats:
        """Return the scores of all labels for the ids of a text."""
        read, scores = np.array(text, dtype=np.int32), np.empty(labels, dtype=np.float32)
        arrays = read.ctypes.data, len(read), scores.ctypes.data, labels
        _check(self._library.classify(self._address, *arrays), "the text has ")
        return scores

    def stages(
        self, taps: Sequence[tuple[int, Stage]], compute: Callable[[], object]
    ) -> list[Floats]:
        """Return stages of attentions, by number in the program, while ``compute`` is called.

        Each is flat, in the order in which it was computed: all heads of a query or of a position;
        scores, biases and weights head by head, over the keys of the query.
        """
        structs = (_Tap * len(taps))(*(_Tap(n, STAGES.index(stage)) for n, stage in taps))
        try:
            self._library.observe(self._address, structs, len(taps))
            compute()  # counts the numbers
            stages = [np.empty(tap.used, dtype=np.float32) for tap in structs]
            for tap, numbers in zip(structs, stages, strict=True):
                tap.to, tap.size, tap.used = numbers.ctypes.data, len(numbers), 0
            compute()
        finally:
            self._library.observe(self._address, None, 0)
        return stages

    def maps(
        self, names: Mapping[int, str], compute: Callable[[], object], read: int, written: int
    ) -> dict[str, Floats]:
        """Return the map (H, T, S) of attentions, by number and name, while ``compute`` is called.

        An encoder reads ``read`` positions; a decoder ``written``, each seeing those before it too.
        """
        weights = self.stages([(n, "weights") for n in names], compute)
        pairs = list(zip(names.values(), weights, strict=True))
        for name, each in pairs:
            check_finite(each, f"no map of {name}")
        return {name: _map_of(name, each, read, written) for name, each in pairs}


def _map_of(name: str, weights: Floats, read: int, written: int) -> Floats:
    """Return the weights of an attention, stored query by query and head by head, as (H, T, S)."""
    if name.startswith("decoder") and not name.endswith("cross_attention"):
        heads = 2 * len(weights) // (written * (written + 1))
        causal = np.zeros((heads, written, written), dtype=np.float32)
        ends = heads * np.cumsum(np.arange(1, written))
        for t, row in enumerate(np.split(weights, ends)):
            causal[:, t, : t + 1] = row.reshape(heads, t + 1)
        return causal
    queries = read if name.startswith("encoder") else written if name.startswith("decoder") else 1
    return weights.reshape(queries, -1, read).swapaxes(0, 1)
