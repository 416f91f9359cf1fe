"""Packed files: a trained model in one file, and its answers without PyTorch.

    packed = foveate.engine.packed.load("en-fr.safetensors")
    packed.translate(["A dog runs ."])

`PackedEngine` searches and scores with the program of a file, or of a model that PyTorch holds. A
packed file is a safetensors file. Its metadata hold one JSON text, the `Header`: what the engine
computes (`foveate.engine.program`), tokenizers, labels, search. Its tensors are the weights in
their order; a matrix of int8 stands beside the scales of its rows, ``NAME.scale``. Nothing in it is
executed. `foveate.run.pack` writes it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal, Self, TypeVar, get_args

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import foveate.data.published
import foveate.data.sentencepiece  # noqa: F401 (both register their kinds)
from foveate.config import Config, Tree
from foveate.data.text import TextFormat
from foveate.data.tokenizer import BOS, EOS, PAD, TextSides, Tokenizer
from foveate.data.words import behind_tag, between_words, split_words
from foveate.decode.engine import (
    COMMON,
    DRAWN,
    OFFSET,
    STOPS,
    Ability,
    Ending,
    EngineError,
    Example,
    Outputs,
    Result,
    Room,
    SearchRequest,
    check_lists,
    check_outputs,
    chosen,
    continuing,
    token_states,
    widened,
)
from foveate.decode.phrases import BannedPhrases, Phrase, phrases_of, word_pieces
from foveate.engine.answers import LabelAnswer, ModelEngine, Translator, probabilities_of
from foveate.engine.compiled import (
    CompiledModel,
    CompiledSearch,
    Floats,
    Forbids,
    Settings,
    quantized,
)
from foveate.engine.links import Head, Links, Rows
from foveate.errors import ConfigError, UserError
from foveate.files import replace_file
from foveate.system import processors

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from foveate.decode.search import Search
    from foveate.look.records import AttentionRecord, Maps, Units

Ids = list[int]
Item = TypeVar("Item")
Made = TypeVar("Made")
READING = ("translation", "classification")  # tasks with an encoder
TaskKind = Literal["translation", "prefix_translation", "language", "classification"]
Method = Literal["greedy", "beam", "sample"]
PRECISIONS = ("fp32", "fp16", "int8")
NAME = "packed.safetensors"  # in the folder of a run
VERSION = 1  # of the layout of the file
KEY = "foveate"  # of the header among the metadata
LARGEST = 2**26  # numbers of a tensor, and bytes of the header
SHORTLIST = ("shortlist.often", "shortlist.likely")  # tensors of ids
WIDEST = 1000  # hypotheses of a beam
RULES = {"no_repeat": min, "min_length": max}  # of several rules of a kind the strictest one holds
LONGEST_OUTPUT, LARGEST_EXTRA = 64, 4096  # tokens for each of the longest source, and more
SHARE = 64  # sources that a thread searches together
NEAR = 2**24  # bytes of weights that stay in a cache, whatever the number of rows
Array = NDArray[np.generic]
Weight = Floats | tuple[NDArray[np.int8], Floats]


class PackedError(EngineError):
    """A file that is not a packed file, or a request that the engine cannot answer."""


class PackedSearch(Config):
    """The search used unless another is requested (`foveate.decode`).

    With ``sampling`` tokens of ``beam_size`` outputs are drawn; else they are those of a beam, one
    of size 1 being greedy search. Files of earlier versions do not name the ``method``.
    """

    method: Method | None = None
    sampling: bool = False
    beam_size: int = Field(1, ge=1, le=10_000)
    length_penalty: float = Field(0.0, ge=0, le=50)
    length_offset: float = Field(OFFSET, ge=0, le=1000)
    stop: Ending = "count"
    forced_end: bool = False
    max_ratio: float = Field(2.0, ge=0, le=1000)
    max_extra: int = Field(20, ge=1, le=1_000_000)
    min_length: int = Field(0, ge=0)
    no_repeat: int = Field(0, ge=0)
    whole_characters: bool = True
    shortlist: bool = False
    temperature: float = Field(1.0, gt=0)
    top_k: int | None = Field(None, gt=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0)
    seed: int = Field(0, ge=0)

    @pydantic.model_validator(mode="after")
    def _is_of_its_method(self) -> Self:
        wide = self.beam_size > 1 or self.length_penalty > 0
        if self.sampling != (self.name == "sample") or (self.name == "greedy" and wide):
            raise UserError(f"a search {self.name} with the fields of another")
        if not self.sampling and self.beam_size > WIDEST:
            raise UserError(f"beam_size = {self.beam_size}: expected at most {WIDEST}")
        return self

    @classmethod
    def of(cls, config: Search.Config | PackedSearch | Tree) -> PackedSearch:
        """The search of a config. Raises `PackedError` for one that the engine lacks."""
        if isinstance(config, PackedSearch):
            return config
        own = config if isinstance(config, dict) else config.tree()
        kind = own["kind"]
        if kind not in get_args(Method):
            raise PackedError(f"the engine lacks the search {kind}; take decode.kind=beam")
        fields = {name: own[name] for name in cls.model_fields.keys() & own.keys()}
        fields["method"] = kind
        if kind == "sample":
            fields |= {"sampling": True, "beam_size": own.get("num_samples", 1)}
        for rule in own.get("rules", ()):
            name, value = rule["kind"], rule.get("size", rule.get("length"))
            if name not in RULES:
                raise PackedError(f"the engine lacks the output rule {name}; leave it out")
            fields[name] = RULES[name](value, fields.get(name, value))
        return cls.parse(fields, ("decode",))

    @property
    def rules(self) -> bool:
        """True if outputs are constrained by rules."""
        return bool(self.min_length or self.no_repeat)

    @property
    def name(self) -> str:
        """The kind of the search (`foveate.decode`)."""
        is_beam = self.beam_size > 1 or self.length_penalty > 0
        return self.method or ("sample" if self.sampling else "beam" if is_beam else "greedy")

    @property
    def config(self) -> Tree:
        """The tree of its config, of which it is made by `of`."""
        rules = {"no_repeat": ("size", self.no_repeat), "min_length": ("length", self.min_length)}
        ranking = ("beam_size", "length_penalty", "length_offset", "stop", "forced_end")
        sizes = {"beam": ranking, "sample": DRAWN}.get(self.name, ())
        own = {name: value for name, value in vars(self).items() if name in (*COMMON, *sizes)}
        own |= {"num_samples": self.beam_size} if self.name == "sample" else {}
        own["rules"] = [{"kind": kind, of: n} for kind, (of, n) in rules.items() if n]
        present = {name: value for name, value in own.items() if value is not None}
        return {"kind": self.name} | present


@dataclass(frozen=True)
class ChosenSearch:
    """A search by its config alone, for an engine without PyTorch."""

    config: PackedSearch

    @property
    def width(self) -> int:
        """The number of hypotheses of a source that are decoded at a time."""
        return self.config.beam_size


class PackedCorpus(Config):
    """The files of a corpus and its tag, by which a server knows the languages."""

    source: str
    target: str | None = None
    tag: str | None = None


class Header(Config):
    """Everything in a packed file but the weights."""

    version: int
    task: TaskKind
    program: tuple[float, ...]  # the numbers of the model
    maps: tuple[str, ...] = ()  # the tensors that may be int8
    attentions: tuple[str, ...] = ()  # the names of its attentions, in the order of the program
    equations: tuple[dict[str, str], ...] = ()  # of the stages of each attention
    tokenizers: dict[str, Tree]  # by name, as `Tokenizer.text` has them
    max_length: int = Field(ge=1)  # tokens of an input; longer ones are cut
    search: PackedSearch = PackedSearch()
    labels: tuple[str, ...] = ()
    reach: int | None = Field(None, ge=1)  # tokens that a language model reads at once
    format: TextFormat.Config | None = None  # of raw lines of the data
    corpora: tuple[PackedCorpus, ...] = ()
    head: Tree | None = None  # whose weights are word links (`foveate.engine.links.Head`)
    scores: Tree = Field(default_factory=dict)  # of the checkpoint, by figure
    licence: str = ""  # of the training data, with their attribution
    made_of: dict[str, str] = Field(default_factory=dict)
    """Run, checkpoint, hash of its weights, version of foveate."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Hash of each other field and of each tensor; none in files of earlier versions."""


def load(path: str | Path, threads: int | None = None, int8: bool = False) -> PackedModel:
    """The model of a packed file; ``int8`` rounds the matrices of one with other numbers.

    Raises `PackedError` that names the file, and what is wrong with it.
    """
    path = Path(path)
    header, tensors = read(path)
    model = PackedModel(path, header, tensors, threads, int8)
    _check_digests(path, tensors)
    return model


def _content(path: Path, weights: bool) -> tuple[str, dict[str, Array]]:
    """The text of the header, and the tensors where they are asked for. Raises `PackedError`."""
    try:
        with safe_open(path, "numpy") as file:
            text = (file.metadata() or {}).get(KEY, "")
            if len(text) > LARGEST:
                raise PackedError(f"{path}: a header of {len(text):,} bytes; at most {LARGEST:,}")
            names = sorted(file.keys()) if weights else []
            for name in names:
                shape = file.get_slice(name).get_shape()
                if math.prod(shape) > LARGEST or len(shape) > 4:
                    most = f"more than {LARGEST:,} numbers"
                    raise PackedError(f"{path}: {name} has the shape {list(shape)}: {most}")
            return text, {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise PackedError(
            f"{path} is not a packed file, or is cut off ({error}); pack it again"
        ) from None


def header_of(path: Path) -> Header:
    """The header of a packed file. Raises `PackedError`."""
    return _header(path, _content(path, weights=False)[0])


def read(path: Path) -> tuple[Header, dict[str, Array]]:
    """Header and tensors of a packed file. Raises `PackedError`."""
    header, (_, tensors) = header_of(path), _content(path, weights=True)
    for name, array in tensors.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise PackedError(
                f"{path}: {name} holds numbers that are not finite; pack another checkpoint"
            )
    return header, tensors


def _digests(fields: Mapping[str, object], tensors: Mapping[str, Array]) -> dict[str, str]:
    """SHA-256 of each field of a header, as it stands in the file, and of each tensor, by name."""
    texts = {
        name: json.dumps(value, sort_keys=True).encode()
        for name, value in fields.items()
        if name != "digests"
    }
    arrays = {
        f"tensor {name}": f"{array.dtype.name} {array.shape} ".encode() + array.tobytes()
        for name, array in tensors.items()
    }
    return {name: hashlib.sha256(part).hexdigest() for name, part in (texts | arrays).items()}


def _check_digests(path: Path, tensors: Mapping[str, Array]) -> None:
    """Raise `PackedError` if a part of a file is not the one that it was packed with."""
    fields = json.loads(_content(path, weights=False)[0])
    if not (stored := fields.get("digests")):
        return
    own = _digests(fields, tensors)
    changed = sorted(name for name in own.keys() | stored if own.get(name) != stored.get(name))
    if changed:
        raise PackedError(
            f"{path}: {', '.join(changed[:3])} changed after it was packed; pack it again"
        )


def packed_file(run: Path) -> tuple[Path | None, str]:
    """The packed file of a run; None, and why, where it has none of its best checkpoint."""
    file = run / NAME
    if not file.is_file():
        return None, f"it has no {NAME} (foveate pack {run})"
    with suppress(OSError, ValueError, LookupError, TypeError, UserError):
        best = run / "best.json"
        steps = (path.name for path in (run / "checkpoints").glob("step-*"))
        newest = f"checkpoints/{max(steps, default='')}"
        folder = json.loads(best.read_bytes())["folder"] if best.is_file() else newest
        manifest = json.loads((run / folder / "manifest.json").read_bytes())
        made = json.loads(_content(file, weights=False)[0])["made_of"]  # the header is parsed later
        if manifest["files"]["model.safetensors"]["sha256"] == made["sha256"]:
            return file, ""
    return None, f"{NAME} was not made from the best checkpoint (foveate pack {run})"


def _header(path: Path, text: str) -> Header:
    """The header of a text. Raises `PackedError`."""
    if not text:
        raise PackedError(
            f"{path} does not hold a foveate model; make one: foveate pack RUN {path.name}"
        )
    try:
        tree = json.loads(text)
        if isinstance(tree, dict) and tree.get("version") != VERSION:
            raise PackedError(
                f"{path} has the layout {tree.get('version')!r}; this version of foveate reads "
                f"{VERSION}: pack the run again, or use the version in made_of"
            )
        return Header.parse(tree)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        if isinstance(error, PackedError):
            raise
        raise PackedError(f"{path}: its header is damaged: {error}; pack it again") from None


def arranged(path: Path, tensors: Mapping[str, Array]) -> dict[str, Weight]:
    """The weights in their order, a matrix of int8 with its scales. Raises `PackedError`."""
    weights: dict[str, Weight] = {}
    for name, array in tensors.items():
        if name in SHORTLIST or name.endswith(".scale"):
            continue
        scale = tensors.get(f"{name}.scale")
        if array.dtype != np.int8:
            weights[name] = array.astype(np.float32, copy=False)
        elif scale is not None and array.ndim == 2 and scale.shape == array.shape[:1]:
            weights[name] = array.astype(np.int8, copy=False), scale.astype(np.float32, copy=False)
        else:
            raise PackedError(f"{path}: {name} has no scale for each of its rows; pack it again")
    return weights


def rounded(arrays: Mapping[str, Array], maps: Collection[str], precision: str) -> dict[str, Array]:
    """The tensors of a file, of ``arrays`` those named in ``maps`` in a precision.

    What is int8 stays so. Raises ``ConfigError`` for an unknown precision.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"no precision {precision!r}; there are: {', '.join(PRECISIONS)}")
    tensors = dict(arrays)
    for name in maps if precision != "fp32" else ():
        if precision == "fp16" and arrays[name].dtype != np.int8:
            tensors[name] = arrays[name].astype(np.float16)
        elif arrays[name].dtype != np.int8:
            tensors[name], tensors[f"{name}.scale"] = quantized(arrays[name].astype(np.float32))
    return tensors


def write(out: Path, header: Header, tensors: Mapping[str, Array]) -> Path:
    """Write a packed file, whole or not at all."""
    fields = header.tree()
    fields["digests"] = _digests(fields, tensors)
    replace_file(out, save(dict(tensors), {KEY: json.dumps(fields, ensure_ascii=False)}))
    return out


def repack(file: Path, out: Path, precision: str, licence: str = "") -> Path:
    """Write a packed file with its matrices in a precision, and the licence where one is given."""
    header, tensors = read(file)
    _check_digests(file, tensors)
    header = header.model_copy(update={"licence": licence or header.licence})
    return write(out, header, rounded(tensors, header.maps, precision))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, "engine")


@lru_cache(maxsize=8)
def _states(tokenizer: Tokenizer, _: int) -> NDArray[np.uint8] | None:
    states = token_states(tokenizer)
    return None if states is None else states.astype(np.uint8)


@dataclass(eq=False)
class PackedEngine(ModelEngine):
    """Searches, scores and links by the engine in C.

    ``tokenizers`` are those of sources and outputs, or the one of both; ``attentions`` name the
    attentions of the program. ``shortlist`` are the tensors `SHORTLIST`, ``remedy`` says what a
    user does where the engine cannot answer.
    """

    compiled: CompiledModel
    task: TaskKind
    tokenizers: Sequence[Tokenizer]
    threads: int
    reach: int | None = None
    shortlist: Sequence[NDArray[np.int32]] = ()
    attentions: Sequence[str] = ()
    head: Head = field(default_factory=Head)
    labels: Sequence[str] = ()
    remedy: str = "leave out --engine"

    name = "packed"
    can: frozenset[Ability] = frozenset(
        ("banned phrases", "links", "prefixes", "required terms", "rules", "scores")
    )

    def cannot(self, what: str) -> PackedError:
        return PackedError(f"the engine cannot {what}; {self.remedy}")

    def check(self, request: SearchRequest) -> None:
        super().check(request)
        search, config = type(request.search), request.search.config
        PackedSearch.of(config)
        if search is not ChosenSearch and search is not config.owner:
            raise self.cannot(f"search as {search.__name__} does")

    def search(self, sources: Sequence[Ids], request: SearchRequest) -> Iterator[Result]:
        self.check(request)
        check_lists(len(sources), request.prefixes, request.required)
        banned, writes = request.banned, self.tokenizers[-1]
        forbids = BannedPhrases(banned, writes).completing if banned else None
        yield Result(range(len(sources)), self.decode(sources, request, forbids))

    def heard(self, source: Ids, request: SearchRequest, listen: Callable[[Ids], None]) -> Outputs:
        def forbids(output: Sequence[int]) -> Sequence[int]:
            listen(list(output))
            return ()

        return self.decode([source], request, forbids)

    @property
    def _continues(self) -> bool:
        """True if outputs continue their sources."""
        return self.task == "language"

    @property
    def _ends(self) -> tuple[int, int]:
        """The ids that outputs begin after, and end with."""
        return self.tokenizers[-1].text_ends if self._continues else (BOS, EOS)

    def each(self, work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """The results of all items, by as many threads as the engine may take."""
        if len(items) < 2 or self.threads == 1:
            return list(map(work, items))
        return list(_pool(self.threads).map(work, items))

    @property
    def room(self) -> Room:
        sizes = self.compiled.sizes
        if self._continues:  # it reads past its reach anew
            return Room()
        ends = 2 if self.task == "classification" else 1
        encoder = sizes.encoder_positions if sizes.source else 0
        return Room.of(encoder, sizes.decoder_positions, ends)

    def _read(self, ids: Ids) -> Ids:
        """Return the ids that the program reads of a source; a translation's include its end."""
        return ids if self._continues else [*ids, EOS]

    def decode(
        self, sources: Sequence[Ids], request: SearchRequest, forbids: Forbids | None = None
    ) -> Outputs:
        """The best outputs of each source; none for an empty source.

        ``forbids`` gives the ids that may not follow a partial output. Raises `SearchStopped` as
        soon as the request's ``stop`` is true; where one thread fails, or Ctrl-C is pressed, the
        others end too.
        """
        search, failed, room = PackedSearch.of(request.search.config), Event(), self.room
        sources = [ids[: room.source] for ids in sources]
        filled = [n for n, ids in enumerate(sources) if ids or self._continues]
        settings = self._settings(search, request)
        free = not (request.prefixes or forbids or any(request.required))
        shortens = self.task == "translation" and search.shortlist and free
        prefixes = request.prefixes or [[]] * len(sources)
        required: Sequence[Sequence[Phrase]] = [()] * len(sources)
        if any(request.required):
            required = phrases_of(request.required, search.name, self.tokenizers[-1])
            settings = replace(settings, pieces=word_pieces(self.tokenizers[-1]))
        limits, ratio = dict[int, int](), 0 if self._continues else search.max_ratio
        for n in filled:
            limit = max(int(ratio * len(sources[n])), len(prefixes[n])) + search.max_extra
            limits[n] = min(limit, room.left(len(sources[n])))
        filled.sort(key=lambda n: len(sources[n]))  # sources of a share are alike in length
        bare = self._continues and self.tokenizers[-1].startless
        size = 1 if bare else max(1, min(SHARE, -(-len(filled) // self.threads)))
        shares = [filled[n : n + size] for n in range(0, len(filled), size)]

        def searched(share: list[int]) -> Outputs:
            first = sources[share[0]][: int(bare)]  # in place of a start
            own = replace(settings, start=first[0]) if first else settings
            return CompiledSearch(self.compiled, own, forbids).outputs(
                [self._read(sources[n][len(first) :]) for n in share],
                [limits[n] for n in share],
                [prefixes[n] for n in share],
                [self._likely(sources[n]) for n in share] if shortens else (),
                share,
                [required[n] for n in share],
                lambda: failed.is_set() or (request.stop is not None and request.stop()),
            )

        outputs: Outputs = [[] for _ in sources]
        try:
            each = self.each(searched, shares)
        except BaseException:
            failed.set()
            raise
        for n, hypotheses in zip(filled, chain.from_iterable(each), strict=True):
            outputs[n] = hypotheses
        check_outputs([outputs[n] for n in filled], filled)
        return outputs

    def _likely(self, ids: Ids) -> Ids:
        """The ids that an output of a source may hold (`foveate.tasks.shortlist`), all if none."""
        if not self.shortlist:
            raise self.cannot("search with a shortlist that its file does not have")
        often, likely = self.shortlist
        return np.unique(np.concatenate((often, likely[[*ids, EOS]].ravel()))).tolist()

    def _settings(self, search: PackedSearch, request: SearchRequest) -> Settings:
        never = (PAD, BOS) if self.task in ("language", "prefix_translation") else ()
        same = search.model_dump(include=vars(Settings(BOS, EOS)).keys() - {"stop"})
        writes, end = self.tokenizers[-1], request.end
        end = self._ends[1] if end is None else end
        return Settings(
            self._ends[0], end, search.beam_size, request.num or search.beam_size,
            stop=STOPS.index(search.stop), never=never,
            room=16 if self.compiled.bytes < NEAR else 64, reach=self.reach or 0,
            characters=_states(writes, writes.vocab_size) if search.whole_characters else None,
            certain=writes.certain, **{n: v for n, v in same.items() if v is not None},
        )  # fmt: skip

    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        def scored(pair: tuple[Ids, Ids]) -> list[float]:
            search = CompiledSearch(self.compiled, Settings(BOS, EOS))
            return search.log_probabilities(self._read(pair[0]), [*pair[1], EOS]).tolist()

        return self.each(scored, pairs)

    @property
    def aligns(self) -> bool:
        return bool(self.crosses)

    @cached_property
    def crosses(self) -> dict[int, str]:
        """The numbers and names of the attentions to the source."""
        names = enumerate(self.attentions)
        return {n: name for n, name in names if name.endswith("cross_attention")}

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        """Return word links of pairs, none if the model has no attention to the source."""
        chosen = head or self.head

        def linked(pair: tuple[str, str | Ids]) -> Links:
            return chosen.links(self._word_maps(*pair, chosen.rows)) if self.crosses else set()

        return self.each(linked, pairs)

    def _word_maps(self, source: str, target: str | Ids, rows: Rows) -> dict[str, Floats]:
        """The map (H, T, S + 1) of each attention to the source, between words and the end.

        As `foveate.tasks.translation.Translation.word_maps`.
        """
        reads, writes = self.tokenizers
        read, (text, written) = reads.encode(source), writes.written(target, source)
        search = CompiledSearch(self.compiled, Settings(BOS, EOS))
        forced = partial(search.log_probabilities, [*read.ids, EOS], [*written.ids, EOS])
        maps = search.maps(self.crosses, forced, len(read.ids) + 1, len(written.ids) + 1)
        reading = behind_tag(source, reads.bare(source), read.offsets)
        return between_words(maps, reading, (written.offsets, split_words(text)), rows == "read")

    def explain(self, source: Example, target: str | Ids | None, units: Units) -> AttentionRecord:
        """Return the record of all attention for a text, and its target if the model translates."""
        from foveate.look.records import (
            TokenizedText,
            attention_record,
            joined_record,
            lines_record,
        )

        text, reads, writes = str(source), self.tokenizers[0], self.tokenizers[-1]
        if self.task == "classification":
            return self._explain_label(text, target, units)
        if self._continues:
            ids, notes = writes.encode_lines(text + str(target or "")), list[str]()
            if self.reach is not None and len(ids) >= self.reach:
                most = self.reach - 1
                notes.append(f"the first {most} of {len(ids)} tokens: the model reads no more")
                ids = ids[:most]
            return lines_record(self._maps([], [*ids, EOS]), units, writes, ids, notes)
        (text,) = reads.addressed([text], None)
        output = writes.written(target or "", text)[1].ids
        ids = reads.encode_ids([text])[0]
        maps = self._maps([*ids, EOS], [*output, EOS])
        sides = TokenizedText.read(reads, text), TokenizedText.written(writes, output)
        record = attention_record if self.task == "translation" else joined_record
        return record(maps, units, *sides)

    def _maps(self, source: Ids, target: Ids) -> Maps:
        """The maps of all attentions as a target is produced."""
        search = CompiledSearch(self.compiled, Settings(self._ends[0], EOS))
        forced = partial(search.log_probabilities, source, target)
        written = len(target) + (0 if self.task == "translation" else len(source))
        return search.maps(dict(enumerate(self.attentions)), forced, len(source), written)

    def _explain_label(self, text: str, label: str | Ids | None, units: Units) -> AttentionRecord:
        from foveate.look.records import TokenizedText, encoder_record

        if label is not None and label not in self.labels:
            raise UserError(f"no label {label!r}; there are: {', '.join(self.labels)}")
        encoded = self.tokenizers[0].encode(text)
        ids, search = [BOS, *encoded.ids, EOS], CompiledSearch(self.compiled, Settings(BOS, EOS))
        scored = partial(search.label_scores, ids, len(self.labels))
        maps = search.maps(dict(enumerate(self.attentions)), scored, len(ids), 0)
        produced = str(label or self.labels[int(scored().argmax())])
        read = TokenizedText.of(self.tokenizers[0], text, encoded)
        return encoder_record(maps, units, read, produced)


class PackedModel(Translator):
    """A packed model with everything that it needs to answer; its verbs are those of a run."""

    def __init__(
        self,
        path: Path,
        header: Header,
        tensors: Mapping[str, Array],
        threads: int | None = None,
        int8: bool = False,
    ) -> None:
        """Raises `PackedError` where weights and header do not fit."""
        self.path, self.header = path, header
        self.search = lru_cache(maxsize=64)(self.search)  # type: ignore[method-assign]
        pairs = header.task in ("translation", "prefix_translation")
        names = ("source", "target") if pairs else ("text",)
        self.tokenizers = [self._tokenizer(name) for name in names]
        self._tensors, weights = tensors.keys(), arranged(path, tensors)
        is_int8 = int8 or any(isinstance(array, tuple) for array in weights.values())
        self.precision = "int8" if is_int8 else "fp32"
        self._engine = PackedEngine(
            CompiledModel(header.program, weights, frozenset(header.maps if int8 else ())),
            header.task,
            self.tokenizers,
            threads or processors(),
            header.reach,
            [tensors[name].astype(np.int32) for name in SHORTLIST if name in tensors],
            header.attentions,
            self._head(),
            header.labels,
            f"use the run that {path.name} was made from, with PyTorch: --engine torch",
        )
        if wrong := ", ".join(self._unfitting()):
            raise PackedError(f"{path}: its parts do not fit together: {wrong}; pack it again")

    def __repr__(self) -> str:
        return f"PackedModel({str(self.path)!r}, {self.header.task})"

    def describe(self) -> str:
        """File, task, weights and threads, in a line."""
        made = self.header.made_of
        what = f"{made.get('run', '?')}/{made.get('checkpoint', '?')}"
        threads = self.engine.threads
        count = "1 thread" if threads == 1 else f"{threads} threads"
        return f"{self.path} ({self.header.task}, {self.precision}, of {what}), {count}"

    def _tokenizer(self, name: str) -> Tokenizer:
        tree = self.header.tokenizers.get(name)
        if tree is None:
            raise PackedError(f"{self.path} has no tokenizer for the {name}; pack it again")
        return Tokenizer.of(tree, str(self.path))

    def _head(self) -> Head:
        try:
            return Head() if self.header.head is None else Head.of(self.header.head)
        except (ValueError, LookupError) as error:
            raise PackedError(f"{self.path}: its head is damaged: {error}; pack it again") from None

    def _unfitting(self) -> Iterator[str]:
        """The parts of the file whose sizes differ from those of the model, with both sizes."""
        header, engine, sizes = self.header, self.engine, self.engine.compiled.sizes
        reads, writes = self.tokenizers[0].vocab_size, self.tokenizers[-1].vocab_size
        encodes, decodes = header.task in READING, header.task != "classification"
        pairs = {
            "tokens of the source": (reads if encodes else 0, sizes.source),
            "tokens of the output": (writes if decodes else 0, sizes.output),
            "tokens of both sides": (reads if header.task == "prefix_translation" else 0,
                                     writes if header.task == "prefix_translation" else 0),
            "labels": (len(header.labels), sizes.labels),
            "attentions": (len(header.attentions), sizes.attentions),
            "equations": (len(header.equations) or sizes.attentions, sizes.attentions),
            "shortlists": (len(engine.shortlist) or len(SHORTLIST), len(SHORTLIST)),
        }  # fmt: skip
        yield from (f"{a:,} and {b:,} {name}" for name, (a, b) in pairs.items() if a != b)
        arrays = engine.shortlist
        fits = all(array.min(initial=0) >= 0 and array.max(initial=0) < writes for array in arrays)
        if arrays and not (fits and [a.shape[:-1] for a in arrays] == [(), (reads,)]):
            yield "a shortlist for other tokens"
        if not set(header.maps) <= set(self._tensors):
            yield "maps that are not tensors"
        most = int(header.search.max_ratio * header.max_length) + header.search.max_extra
        if header.task != "language" and most > LONGEST_OUTPUT * header.max_length + LARGEST_EXTRA:
            yield f"outputs of {most:,} tokens for sources of {header.max_length:,}"
        layers = len(engine.crosses)
        if header.head is not None and not -max(layers, 1) <= engine.head.layer < max(layers, 1):
            yield f"links of layer {engine.head.layer}, and {layers} layers"

    def _only(self, verb: str, *tasks: TaskKind) -> None:
        if self.header.task not in tasks:
            raise ConfigError(
                f"{self.path} is a model for the task {self.header.task}: it cannot {verb}"
            )

    @property
    def engine(self) -> PackedEngine:
        return self._engine

    def sides(self, verb: str) -> TextSides:
        self._only(verb, "translation", "prefix_translation")
        source, target = self.tokenizers
        return TextSides(source, target, self.header.format, self.header.max_length)

    def search(
        self,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        num_hypotheses: int = 1,
    ) -> ChosenSearch:
        own = chosen(self.header.search.config, beam_size, length_penalty)
        return ChosenSearch(PackedSearch.of(widened(own, num_hypotheses)))

    def explain(
        self, source: Example, target: str | Ids | None = None, units: Units = "auto"
    ) -> AttentionRecord:
        text = str(source)
        if target is None and self.header.task in ("translation", "prefix_translation"):
            outputs = self.translate([text])[0].outputs  # none for an empty line
            target = outputs[0].ids if outputs else []
        layout = self.header.format
        read = text if layout is None else layout.sources([text])[0]
        return self.engine.explain(read, target, units)

    def classify(self, lines: Sequence[str], batch_tokens: int | None = None) -> list[LabelAnswer]:
        """Return the label of each line with p of every label, none for an empty line."""
        self._only("classify", "classification")
        (tokenizer,), names = self.tokenizers, self.header.labels
        limit = min(self.header.max_length, self.engine.room.source)
        encoded = tokenizer.encode_ids(lines)

        def labelled(n: int) -> LabelAnswer:
            if not lines[n].strip():
                return LabelAnswer(lines[n], "", {})
            search = CompiledSearch(self.engine.compiled, Settings(BOS, EOS))
            scores = search.label_scores([BOS, *encoded[n][:limit], EOS], len(names))
            scores = scores - scores.max()
            p = probabilities_of(scores - np.log(np.exp(scores).sum()), names)
            cut = max(0, len(encoded[n]) - limit)
            return LabelAnswer(lines[n], next(iter(p)), p, cut, self.engine)

        return self.engine.each(labelled, range(len(lines)))

    def _continuing(
        self, max_length: int, beam_size: int | None, choices: Mapping[str, object]
    ) -> tuple[Tokenizer, ChosenSearch]:
        self._only("generate", "language")
        own = continuing(self.header.search.config, max_length, beam_size, choices)
        return self.tokenizers[0], ChosenSearch(PackedSearch.of(own))
