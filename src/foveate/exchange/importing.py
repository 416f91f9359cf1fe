"""Import models and vocabularies of others: ``foveate import``. No network, nothing unpickled.

A folder that `transformers` or Marian wrote becomes a run; a vocabulary of CTranslate2 (JSON) or
OpenNMT-py (text, a piece per line, counts after a tab) a tokenizer of pieces separated by spaces.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from foveate.data.tokenizer import BOS, PAD, SPECIALS, UNK, Symbol, Tokenizer, bounded, is_failure
from foveate.decode.beam import Greedy
from foveate.decode.search import Search
from foveate.exchange.base import ExchangeError, appearing
from foveate.exchange.huggingface import (
    CONFIG,
    FAST,
    from_huggingface,
    model_of,
    read_json,
    read_settings,
)
from foveate.exchange.huggingface_rules import SPECIAL_IDS, Settings
from foveate.exchange.marian import FAMILY, marian_search, options_of, read_marian
from foveate.exchange.published import (
    PublishedVocabulary,
    hub_vocabulary,
    marian_vocabulary,
    piece_vocabulary,
    pieces_of,
    renumbered,
    search_of,
)
from foveate.files import cache_folder, write_text
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.run import RunConfig, load
from foveate.run.pack import keep
from foveate.tasks.translation import Translation
from foveate.train import stored
from foveate.train.checkpoint import path_of
from foveate.train.stored import WEIGHTS, save_weights, sealed_folder

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
VERSION = 1  # of how folders are read: a later one reads them again
Opened = tuple[EncoderDecoder, PublishedVocabulary, Search.Config]
NAMES = {*SPECIALS, "<blank>"}  # other names of our special pieces


def import_from(source: Path, out: Path) -> str:
    """Make a run of a folder, or a tokenizer of a vocabulary; return a description of it.

    Raises `ExchangeError` with the remedy for what cannot be read, and ``FileExistsError`` if
    ``out`` exists.
    """
    if source.is_dir():
        return _run(source, out)
    if not source.is_file():
        raise ExchangeError(
            f"{source}: no such file or folder; foveate downloads nothing: fetch it yourself, and "
            "give its folder"
        )
    if source.suffix in PICKLES:
        raise ExchangeError(
            f"{source} may hold a pickle, which could run any code, so it is not opened: write it "
            "again where you trust it, model.save_pretrained(folder, safe_serialization=True), and "
            "import that folder"
        )
    return _vocabulary(source, out)


def _run(source: Path, out: Path) -> str:
    model, vocabulary, search = opened(source)
    sides = vocabulary.source, vocabulary.target
    task = Translation.Config(
        source="{split}.source",
        target="{split}.target",
        tokenizer=sides[0].config,
        joint=sides[0].text() == sides[1].text(),
    )
    config = RunConfig(task=task, model=model.config, decode=search)
    with appearing(out) as place:
        place.mkdir()
        write_text(place / "config.toml", config.toml())
        for side, tokenizer in zip(("source", "target"), sides, strict=True):
            tokenizer.save(place / f"{side}.tokenizer.json")
        first = path_of(place, 0)  # only weights, from which training begins
        with sealed_folder(first, stored.run_files(place, first)) as folder:
            save_weights(model, folder / WEIGHTS)
        load(place)
    keep(load(out))
    return (
        f"{out}: a run of {source}, {sides[0].vocab_size:,} pieces; to train it further: foveate "
        f"train {out}/config.toml task.source='data/{{split}}.en' task.target='data/{{split}}.fr' "
        "train.max_steps=1000 (the names of your files)"
    )


def run_in_cache(folder: Path) -> Path:
    """Return where the run of a published folder is kept; other files in it, another place."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    known = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    digest = hashlib.sha256(repr((VERSION, folder.resolve(), known)).encode()).hexdigest()
    return cache_folder() / "opened" / digest[:12] / folder.resolve().name


def cached_run(folder: Path) -> Path:
    """Return the run of a published folder, made where there is none yet."""
    place = run_in_cache(folder)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process has made it
            _run(folder, place)
    return place


def opened(source: Path) -> Opened:
    """Return the translator in a folder, its vocabulary in our order, and its search."""
    if not (source / CONFIG).is_file() and (models := sorted(source.glob("*.npz"))):
        return _marian(models, source)
    model = from_huggingface(source)
    if not isinstance(model, EncoderDecoder):
        raise ExchangeError(
            f"{source} is a {type(model).__name__}: only translators become runs; in Python "
            f"foveate.exchange.huggingface.from_huggingface gives you the model, and "
            "[start] the weights of a run of yours"
        )
    settings, generation = read_settings(source / CONFIG), source / "generation_config.json"
    also = read_settings(generation) if generation.is_file() else {}
    if (source / "source.spm").is_file():
        own = marian_vocabulary(source, settings)
        return renumbered(model, own.order), own, search_of(settings, also)
    if not is_ours(source / "tokenizer.json"):
        own = hub_vocabulary(source, settings, settings | also)
        return renumbered(model, own.order), own, search_of(settings, also)
    tokenizer = read_tokenizer(source / "tokenizer.json")
    if tokenizer.vocab_size != len(model.output.weight):
        raise ExchangeError(
            f"{source}: tokenizer.json has {tokenizer.vocab_size} pieces, the weights "
            f"{len(model.output.weight)}: take both from the same folder"
        )
    _check_ends(source)
    own = PublishedVocabulary(tokenizer, tokenizer, range(tokenizer.vocab_size))
    return model, own, Greedy.Config()


def _marian(models: Sequence[Path], source: Path) -> Opened:
    """Return what `opened` does of Marian's own files: a model, vocab.spm and decoder.yml."""
    if len(models) > 1:
        raise ExchangeError(f"{source} has {len(models)} models; keep one .npz of them in a folder")
    settings, tensors = read_marian(models[0])
    model = model_of(FAMILY, settings, tensors, models[0], models[0])
    assert isinstance(model, EncoderDecoder)
    own = piece_vocabulary(source / "vocab.spm", settings)
    decoder = source / "decoder.yml"
    options = options_of(decoder.read_text("utf-8")) if decoder.is_file() else {}
    never = (PAD,) if options.get("allow-unk") == "true" else (UNK, PAD)
    return renumbered(model, own.order, never), own, marian_search(options)


def _check_ends(source: Path) -> None:
    """Raise `ExchangeError` unless outputs start and end with the tokens of our translators."""
    ends: Settings = SPECIAL_IDS | {"decoder_start_token_id": BOS, "forced_bos_token_id": None}
    for path in (source / "config.json", source / "generation_config.json"):
        settings = read_json(path, "save the model again") if path.is_file() else {}
        for key, right in ends.items() if isinstance(settings, dict) else ():
            if settings.get(key) not in (None, right, [right]):
                expected = "none" if right is None else f"{right} ({SPECIALS[right]})"
                raise ExchangeError(
                    f"{path}: {key} = {settings[key]}, but a run of foveate has {expected}: its "
                    "answers would differ from this model's; from_huggingface reads only the "
                    "weights"
                )


def is_ours(path: Path) -> bool:
    """Return whether the first pieces of a tokenizer.json are our special ones, in our order."""
    tree = read_json(path, "take the whole folder")
    try:
        return all(dict(pieces_of(tree)).get(name) == i for i, name in enumerate(SPECIALS))
    except (LookupError, TypeError, ValueError, AttributeError):
        return True  # of which `read_tokenizer` says what is wrong


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json with pieces over bytes and our four special pieces.

    Raises `ExchangeError` with the differences.
    """
    tree = read_json(path, FAST)
    try:
        kind = str(tree.get("model", {}).get("type", "none")).lower()
        listed = tree.get("model", {}).get("vocab", {})
        pieces = enumerate(listed) if isinstance(listed, list) else ()
        ids = {str(p): i for i, (p, _) in pieces} or dict(listed)
    except (AttributeError, TypeError, ValueError) as error:
        raise ExchangeError(f"{path}: no tokenizer.json ({error}); {FAST}") from None
    others = [name for i, name in enumerate(SPECIALS) if ids.get(name) != i]
    if kind not in ("bpe", "unigram") or others:
        raise ExchangeError(
            f"{path}: a tokenizer of the kind {kind} in which {', '.join(others) or 'nothing'} "
            f"stands elsewhere: ours have {', '.join(SPECIALS)} as pieces 0 to 3 of a bpe or "
            "unigram over bytes; from_huggingface reads the weights alone"
        )
    rest = tree | {"post_processor": None, "added_tokens": []}
    config = {"kind": kind, "vocab_size": max(len(ids), 4 + 256)}
    tokenizer: Tokenizer = Tokenizer.Config.parse(config).build()
    try:
        tokenizer._restore(rest)
        same = tokenizer.decode(tokenizer.encode("an élan ☃").ids) == "an élan ☃"
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ExchangeError(f"{path}: no tokenizer over bytes ({error!r})") from None
    if not same:
        raise ExchangeError(f"{path}: texts do not come back unchanged; it is not over bytes")
    return tokenizer


def _vocabulary(source: Path, out: Path) -> str:
    """Read a JSON list (CTranslate2), or lines with counts after a tab (OpenNMT-py)."""
    if source.suffix == ".json":
        pieces = read_json(source, "give the vocabulary of a CTranslate2 model")
    else:
        try:
            lines = bounded(source).decode().split("\n")
        except ValueError as error:
            raise ExchangeError(
                f"{source}: no vocabulary ({error}); give one of UTF-8 lines"
            ) from None
        pieces = [line.split("\t")[0] for line in lines if line]
    if not (pieces and isinstance(pieces, list) and all(isinstance(p, str) for p in pieces)):
        raise ExchangeError(f"{source}: no list of pieces; give a vocabulary, one piece per line")
    own = [piece for piece in dict.fromkeys(pieces) if piece not in NAMES]
    tokenizer = Symbol(Symbol.Config())
    tokenizer._restore(own)
    with appearing(out) as place:
        tokenizer.save(place)
        Tokenizer.load(place)
    return f"{out}: {len(own):,} pieces between blanks, and the four special ones"
