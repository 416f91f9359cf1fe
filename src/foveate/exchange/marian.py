"""Marian's own files: a model with its options inside, decoder.yml and its vocabularies.

The model is a model.npz, or a binary file as Firefox ships its translators, whose decoders have an
SSRU in place of self-attention. Each side has a vocabulary of its own, or both have the same one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveate.decode.search import Search
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface_families import APART, MARIAN, MARIAN_PARTS, both
from foveate.exchange.huggingface_rules import Family, Key, Settings, rules
from foveate.exchange.marian_binary import TABLES, Array, read_binary
from foveate.exchange.published import greedy_or_beam
from foveate.models.mamba import SSRUDecoder

# What transformers computes otherwise than Marian in spite of the same weights: ε of norms, and the
# waves of positions, of which the longest has a period of 2π · 10,000 only in Marian.
OWN = (
    Key("layer_norm_eps", 1e-9, both("norm.eps")),
    Key("wave_base", 10_000.0, both("position.base")),
    Key("tie", "all", ("tie",)),
)
FAMILY: Family = replace(MARIAN, keys=(*MARIAN.keys, *OWN), rules=(*MARIAN.rules, *rules(APART)))
_SSRU = {"unit.{forget,value}": "rnn.{forget,value}"}
WITH_SSRU: Family = replace(
    FAMILY,
    config=FAMILY.config.model_copy(update={"decoder": SSRUDecoder.Config(**MARIAN_PARTS)}),
    rules=(*FAMILY.rules, *rules(_SSRU, "decoder.layers.*.", "model.decoder.layers.*.")),
)
FIREFOX = {"beam-size": "1", "max-length-factor": "2"}  # how Firefox translates
OPTIONS = "special:model.yml"  # the tensor that holds the options, as text that ends with a NUL
ONLY = {  # the options for which we support a single value, and what files without them mean
    "type": "transformer",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-train-position-embeddings": "false",
    "transformer-depth-scaling": "false",
    "transformer-ffn-depth": "2",
    "transformer-decoder-dim-ffn": "0",
    "transformer-decoder-ffn-depth": "0",
    "transformer-no-projection": "false",
    "transformer-rnn-projection": "false",
    "skip": "false",
    "lemma-dim-emb": "0",
    "right-left": "false",
}
RECURRENT = ONLY | {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
UNIT = {"W": "value.weight", "Wf": "forget.weight", "bf": "forget.bias"}  # tensors of an SSRU
SUBLAYERS = {  # theirs and those of transformers; Wo_ln and ffn_ffn_ln are norms behind them
    "self": "self_attn",
    "rnn": "self_attn",
    "context": "encoder_attn",
    "ffn": "final",
}


def options_of(text: str) -> dict[str, str]:
    """Return the options of one value in a YAML text that Marian wrote."""
    lines = re.findall(r"^([\w-]+): *(.*?)\s*$", text, re.MULTILINE)
    return {name: value.strip("\"'") for name, value in lines}


def vocabularies_of(folder: Path, decoder: str) -> tuple[Path, Path]:
    """Return the vocabularies of source and target, as decoder.yml lists or Firefox names them.

    Raises `ExchangeError` if a folder has several and none says which is which.
    """
    listed = re.search(r"^vocabs:((?:\n *- .*)+|.*)", decoder, re.MULTILINE)
    names = re.findall(r"[^\s\[\],\"']+\.spm", listed[1]) if listed else []
    files = [folder / Path(name).name for name in names] or sorted(folder.glob("*vocab*.spm"))
    files = files or [folder / "vocab.spm"]
    if len(files) > (2 if names or files[0].name.startswith("src") else 1):
        raise ExchangeError(
            f"{folder} has {len(files)} vocabularies, and nothing says which of them is the "
            "source's: write vocabs: [SOURCE.spm, TARGET.spm] into its decoder.yml"
        )
    return files[0], files[-1]


def read_marian(path: Path) -> tuple[Family, Settings, dict[str, Tensor]]:
    """Return the family, config.json and tensors as transformers would have them of a model.

    There, padding is one piece more, whose zeros also start the decoder. Nothing in the file is
    unpickled. Raises `ExchangeError` with the first option that is not supported.
    """
    try:
        binary = path.suffix == ".bin"
        arrays = read_binary(path) if binary else dict(np.load(path, allow_pickle=False))
        options = options_of(bytes(arrays.pop(OPTIONS)).decode().rstrip("\0"))
        recurrent = options.get("transformer-decoder-autoreg") == "rnn"
        for name, expected in (RECURRENT if recurrent else ONLY).items():
            if (value := options.get(name, expected)) != expected:
                raise ExchangeError(
                    f"{path}: {name}: {value!r} is not supported; supported: {expected!r}"
                )
        tie, tables = _tables(arrays)
        size = tables["model.shared"].shape[1]
        settings: Settings = {
            "model_type": "marian",
            "tie": tie,
            "vocab_size": len(tables["model.shared"]) + 1,
            "decoder_vocab_size": len([*tables.values()][-1]) + 1,
            "d_model": size,
            "encoder_layers": int(options["enc-depth"]),
            "decoder_layers": int(options["dec-depth"]),
            "encoder_attention_heads": int(options["transformer-heads"]),
            "decoder_attention_heads": int(options["transformer-heads"]),
            "encoder_ffn_dim": int(options["transformer-dim-ffn"]),
            "decoder_ffn_dim": int(options["transformer-dim-ffn"]),
            "activation_function": options["transformer-ffn-activation"],
            "scale_embedding": True,
            "wave_base": 10_000.0 ** (size / (size - 2)),  # θ_j = 10,000^(−j / (D/2 − 1))
            "eos_token_id": 0,
        }
        tensors = dict(_renamed(arrays))
    except ExchangeError:
        raise
    except (ValueError, LookupError, OSError, TypeError) as error:
        raise ExchangeError(f"{path}: not a model that Marian wrote ({error!r})") from None
    none = np.zeros((1, settings["decoder_vocab_size"] - 1), np.float32)
    bias = arrays.get("decoder_ff_logit_out_b", none)
    for name, table in tables.items():
        tensors[f"{name}.weight"] = torch.from_numpy(np.pad(table, ((0, 1), (0, 0))))
    tensors["final_logits_bias"] = torch.from_numpy(np.pad(bias, ((0, 0), (0, 1))))
    return WITH_SSRU if recurrent else FAMILY, settings, tensors


def _tables(arrays: Mapping[str, Array]) -> tuple[str, dict[str, Array]]:
    """Return which tables are one (``tie`` of ours), and each table with a row for every piece.

    The first is the source's, the last the output's.
    """
    joint, output = "Wemb" in arrays, arrays.get("decoder_ff_logit_out_Wt")
    tables = {"model.shared": arrays["Wemb" if joint else "encoder_Wemb"]}
    if not joint:
        tables["model.decoder.embed_tokens"] = arrays["decoder_Wemb"]
    if output is None:
        return "all" if joint else "target", tables
    return "inputs" if joint else "none", tables | {"lm_head": output}


def _renamed(arrays: Mapping[str, Array]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of all layers under the names of transformers."""
    for name, array in arrays.items():
        if name in (*TABLES, "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"):
            continue
        match = re.fullmatch(r"(encoder|decoder)_l(\d+)_(self|context|ffn|rnn)_(\w+)", name)
        if match is None:
            raise ValueError(f"a tensor {name} that no supported model has")
        side, layer, part, own = match.groups()
        inside = f"model.{side}.layers.{int(layer) - 1}"
        norm = re.fullmatch(r"(?:Wo|ffn)_ln_(scale|bias)", own)
        matrix = re.fullmatch(r"([Wb])([qkvo12])", own)
        if norm is not None:
            kind = "weight" if norm[1] == "scale" else "bias"
            yield f"{inside}.{SUBLAYERS[part]}_layer_norm.{kind}", torch.from_numpy(array[0])
        elif part == "rnn" and own in UNIT:
            yield f"{inside}.rnn.{UNIT[own]}", torch.from_numpy(array.T.squeeze())
        elif matrix is not None:
            kind, which = ("weight" if matrix[1] == "W" else "bias"), matrix[2]
            called = {"o": "out_proj", "1": "fc1", "2": "fc2"}.get(which, f"{which}_proj")
            called = called if part == "ffn" else f"{SUBLAYERS[part]}.{called}"
            yield f"{inside}.{called}.{kind}", torch.from_numpy(array.T.squeeze())
        else:
            raise ValueError(f"a tensor {name} that no supported model has")


def marian_search(options: Mapping[str, str], path: Path) -> Search.Config:
    """Return the search that Marian makes with the options in ``path``, a decoder.yml.

    ``normalize`` is α of |y|^α; outputs may be ``max-length-factor`` times as long as the source.
    """
    limits: Settings = {"max_ratio": float(options.get("max-length-factor", 3)), "max_extra": 1}
    width, penalty = int(options.get("beam-size", 12)), float(options.get("normalize", 0))
    return greedy_or_beam(width, penalty, limits, {"stop": "shrink"}, path)
