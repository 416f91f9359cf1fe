"""Models from and to folders of the `transformers` library: config.json and model.safetensors.

    encoder = from_huggingface("all-MiniLM-L6-v2")       # a TransformerEncoder
    to_huggingface(model, "folder")                      # AutoModel.from_pretrained("folder")

Lives here: the files, and weights by the tables of the families. Does not live here: the families
(`huggingface_decoders`, `_encoders`, `_pairs`, `_pictures`), what their tables mean
(`huggingface_rules`), their tokenizers. Needs no `transformers`, and no network.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from foveate.config import Config
from foveate.data.vocabulary import bounded
from foveate.export.huggingface_decoders import GPT2, LLAMA
from foveate.export.huggingface_encoders import BERT, BERT_MASKED, ROBERTA, ROBERTA_MASKED
from foveate.export.huggingface_ends import Settings
from foveate.export.huggingface_halves import in_halves, wave_table
from foveate.export.huggingface_pairs import BART, MARIAN, PEGASUS, T5
from foveate.export.huggingface_pictures import VIT, VIT_LABELS
from foveate.export.huggingface_rules import ExchangeError, Family, Form, Tensors
from foveate.train.bounds import Within, refuse_larger
from foveate.train.checkpoint import write_tensors
from foveate.train.files import NEW, DamagedError, is_beside, write_atomically
from foveate.train.tensors import Size, opened

FAMILIES = (  # of one model_type those with a head come first
    GPT2,
    LLAMA,
    BERT_MASKED,
    BERT,
    ROBERTA_MASKED,
    ROBERTA,
    T5,
    BART,
    MARIAN,
    PEGASUS,
    VIT_LABELS,
    VIT,
)
CONFIG, WEIGHTS = "config.json", "model.safetensors"
STRANGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)
AGAIN = "write it again with save_pretrained of transformers"


def from_huggingface(folder: str | Path) -> nn.Module:
    """Our model of a folder, ready for use, with its weights in fp32.

    GPT-2 and Llama give a `LanguageModel`; T5, BART, Marian and Pegasus an `EncoderDecoder`; BERT
    and RoBERTa a `MaskedLanguageModel`, ViT a `Classifier`, or where the folder has no such head a
    `TransformerEncoder`. Other heads are left out with a warning that names them. Raises
    `ExchangeError` for files that are missing, of another family, or do not fit.
    """
    folder = Path(folder)
    settings = _read_settings(folder / CONFIG)
    families = _families(str(settings.get("model_type")), folder / CONFIG)
    tensors = {_modern(name): tensor for name, tensor in _read_tensors(folder).items()}
    there = Size(len(tensors), sum(tensor.numel() for tensor in tensors.values()))
    family = next(f for f in families if f.head is None or f.head in tensors)
    try:
        settings = family.said(settings, tensors)
        config = family.read_config(settings)
        refuse_larger(config.tree(), there, "the model")
        with Within(there, "the config"):
            model: nn.Module = config.build(*family.ends.read(settings))
    except STRANGE as error:
        raise ExchangeError(f"{folder / CONFIG}: {error}") from error
    try:
        _fill(model, family, settings, tensors, folder / WEIGHTS)
    except ExchangeError:
        raise
    except STRANGE as error:
        raise ExchangeError(f"{folder / WEIGHTS}: {error}; {AGAIN}") from error
    return model.eval()


def to_huggingface(
    model: nn.Module,
    folder: str | Path,
    architecture: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model of ours so that `transformers` loads it and computes the same.

    The translation models of this library become a Marian (norm after) or a Pegasus (norm before).

    ``architecture`` is a ``model_type`` such as "bart"; where it is None, the first that has a
    place for all that the model has. ``settings`` are further entries of config.json; without them
    the special tokens are those of our vocabularies, and the labels those of the model. Raises
    `ExchangeError` that names what has no place.
    """
    folder = Path(folder)
    config, weights = in_halves(model)
    family, written = fitting(config.plain(), architecture)
    written = family.finish(written | family.ends.write(model))
    written = {"model_type": family.name, "architectures": [family.architecture]} | written
    written = {**written, "dtype": "float32", "torch_dtype": "float32", **(settings or {})}
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        theirs, form = family.their_name(name, written)
        value = form.write(weight.float(), tensors.get(theirs), written)
        tensors[theirs] = value.contiguous()
    for theirs in family.optional:
        tensors.setdefault(theirs, torch.zeros(1, written["vocab_size"]))
    for theirs in family.waves:
        tensors[theirs] = wave_table(written["max_position_embeddings"], written["d_model"])
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, folder / (NEW + WEIGHTS))
    os.replace(folder / (NEW + WEIGHTS), folder / WEIGHTS)
    write_atomically(folder / CONFIG, json.dumps(written, indent=2, sort_keys=True) + "\n")
    return folder


# ------------------------------------------------------------------------------ reading


def _read_settings(path: Path) -> Settings:
    if not path.is_file():
        raise ExchangeError(
            f"{path}: no such file; give the folder that save_pretrained of transformers wrote"
        )
    try:
        settings = json.loads(bounded(path))
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{path}: no JSON ({error}); {AGAIN}") from None
    if not isinstance(settings, dict):
        raise ExchangeError(f"{path}: no JSON object; {AGAIN}")
    return cast(Settings, settings)


def _families(name: str, path: Path) -> list[Family]:
    """Those of a ``model_type``."""
    found = [family for family in FAMILIES if family.name == name]
    if not found:
        have = ", ".join(dict.fromkeys(family.name for family in FAMILIES))
        raise ExchangeError(
            f"{path}: model_type = {name!r} is no architecture that we have: {have}"
        )
    return found


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors, or of the shards that its index names."""
    index = folder / f"{WEIGHTS}.index.json"
    names = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and index.is_file():
        names = _shards(index)
    tensors: dict[str, Tensor] = {}
    for path in (folder / name for name in names):
        if not path.is_file():
            raise ExchangeError(
                f"{path}: no such file; weights of another form are not read: {AGAIN}"
            )
        try:
            with opened(path) as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except DamagedError as error:
            why = str(error).removeprefix(f"{path} ")
            raise ExchangeError(f"{path}: damaged ({why}); {AGAIN}, or fetch it again") from None
    return tensors


def _shards(index: Path) -> list[str]:
    """The files that an index names. Raises `ExchangeError` for one that is not beside it."""
    try:
        names = sorted(set(_read_settings(index)["weight_map"].values()))
        strange = [name for name in names if not is_beside(name)]
    except (LookupError, AttributeError, TypeError) as error:
        raise ExchangeError(f"{index}: no index of weights ({error!r}); {AGAIN}") from None
    if strange:
        raise ExchangeError(f"{index} names {strange[0]!r}, which is no file beside it; {AGAIN}")
    return names


def _modern(name: str) -> str:
    """The name that a norm's tensors have in files of today."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _fill(
    model: nn.Module, family: Family, settings: Settings, tensors: Tensors, path: Path
) -> None:
    """Copy every tensor to its place, and account for those that have none."""
    used = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs, form = family.their_name(name, settings)
            found = _stored(theirs, family.prefix, tensors)
            if found is None and theirs in family.optional:
                parameter.zero_()
                continue
            if found is None:
                raise ExchangeError(
                    f"{path}: no tensor {theirs!r} (our {name}): the file is damaged or not of "
                    f"the {family.name} that {CONFIG} describes; {AGAIN}"
                )
            parameter.copy_(_fitted(tensors[found], form, settings, parameter, f"{path}: {found}"))
            used.add(found)
    _account(family, {name: t for name, t in tensors.items() if name not in used}, tensors, path)


def _stored(theirs: str, prefix: str, tensors: Tensors) -> str | None:
    """The name under which a tensor is stored: models without a head leave out the prefix."""
    names = (theirs, prefix + theirs, theirs.removeprefix(prefix))
    return next((name for name in names if name in tensors), None)


def _fitted(
    tensor: Tensor, form: Form, settings: Settings, parameter: Tensor, where: str
) -> Tensor:
    value = form.read(tensor, settings)
    if value.shape != parameter.shape:
        raise ExchangeError(
            f"{where} is {tuple(tensor.shape)}, which is {tuple(value.shape)} to us, and "
            f"{CONFIG} asks for {tuple(parameter.shape)}: the two files are not of one model; "
            "take both from the same folder"
        )
    return value


def _account(family: Family, left: Tensors, tensors: Tensors, path: Path) -> None:
    """Say which tensors are not used, and refuse those that might change what is computed."""
    heads, unknown = [], []
    for name, tensor in left.items():
        if name.endswith(family.computed or ("\n",)):
            continue
        first = _stored(family.copies.get(name, "\n"), family.prefix, tensors)
        if first is not None:
            if not torch.equal(tensor, tensors[first]):
                unknown.append(f"{name} (differs from {first}, to which {CONFIG} ties it)")
        elif name.startswith(family.heads or ("\n",)):
            heads.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise ExchangeError(
            f"{path}: {len(unknown)} tensors have no place in our {family.name}, so it would not "
            f"compute the same: {', '.join(sorted(unknown)[:4])}; save the plain "
            f"{family.architecture}"
        )
    if heads:
        warnings.warn(
            f"{path}: {len(heads)} tensors of heads are left out: {', '.join(sorted(heads))}",
            stacklevel=3,
        )


# ------------------------------------------------------------------------------ writing


def fitting(config: Config, architecture: str | None = None) -> tuple[Family, Settings]:
    """The family that has a place for the whole config, and what its config.json says."""
    chosen = list(FAMILIES)
    if architecture is not None:
        chosen = _families(architecture, Path("to_huggingface"))
    reasons = []
    for family in chosen:
        if not isinstance(config, type(family.config)):
            continue
        try:
            return family, family.write_config(config)
        except ExchangeError as error:
            reasons.append(str(error))
    nearest = min(reasons, key=len, default="none is of this kind")
    raise ExchangeError(f"no architecture fits {type(config).__qualname__}; {nearest}")
