"""Import models of others: ``foveate import``. No network, nothing unpickled.

A folder that `transformers` or Marian wrote becomes a run.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from foveate.config import marian_files
from foveate.decode.search import Search
from foveate.exchange import marian, published
from foveate.exchange.base import ExchangeError, appearing
from foveate.exchange.huggingface import (
    CONFIG,
    from_huggingface,
    model_of,
    read_settings,
)
from foveate.exchange.huggingface_rules import Settings
from foveate.files import cache_folder, write_text
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.run import RunConfig, load
from foveate.run.pack import keep
from foveate.system import free_memory
from foveate.tasks.base import Task
from foveate.tasks.language import Language
from foveate.tasks.translation import Translation
from foveate.train import stored
from foveate.train.checkpoint import ORIGIN, path_of
from foveate.train.stored import WEIGHTS, sealed_folder

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
VERSION = 4  # of how folders are read: a later one reads them again
POSITIONS = "max_position_embeddings", "n_positions"  # the longest input, in config.json
GENERIC = re.compile(  # names of folders that name no model
    r"transformers|hf|hugging_?face|models?|checkpoints?(-\d+)?|snapshots?|weights|[0-9a-f]{40}",
    re.I,
)
Opened = tuple[EncoderDecoder | LanguageModel, published.PublishedVocabulary, Search.Config]


def import_from(source: Path, out: Path) -> str:
    """Make a run of the folder of a model; return a description of it.

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
    raise ExchangeError(f"{source} is a file; give the folder of a model")


def _run(source: Path, out: Path) -> str:
    read, vocabulary, search = opened(source)
    model = published.renumbered(read, vocabulary)
    sides = {"source": vocabulary.source, "target": vocabulary.target}
    files = "task.source='data/{split}.en' task.target='data/{split}.fr'"
    kind, joint = vocabulary.source.config, sides["source"].text() == sides["target"].text()
    task: Task.Config = Translation.Config(
        source="{split}.source", target="{split}.target", tokenizer=kind, joint=joint
    )
    if isinstance(model, LanguageModel):
        sides, files = {"text": vocabulary.source}, "task.text='data/{split}.txt'"
        task = Language.Config(text="{split}.txt", tokenizer=kind, block_length=vocabulary.reach)
    config = RunConfig(task=task, model=model.config, decode=search)
    sizes = {"parameters": sum(parameter.numel() for parameter in read.parameters())}
    with appearing(out) as place:
        place.mkdir()
        write_text(place / "config.toml", config.toml())
        write_text(place / ORIGIN, json.dumps(_origin(source) | sizes))
        for side, tokenizer in sides.items():
            tokenizer.save(place / f"{side}.tokenizer.json")
        first = path_of(place, 0)  # only weights, from which training begins
        with sealed_folder(first, stored.run_files(place, first)) as folder:
            stored.write_tensors(stored.own_tensors(model), folder / WEIGHTS)
        load(place)
    keep(load(out))
    return (
        f"{out}: a run of {source}, {vocabulary.source.vocab_size:,} pieces; to train it further: "
        f"foveate train {out}/config.toml {files} train.max_steps=1000 (the names of your files)"
    )


def _origin(source: Path) -> Settings:
    """Return what a published folder says of itself, or its name where that ends as in -en-fr."""
    files = [source / name for name in (CONFIG, "tokenizer_config.json")]
    says, tokens = (read_settings(file) if file.is_file() else {} for file in files)
    family = re.sub(r"(MT|LMHead)?Model$|For[A-Z].*$", "", str(*says.get("architectures", [])[:1]))
    pairs = [f"{tokens.get('source_lang')}-{tokens.get('target_lang')}"]
    pairs += [path.name for path in (source.resolve(), source.resolve().parent)]
    named = (re.search(r"(?:^|[-_.])([a-z]{2,3})-([a-z]{2,3})$", pair) for pair in pairs)
    languages = next((match.groups() for match in named if match), ())
    return {
        "family": family or "Marian",
        "languages": languages,
        "folder": str(source.resolve()),
        "positions": next((says[key] for key in POSITIONS if type(says.get(key)) is int), None),
        "dtype": ", ".join(sorted(_dtypes(source))),
    }


def _dtypes(source: Path) -> set[str]:
    """Return the types of the numbers in the safetensors files of a folder, such as float16."""
    kinds = set[str]()
    for path in source.glob("*.safetensors"):
        with stored.opened(path) as file:
            kinds |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return {kind.lower().replace("f", "float") for kind in kinds if "F" in kind}


def name_of(folder: Path) -> str:
    """Return the last name in the path of a published folder that is not one such as ``hf``."""
    path = folder.resolve()
    return next((name for name in path.parts[:0:-1] if not GENERIC.fullmatch(name)), path.name)


def run_in_cache(folder: Path) -> Path:
    """Return where the run of a published folder is kept; other files in it, another place."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    known = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    digest = hashlib.sha256(repr((VERSION, folder.resolve(), known)).encode()).hexdigest()
    return cache_folder() / "opened" / digest[:12] / name_of(folder)


def cached_run(folder: Path) -> Path:
    """Return the run of a published folder, made where there is none yet."""
    place = run_in_cache(folder)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process has made it
            _run(folder, place)
    return place


def opened(source: Path) -> Opened:
    """Return the model in a folder, its vocabulary in our order, and its search."""
    if not (source / CONFIG).is_file() and (models := marian_files(source)):
        return _marian(models, source)
    _check_memory(source)
    model = from_huggingface(source)
    settings, path = read_settings(source / CONFIG), source / "generation_config.json"
    if not path.is_file():  # as older folders, and as transformers reads them
        path = source / CONFIG
    also = {name: settings.get(name) for name in ("model_type", "pad_token_id")}
    also |= read_settings(path)
    if isinstance(model, LanguageModel):
        own = published.text_vocabulary(source, settings | also)
        return model, own, published.sampling_of(also, path)
    if not isinstance(model, EncoderDecoder):
        raise ExchangeError(
            f"{source} is a {type(model).__name__}: only translators and language models become "
            "runs; in Python foveate.exchange.huggingface.from_huggingface gives you the model, "
            "and [start] the weights of a run of yours"
        )
    if any((source / f"{side}.spm").is_file() for side in ("source", "target")):
        own = published.marian_vocabulary(source, settings)
    else:
        own = published.hub_vocabulary(source, settings, also)
    with published.fitting_pieces(path):
        return model, own, published.search_of(also, path)


def _check_memory(source: Path) -> None:
    """Raise `ExchangeError` if two copies of the weights in fp32 are more than the free memory."""
    settings = read_settings(source / CONFIG)
    half = str(settings.get("dtype") or settings.get("torch_dtype")) in ("bfloat16", "float16")
    sizes = [path.stat().st_size for path in source.glob("*.safetensors")]
    needed, free = 2 * sum(sizes) * (2 if half else 1), free_memory()
    if free is not None and needed > free:
        raise ExchangeError(
            f"{source}: to open it takes {needed / 2**30:.1f} GiB of memory, twice its weights in "
            f"fp32, and {free / 2**30:.1f} are free; take a smaller model, or a larger machine"
        )


def _marian(models: Sequence[Path], source: Path) -> Opened:
    """Return what `opened` does of Marian's own files: a model, its pieces and decoder.yml."""
    if len(models) > 1:
        raise ExchangeError(f"{source} has {len(models)} models; keep one of them in a folder")
    family, settings, tensors = marian.read_marian(models[0])
    model = model_of(family, settings, tensors, models[0], models[0])
    assert isinstance(model, EncoderDecoder)
    decoder = source / "decoder.yml"
    text = decoder.read_text("utf-8") if decoder.is_file() else ""
    options = marian.options_of(text) if text or models[0].suffix != ".bin" else marian.FIREFOX
    own = published.piece_vocabularies(
        *marian.vocabularies_of(source, text), settings, options.get("allow-unk") == "true"
    )
    return model, own, marian.marian_search(options, decoder)
