"""Models and vocabularies of others as ours: ``foveate import``. No network, nothing unpickled.

A folder of `transformers` (config.json, model.safetensors, tokenizer.json) becomes a run; a
vocabulary of CTranslate2 (JSON) or OpenNMT-py (text, a piece a line, counts behind a tab) becomes a
tokenizer of pieces between blanks.

Lives here: which source is which, and the run around a model. Does not live here: weights and their
names (`foveate.export.huggingface`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foveate.data.tokenizer import SPECIALS, Symbol, Tokenizer
from foveate.data.vocabulary import bounded, is_failure
from foveate.decode.greedy import Greedy
from foveate.export.base import appearing
from foveate.export.huggingface import from_huggingface
from foveate.export.huggingface_rules import ExchangeError
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.run import RunConfig, load
from foveate.tasks.translation import Translation
from foveate.train.checkpoint import WEIGHTS, save_weights
from foveate.train.files import sealed_folder

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npz")
FOLDER = "weights"
NAMES = {*SPECIALS, "<blank>"}  # what others call our special pieces


def import_from(source: Path, out: Path) -> str:
    """Make a run of a folder, or a tokenizer of a vocabulary; say what it is.

    Raises `ExchangeError` for what cannot be read, with the remedy, and ``FileExistsError`` where
    ``out`` is.
    """
    if source.is_dir():
        return _run(source, out)
    if not source.is_file():
        raise ExchangeError(
            f"{source}: no such file or folder; nothing is fetched: download it, and "
            "give its folder"
        )
    if source.suffix in PICKLES:
        raise ExchangeError(
            f"{source} may hold a pickle, which could run any code, and is not opened: write it "
            "again where you trust it, model.save_pretrained(folder, safe_serialization=True), and "
            "import that folder"
        )
    return _vocabulary(source, out)


# ------------------------------------------------------------------------------ folders


def _run(source: Path, out: Path) -> str:
    model = from_huggingface(source)
    if not isinstance(model, EncoderDecoder):
        raise ExchangeError(
            f"{source} is a {type(model).__name__}: only translators become runs; in Python "
            f"foveate.export.huggingface.from_huggingface gives you the model, and "
            "[start] the weights of a run of yours"
        )
    tokenizer = read_tokenizer(source / "tokenizer.json")
    if tokenizer.vocab_size != len(model.output.weight):
        raise ExchangeError(
            f"{source}: tokenizer.json has {tokenizer.vocab_size} pieces, the weights "
            f"{len(model.output.weight)}: take both from one folder"
        )
    task = Translation.Config(
        source="{split}.source", target="{split}.target", tokenizer=tokenizer.config
    )
    config = RunConfig(task=task, model=model.config, decode=Greedy.Config())
    with appearing(out) as place:
        place.mkdir()
        (place / "config.toml").write_text(config.toml(), encoding="utf-8")
        for side in ("source", "target"):
            tokenizer.save(place / f"{side}.tokenizer.json")
        with sealed_folder(place / FOLDER) as folder:
            save_weights(model, folder / WEIGHTS)
        best = {"folder": FOLDER, "figure": "imported", "value": 0.0, "step": 0}
        (place / "best.json").write_text(json.dumps(best) + "\n", encoding="utf-8")
        load(place)
    return (
        f"{out}: a run of {source}, {tokenizer.vocab_size:,} pieces; name data of yours in "
        f"{out}/config.toml (task.source, task.target) to evaluate it or to train on"
    )


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer of a tokenizer.json with pieces over bytes and our four special pieces.

    Raises `ExchangeError` that says what is otherwise.
    """
    again = "save the tokenizer as a fast one: tokenizer.save_pretrained(folder)"
    tree = _json(path, again)
    try:
        kind = str(tree.get("model", {}).get("type", "none")).lower()
        listed = tree.get("model", {}).get("vocab", {})
        pieces = enumerate(listed) if isinstance(listed, list) else ()
        ids = {str(p): i for i, (p, _) in pieces} or dict(listed)
    except (AttributeError, TypeError, ValueError) as error:
        raise ExchangeError(f"{path}: no tokenizer.json ({error}); {again}") from None
    others = [name for i, name in enumerate(SPECIALS) if ids.get(name) != i]
    if kind not in ("bpe", "unigram") or others:
        raise ExchangeError(
            f"{path}: a tokenizer of the kind {kind} in which {', '.join(others) or 'nothing'} "
            f"stands elsewhere: ours have {', '.join(SPECIALS)} as pieces 0 to 3 of a bpe or "
            "unigram over bytes; from_huggingface reads the weights alone"
        )
    rest = tree | {"post_processor": None, "added_tokens": []}
    config = {"kind": kind, "vocab_size": max(len(ids), 4 + 256)}
    found: Tokenizer = Tokenizer.Config.parse(config).build()
    try:
        found._restore(rest)
        same = found.decode(found.encode("an élan ☃").ids) == "an élan ☃"
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ExchangeError(f"{path}: no tokenizer over bytes ({error!r})") from None
    if not same:
        raise ExchangeError(f"{path}: texts do not come back as they were; it is none over bytes")
    return found


def _json(path: Path, remedy: str) -> Any:
    if not path.is_file():
        raise ExchangeError(f"{path}: no such file; {remedy}")
    try:
        return json.loads(bounded(path))
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{path}: no JSON ({error}); {remedy}") from None


# ------------------------------------------------------------------------------ vocabularies


def _vocabulary(source: Path, out: Path) -> str:
    pieces = READERS.get(source.suffix, _lines)(source)
    if not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise ExchangeError(f"{source}: no list of pieces; give a vocabulary, a piece a line")
    own = [piece for piece in dict.fromkeys(pieces) if piece not in NAMES]
    tokenizer = Symbol(Symbol.Config())
    tokenizer._restore(own)
    with appearing(out) as place:
        tokenizer.save(place)
        Tokenizer.load(place)
    return f"{out}: {len(own):,} pieces between blanks, and the four special ones"


def _from_json(path: Path) -> list[str]:
    """CTranslate2's shared_vocabulary.json and its like: a list."""
    found: list[str] = _json(path, "give the vocabulary of a CTranslate2 model")
    return found if isinstance(found, list) else []


def _lines(path: Path) -> list[str]:
    """OpenNMT-py's and older CTranslate2's: a piece a line, its count behind a tab if at all."""
    try:
        text = bounded(path).decode()
    except ValueError as error:
        raise ExchangeError(f"{path}: no vocabulary ({error}); give one of UTF-8 lines") from None
    return [line.split("\t")[0] for line in text.split("\n") if line]


READERS: dict[str, Callable[[Path], list[str]]] = {".json": _from_json}
